"""Checks from journals alone whether the workers of a group got what they were promised.

It knows nothing of the project: it reads what workers wrote down while they worked and
what the producer was told, and needs Python's standard library only. It looks neither at
Redis nor at a sidecar, and it cannot know what a worker did not write down.

Journals are JSON lines. The producer's has one line for each event that was accepted:

  {"entity":"e1","epoch":0,"sequence":3}

A worker's (one file for each process) has one line for each thing that happened:

  {"kind":"start","at":1763300000000000000,"worker":"w3","partition":5,"term":1763300000000,
   "entity":"e1","epoch":0,"sequence":3,"order":"strict","attempt":1,"id":"1763-0"}

  kind   start   the handler begins
         end     the handler is done; its ack is sent after this line
         nack    the handler gave up; its nack is sent after this line
         acked   the ack is in the store
         fenced  the answer was refused: the lease was lost
  at     the wall clock in nanoseconds; all workers ran on one machine
  order  strict, passed, late, replay, or gap, which has "from" as well

The last line of a file may be cut off: its worker was killed.
"""

import argparse
import bisect
import collections
import json
import sys

VIOLATIONS = {
    "lost": "an accepted event was not handled",
    "never_produced": "an event was delivered that nobody produced",
    "hole": "a sequence was passed over, and no gap was delivered for it",
    "order": "an event was started after a later one of its entity",
    "epoch_order": "an epoch was started after a later one of its entity",
    "went_back": "an event was started again after a later one of its entity",
    "overlap": "two deliveries of one entity at the same time",
    "run_after_ack": "an event was started again although it was acknowledged",
    "acked_twice": "an event was acknowledged under two terms",
    "acked_by_fenced": "an ack was taken from a worker whose partition had a higher term",
    "term_order": "a partition's term fell",
    "term_shared": "two workers had a partition under the same term",
}
EXAMPLES_MAX = 10

TEXTS = ("kind", "worker", "entity", "order")
NUMBERS = ("at", "partition", "term", "epoch", "sequence", "attempt")
KINDS = ("start", "end", "nack", "acked", "fenced")
ORDERS = ("strict", "passed", "late", "replay", "gap")


class Unusable(Exception):
    """The input is not what a worker or producer writes."""


class Run:
    """One run of a handler. Times are places in the merged journal, not clock readings."""

    def __init__(self, file, line, place):
        self.file, self.started, self.done, self.fate, self.nacked = file, place, None, None, False
        self.worker, self.partition, self.term = line["worker"], line["partition"], line["term"]
        self.entity, self.epoch, self.sequence = line["entity"], line["epoch"], line["sequence"]
        self.order, self.attempt = line["order"], line["attempt"]
        self.id, self.first = line.get("id", ""), line.get("from", line["sequence"])
        self.stale = False

    @property
    def event(self):
        return (self.entity, self.epoch, self.sequence)

    @property
    def delivery(self):
        """What must not be run again once it is acknowledged. Only strict events and gaps
        are there once; of the others it is the entry in the stream that is."""
        entry = (self.order, self.first) if self.order in ("strict", "gap") else (self.order, self.id)
        return self.event + entry

    def shown(self):
        place = {"worker": self.worker, "partition": self.partition, "term": self.term, "attempt": self.attempt}
        return {"entity": self.entity, "epoch": self.epoch, "sequence": self.sequence, "order": self.order} | place


