/* The wall clock of the process this is preloaded into, owned by a test.
 *
 * What the server does by its clock (ids of entries, expiry, ages) cannot be tested by
 * waiting for it, and the machine's clock is not ours to set. clock.rs compiles this
 * file, and says there how the clock is moved.
 *
 * The environment variable SERIATIM_CLOCK names a file of two 64-bit numbers. If the
 * first is not 0, the wall clock is that many microseconds since 1970 and stands still;
 * else it is the real one plus the second, in microseconds. Without the variable all is
 * real. Clocks that only measure (CLOCK_MONOTONIC and the like) are always real.
 *
 * The real time comes from the kernel, not from the C library's own functions: they
 * would have to be looked up, which allocates, and the allocator reads the clock. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(time_t) == 8 && sizeof(long) == 8, "the kernel's time must be 64 bits wide");

struct hands {
    int64_t frozen_us;
    int64_t offset_us;
};

/* Set before main and before any thread; a forked child has the same mapping. Aligned
 * numbers of 8 bytes, each written by one call and read by one load, are not torn. */
static const volatile struct hands *hands;

/* Who reads the clock before this ran, as an allocator may, gets the real one. */
__attribute__((constructor)) static void find_hands(void) {
    const char *path = getenv("SERIATIM_CLOCK");
    if (path == NULL)
        return;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    void *found = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(struct hands), PROT_READ, MAP_SHARED, file, 0);
    if (found == MAP_FAILED) {
        /* A test that believes it owns the clock must not go on. */
        perror(path);
        _exit(1);
    }
    close(file);
    hands = found;
}

static int real(clockid_t clock, struct timespec *now) {
    return (int)syscall(SYS_clock_gettime, clock, now);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (hands == NULL || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
        return real(clock, now);
    int64_t us = hands->frozen_us, ns = 0;
    if (us == 0) {
        int failed = real(clock, now);
        if (failed)
            return failed;
        us = now->tv_sec * INT64_C(1000000) + now->tv_nsec / 1000 + hands->offset_us;
        ns = now->tv_nsec % 1000;
    }
    now->tv_sec = us / 1000000;
    now->tv_nsec = us % 1000000 * 1000 + ns;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec wall;
    int failed = clock_gettime(CLOCK_REALTIME, &wall);
    if (failed)
        return failed;
    now->tv_sec = wall.tv_sec;
    now->tv_usec = wall.tv_nsec / 1000;
    if (zone != NULL)
        memset(zone, 0, sizeof(struct timezone));
    return 0;
}

time_t time(time_t *now) {
    struct timespec wall;
    if (clock_gettime(CLOCK_REALTIME, &wall) != 0)
        return -1;
    if (now != NULL)
        *now = wall.tv_sec;
    return wall.tv_sec;
}
