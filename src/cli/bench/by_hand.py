"""What people write by hand to keep events in order: a key with the next sequence of each entity,
a sorted set for what came too early, and a stream. It is neither atomic nor safe from crashes.

Usage: by_hand.py PORT WARM_UP_SECONDS SECONDS. Says "begin" when it is warm, and at the end one
line of JSON: events, and percentiles of the latency in microseconds."""

import json
import random
import string
import sys
import time
import uuid

import redis

ENTITIES = 1000
KINDS = ["provisioning", "running", "running", "completed"]
STREAMS = 16
KEEP_SECONDS = 3600


def publish(store, entity, sequence, kind, data):
    following = int(store.get(f"next:{entity}") or 0)
    if sequence < following:
        return
    if sequence > following:
        store.zadd(f"early:{entity}", {json.dumps([sequence, kind, data]): sequence})
        store.expire(f"early:{entity}", KEEP_SECONDS)
        return
    append(store, entity, sequence, kind, data)
    following += 1
    while early := store.zrangebyscore(f"early:{entity}", following, following):
        append(store, entity, *json.loads(early[0]))
        store.zrem(f"early:{entity}", early[0])
        following += 1
    store.set(f"next:{entity}", following, ex=KEEP_SECONDS)


def append(store, entity, sequence, kind, data):
    stream = f"bench:{hash(entity) % STREAMS}"
    store.xadd(stream, {"e": entity, "s": sequence, "t": kind, "p": data})


def main():
    port, warm_up, seconds = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
    store = redis.Redis(port=port)
    data = "".join(random.choices(string.ascii_lowercase, k=300))
    took, began, warm_at = [], None, time.perf_counter() + warm_up
    while True:
        entities = [str(uuid.uuid4()) for _ in range(ENTITIES)]
        for sequence, kind in enumerate(KINDS):
            for entity in entities:
                sent = time.perf_counter()
                publish(store, entity, sequence, kind, data)
                now = time.perf_counter()
                if began is None:
                    if now >= warm_at:
                        began = now
                        print("begin", flush=True)
                    continue
                took.append(now - sent)
                if now - began >= seconds:
                    took.sort()
                    at = lambda q: int(1e6 * took[min(len(took) - 1, int(q * len(took)))])
                    found = {"events": len(took), "p50_us": at(0.5), "p99_us": at(0.99), "p999_us": at(0.999)}
                    print(json.dumps(found), flush=True)
                    return


main()