def read_lines(path):
    """The JSON objects of a file; a last line that was cut off is left out."""
    try:
        with open(path, "rb") as file:
            lines = file.read().split(b"\n")
    except OSError as error:
        raise Unusable(f"{path}: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError:
            if number == len(lines):
                return
            raise Unusable(f"{path}:{number}: not JSON") from None
        if not isinstance(value, dict):
            raise Unusable(f"{path}:{number}: not an object")
        yield number, value


def read_producer(path):
    produced = set()
    for number, line in read_lines(path):
        try:
            produced.add((line["entity"], int(line["epoch"]), int(line["sequence"])))
        except (KeyError, TypeError, ValueError):
            raise Unusable(f"{path}:{number}: entity, epoch and sequence are needed") from None
    return produced


def read_sinks(paths):
    """All runs in the order in which they started, and where each worker's journal ends."""
    merged = []
    for file, path in enumerate(paths):
        latest = 0
        for number, line in read_lines(path):
            if wrong := wrong_with(line):
                raise Unusable(f"{path}:{number}: {wrong}")
            # The lines of one worker stand in their order, whatever its clock did.
            latest = max(latest, line["at"])
            merged.append((latest, file, number, line))
    merged.sort(key=lambda entry: entry[:3])
    runs, same, ends = [], collections.defaultdict(list), {}
    for place, (_, file, number, line) in enumerate(merged):
        ends[file] = place
        run = Run(file, line, place)
        of_delivery = same[file, run.partition, run.term, run.delivery, run.attempt]
        if line["kind"] == "start":
            runs.append(run)
            of_delivery.append(run)
        elif not settle(of_delivery, line["kind"], place):
            raise Unusable(f"{paths[file]}:{number}: {line['kind']} without what must come before it")
    return runs, ends


def wrong_with(line):
    for field in TEXTS + NUMBERS:
        if not isinstance(line.get(field), str if field in TEXTS else int):
            return f"{field} is missing, or not what it should be"
    if line["kind"] not in KINDS or line["order"] not in ORDERS:
        return f"kind {line['kind']!r} with order {line['order']!r} is unknown"
    return None


def settle(runs, kind, place):
    """Writes down what became of the first of these runs that waits for it. Says if there was one."""
    for run in runs:
        if kind in ("end", "nack") and run.done is None:
            run.done, run.nacked = place, kind == "nack"
            return True
        if kind in ("acked", "fenced") and run.done is not None and run.fate is None:
            run.fate = kind
            return True
    return False


def mark_stale(runs):
    """A start under a term that the partition has left behind."""
    highest = {}
    for run in runs:
        run.stale = run.term < highest.get(run.partition, 0)
        highest[run.partition] = max(run.term, highest.get(run.partition, 0))


# The checks. Each yields (name of the violation, what shows it).


def check_terms(runs):
    """Terms ascend in the order of their first starts, and each has one worker."""
    highest, owners = {}, {}
    for run in runs:
        term = (run.partition, run.term)
        if term not in owners:
            if run.term < highest.get(run.partition, 0):
                yield "term_order", run.shown() | {"highest": highest[run.partition]}
            owners[term] = run.file
        elif owners[term] != run.file:
            yield "term_shared", run.shown()
        highest[run.partition] = max(run.term, highest.get(run.partition, 0))


def check_order(runs, first_sequence):
    """The first starts of an entity's strict events ascend without holes, gaps included."""
    epochs, started = {}, set()
    lanes = {}
    for run in runs:
        if run.order in ("late", "replay"):
            continue
        epoch = epochs.get(run.entity, 0)
        epochs[run.entity] = max(epoch, run.epoch)
        lane = lanes.setdefault((run.entity, run.epoch), {"next": first_sequence, "passed": []})
        if run.order == "passed":
            # Without a promise of order; it counts as there for what comes after it.
            at = bisect.bisect_left(lane["passed"], run.sequence)
            if lane["passed"][at:at + 1] != [run.sequence]:
                lane["passed"].insert(at, run.sequence)
            continue
        if run.delivery in started:
            # Run again: right only while it is the latest of its entity.
            if run.sequence + 1 < lane["next"] or run.epoch < epoch:
                yield "went_back", run.shown() | {"next": lane["next"]}
            continue
        started.add(run.delivery)
        if run.epoch < epoch:
            yield "epoch_order", run.shown() | {"epoch_before": epoch}
        if run.sequence < lane["next"] or (run.first < lane["next"] and not lane["passed"]):
            yield "order", run.shown() | {"next": lane["next"]}
        elif missing := missing_between(lane["passed"], lane["next"], run.first):
            yield "hole", run.shown() | missing
        lane["next"] = max(lane["next"], run.sequence + 1)


def missing_between(passed, start, end):
    """What of start..end-1 is not among the sorted sequences; None if nothing is missing."""
    there = passed[bisect.bisect_left(passed, start):bisect.bisect_left(passed, end)]
    if end - start <= len(there):
        return None
    first = start
    for sequence in there:
        if sequence != first:
            break
        first += 1
    return {"first_missing": first, "missing": end - start - len(there)}


def check_overlap(runs, ends):
    """While a delivery runs no other of its entity starts, unless its lease was lost."""
    running = collections.defaultdict(list)
    for run in runs:
        still = []
        for other in running[run.entity]:
            if other.done is not None and other.done < run.started:
                continue
            # A run without an end was cut off if its worker wrote nothing any more.
            if other.done is None and ends[other.file] < run.started:
                continue
            if run.term <= other.term:
                yield "overlap", run.shown() | {"running": other.shown()}
            still.append(other)
        running[run.entity] = still + [run]


def check_acks(runs):
    """Nothing is run again after its ack."""
    acked = {}
    for run in runs:
        before = acked.get(run.delivery)
        if before:
            yield "run_after_ack", run.shown() | {"acked": before.shown()}
            if run.fate == "acked" and run.term != before.term:
                yield "acked_twice", run.shown() | {"acked": before.shown()}
        elif run.fate == "acked":
            acked[run.delivery] = run


def check_fences(runs):
    """An ack is sent after its run's end: it must be refused if by then a higher term had started."""
    rises = collections.defaultdict(list)  # of a partition: where each higher term first started
    for run in runs:
        if not rises[run.partition] or run.term > rises[run.partition][-1][1]:
            rises[run.partition].append((run.started, run.term))
    for run in runs:
        if run.fate == "acked" and run.done is not None:
            at = bisect.bisect_left(rises[run.partition], (run.done,)) - 1
            if at >= 0 and rises[run.partition][at][1] > run.term:
                yield "acked_by_fenced", run.shown() | {"highest": rises[run.partition][at][1]}


def check_produced(runs, produced):
    """Whatever was delivered was produced. What is replayed may be of another time."""
    seen = set()
    for run in runs:
        if run.order not in ("gap", "replay") and run.event not in produced and run.event not in seen:
            seen.add(run.event)
            yield "never_produced", run.shown()


def fates(runs):
    """Of each event the best that became of it: acked, unknown (handled; its ack's fate was
    not heard of), or unfinished."""
    best = {}
    rank = {"unfinished": 0, "unknown": 1, "acked": 2}
    for run in runs:
        if run.order in ("gap", "replay"):
            continue
        fate = "unfinished"
        if run.done is not None and not run.nacked and run.fate != "fenced":
            fate = "acked" if run.fate == "acked" else "unknown"
        if rank[fate] >= rank[best.get(run.event, "unfinished")]:
            best[run.event] = fate
    return best


def check_lost(runs, produced, best, final):
    """Every accepted event was handled. Before the end, one may be given up by a gap, or
    wait with all that follows it because it failed or was cut off."""
    gaps, waiting = collections.defaultdict(list), {}
    for run in runs:
        if run.order == "gap":
            gaps[run.entity, run.epoch].append((run.first, run.sequence))
        elif best.get(run.event) == "unfinished":
            waiting[run.entity] = min(waiting.get(run.entity, run.event), run.event)
    for event in sorted(produced):
        entity, epoch, sequence = event
        if best.get(event, "unfinished") != "unfinished":
            continue
        if not final:
            if any(first <= sequence <= last for first, last in gaps[entity, epoch]):
                continue
            if entity in waiting and waiting[entity] <= event:
                continue
        yield "lost", {"entity": entity, "epoch": epoch, "sequence": sequence, "started": event in best}


def check(produced, sinks, first_sequence=0, final=False, suspended=False):
    """The report, as a dictionary."""
    runs, ends = read_sinks(sinks)
    mark_stale(runs)
    in_force = [run for run in runs if not (suspended and run.stale)]
    best = fates(runs)
    found = collections.defaultdict(lambda: {"count": 0, "examples": []})
    checks = [
        check_terms(in_force),
        check_order(in_force, first_sequence),
        check_overlap(in_force, ends),
        check_acks(in_force),
        check_fences(runs),
        check_produced(runs, produced),
        check_lost(runs, produced, best, final),
    ]
    for violations in checks:
        for name, example in violations:
            found[name]["count"] += 1
            if len(found[name]["examples"]) < EXAMPLES_MAX:
                found[name]["examples"].append(example)
    return counts(produced, runs, ends, best) | {"violations": dict(found), "ok": not found}


def counts(produced, runs, ends, best):
    """What happened, in numbers."""
    last, duplicates = {}, 0
    attempts, orders, terms = collections.Counter(), collections.Counter(), collections.defaultdict(set)
    for run in runs:
        before = last.get(run.delivery)
        # After a nack it is another attempt; otherwise it was run and its ack did not count.
        duplicates += before is not None and not before.nacked and before.fate != "acked"
        last[run.delivery] = run
        attempts[run.attempt] += 1
        orders[run.order] += 1
        terms[run.partition].add(run.term)
    fate = collections.Counter(best.get(event, "never started") for event in produced)
    return {
        "events": len(produced),
        "entities": len({entity for entity, _, _ in produced}),
        "workers": len(ends),
        "deliveries": len(runs),
        "orders": {order: orders[order] for order in ORDERS},
        "acked": fate["acked"],
        "ended_ack_unknown": fate["unknown"],
        "unfinished": fate["unfinished"],
        "never_started": fate["never started"],
        "duplicates": duplicates,
        "stale_starts": sum(run.stale for run in runs),
        "fenced": sum(run.fate == "fenced" for run in runs),
        "nacks": sum(run.nacked for run in runs),
        "attempts": {str(attempt): attempts[attempt] for attempt in sorted(attempts)},
        "take_overs": sum(len(of_partition) - 1 for of_partition in terms.values()),
    }


def main(arguments=None):
    names = "\n".join(f"  {name:<16} {meaning}" for name, meaning in VIOLATIONS.items())
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"violations:\n{names}\n\nexit codes: 0 nothing is wrong, 1 violations, 2 the input is unusable",
    )
    parser.add_argument("--produced", required=True, metavar="FILE", help="the producer's journal")
    parser.add_argument("--first-sequence", type=int, default=0, metavar="N", help="with which every epoch begins (0)")
    parser.add_argument("--final", action="store_true", help="all work is done: every event must have been handled, and "
                        "one that was given up by a gap, or still waits for its next attempt, counts as lost")
    parser.add_argument("--suspended", action="store_true", help="workers or sidecars were suspended: a worker that "
                        "starts something under a term that is over is counted (stale_starts) and forgiven, unless "
                        "its ack was taken")
    parser.add_argument("sinks", nargs="+", metavar="JOURNAL", help="a worker's journal")
    args = parser.parse_args(arguments)
    try:
        report = check(read_producer(args.produced), args.sinks, args.first_sequence, args.final, args.suspended)
    except Unusable as unusable:
        print(f"check: {unusable}", file=sys.stderr)
        return 2
    json.dump(report, sys.stdout, indent=2)
    print()
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
