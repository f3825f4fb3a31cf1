"""Makes the journals of a group that does everything right: several workers that are
killed and replaced, handlers that fail, gaps, epochs, late events. It simulates the
promise, not the project; tests break what it makes, line by line.
"""

import json
import random

PARTITIONS = 3
ENTITIES = 12
EVENTS = 8


class Group:
    """One run of a group. `sinks` holds each worker's lines, `produced` the producer's."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.now = 1_763_300_000_000_000_000
        self.sinks, self.produced = {}, []
        self.owner, self.term = {}, {}
        for partition in range(PARTITIONS):
            self.take_over(partition)

    def take_over(self, partition):
        """The partition's worker is gone; another one, with a journal of its own, has it."""
        worker = f"w{len(self.sinks)}"
        self.sinks[worker] = []
        self.owner[partition] = worker
        self.term[partition] = self.term.get(partition, 1_763_300_000_000) + self.random.randint(1, 5000)

    def write(self, kind, delivery):
        self.now += self.random.randint(1, 1_000_000)
        partition = delivery["partition"]
        place = {"kind": kind, "at": self.now, "worker": self.owner[partition], "term": self.term[partition]}
        self.sinks[self.owner[partition]].append(place | delivery)

    def deliver(self, delivery):
        """Until it is acknowledged: it may fail, and its worker may die at any point."""
        attempt = 1
        while True:
            delivery = delivery | {"attempt": attempt}
            luck = self.random.random()
            self.write("start", delivery)
            if luck < 0.05:  # killed while it runs
                self.take_over(delivery["partition"])
            elif luck < 0.15:
                self.write("nack", delivery)
                attempt += 1
            elif luck < 0.20:  # killed with its ack under way: it did not arrive
                self.write("end", delivery)
                self.take_over(delivery["partition"])
            elif luck < 0.25:  # suspended: another has the partition, and runs it first
                self.suspend(delivery)
                return
            elif luck < 0.30:  # killed with its ack under way: it did arrive
                self.write("end", delivery)
                self.take_over(delivery["partition"])
                return
            else:
                self.write("end", delivery)
                self.write("acked", delivery)
                return

    def suspend(self, delivery):
        """Its worker is found alive after the take-over: what it answers is fenced."""
        partition = delivery["partition"]
        old = (self.owner[partition], self.term[partition])
        self.take_over(partition)
        new = (self.owner[partition], self.term[partition])
        for kind, (worker, term) in (("start", new), ("end", old), ("fenced", old), ("end", new), ("acked", new)):
            self.owner[partition], self.term[partition] = worker, term
            self.write(kind, delivery)


def clean(seed):
    """A group whose entities take turns at random."""
    group = Group(seed)
    waiting = {}
    for number in range(ENTITIES):
        partition = number % PARTITIONS
        events = [event(f"e{number}", partition, 0, sequence) for sequence in range(EVENTS)]
        if number % 4 == 1:  # given up, and then it came
            events[3:5] = [event(f"e{number}", partition, 0, 4, "gap", {"from": 3}),
                           event(f"e{number}", partition, 0, 3, "late"), event(f"e{number}", partition, 0, 4, "late")]
        if number % 4 == 2:  # begun anew
            events += [event(f"e{number}", partition, 1, sequence) for sequence in range(3)]
        if number % 4 == 3:  # the partition is degraded
            events[2:4] = [event(f"e{number}", partition, 0, 3, "passed"), event(f"e{number}", partition, 0, 2, "passed")]
        waiting[number] = events
    while waiting:
        number = group.random.choice(sorted(waiting))
        delivery = waiting[number].pop(0)
        if not waiting[number]:
            del waiting[number]
        if delivery["order"] != "gap":
            group.produced.append({field: delivery[field] for field in ("entity", "epoch", "sequence")})
        group.deliver(delivery)
    return group


def event(entity, partition, epoch, sequence, order="strict", more=None):
    delivery = {"partition": partition, "entity": entity, "epoch": epoch, "sequence": sequence, "order": order}
    return delivery | {"id": f"{epoch}{sequence}-{order}"} | (more or {})


def write(path, lines):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
