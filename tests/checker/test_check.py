"""The checker's own test: journals of a group that did everything right pass, and one
that was broken in a single way is found out, by the name of what was broken.

  python3 -m unittest discover -s tests/checker
"""

import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import check
import journals

SEEDS = range(1, 21)


def run_check(group, *options, cut=False):
    """Exit code and report for these journals."""
    with tempfile.TemporaryDirectory() as folder:
        produced = pathlib.Path(folder, "produced.jsonl")
        journals.write(produced, group.produced)
        sinks = []
        for worker, lines in group.sinks.items():
            sinks.append(pathlib.Path(folder, f"{worker}.jsonl"))
            journals.write(sinks[-1], lines)
        if cut:
            with open(sinks[-1], "a", encoding="utf-8") as file:
                file.write('{"kind":"sta')
        return main("--produced", produced, *options, *sinks)


def main(*arguments):
    """What the program does with these arguments, without the time that a process takes."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
        code = check.main([str(argument) for argument in arguments])
    return code, json.loads(said.getvalue() or "null")


def lines_of(group, kind, order="strict"):
    """All lines of a kind, with the journal and place they stand in."""
    for journal in group.sinks.values():
        for place, line in enumerate(journal):
            if line["kind"] == kind and line["order"] == order:
                yield journal, place, line


def lines_about(group, like):
    """All lines about the same event."""
    same = ("entity", "epoch", "sequence", "order")
    return [(journal, line) for journal in group.sinks.values() for line in journal
            if all(line[field] == like[field] for field in same)]


def forget(group, like):
    """As if this event had never been delivered."""
    for journal, line in lines_about(group, like):
        journal.remove(line)


def swap(group, one, other):
    """As if these two had been delivered in each other's place."""
    lines, others = lines_about(group, one), lines_about(group, other)
    identity = ("epoch", "sequence", "id")
    of_one, of_other = ({field: line[field] for field in identity} for line in (one, other))
    for _, line in lines:
        line |= of_other
    for _, line in others:
        line |= of_one


def later(line, nanoseconds, **changes):
    return line | {"at": line["at"] + nanoseconds} | changes


def last_at(group):
    return max(line["at"] for journal in group.sinks.values() for line in journal)


def quiet(group, sequence, order="strict", entity=None):
    """An event's acked line whose event was delivered once, without trouble."""
    for journal, place, line in lines_of(group, "acked", order):
        if line["sequence"] == sequence and entity in (None, line["entity"]) and len(lines_about(group, line)) == 3:
            return journal, place, line
    raise LookupError("this seed has no such event")


class Checker(unittest.TestCase):
    def broken(self, breaking, *options):
        """Breaks a clean group with each seed; where it could be done, it must be found."""
        name = self.name
        done = 0
        for seed in SEEDS:
            group = journals.clean(seed)
            try:
                breaking(group)
            except LookupError:
                continue
            done += 1
            code, report = run_check(group, *options)
            self.assertEqual(code, 1, f"seed {seed}: {name} was not found")
            self.assertIn(name, report["violations"], f"seed {seed}")
            self.assertTrue(report["violations"][name]["examples"])
            self.assertFalse(report["ok"])
        self.assertGreater(done, len(SEEDS) // 2, "too few seeds have what is to be broken")

    def setUp(self):
        self.name = self._testMethodName.removeprefix("test_finds_")


class CleanJournals(Checker):
    def test_pass(self):
        total = {"duplicates": 0, "fenced": 0, "nacks": 0, "take_overs": 0, "ended_ack_unknown": 0}
        for seed in SEEDS:
            for options in ([], ["--final"], ["--suspended"]):
                code, report = run_check(journals.clean(seed), *options)
                self.assertEqual((code, report["violations"]), (0, {}), f"seed {seed} {options}")
            self.assertEqual(report["events"], len(journals.clean(seed).produced))
            self.assertEqual(report["acked"] + report["ended_ack_unknown"], report["events"])
            self.assertEqual(sum(report["attempts"].values()), report["deliveries"])
            for what in total:
                total[what] += report[what]
        self.assertNotIn(0, total.values(), f"the journals are too tame: {total}")

    def test_may_end_in_a_line_that_was_cut_off(self):
        self.assertEqual(run_check(journals.clean(1), cut=True)[0], 0)

    def test_the_program_says_how_it_is_used(self):
        done = subprocess.run([sys.executable, check.__file__, "--help"], capture_output=True, text=True, check=True)
        for word in [*check.VIOLATIONS, "--final", "--suspended", "exit codes"]:
            self.assertIn(word, done.stdout)

    def test_unusable_input_is_told(self):
        for bad in ("{", "[]", '{"kind":"start"}', '{"kind":"begin"}'):
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder, "sink.jsonl")
                path.write_text(bad + "\n\n{}\n", encoding="utf-8")
                self.assertEqual(main("--produced", path, path), (2, None), bad)
                path.write_text("", encoding="utf-8")
                self.assertEqual(main("--produced", path, path.with_name("absent")), (2, None))
        group = journals.clean(1)
        journal, place, _ = next(lines_of(group, "start"))
        del journal[place]
        self.assertEqual(run_check(group)[0], 2)

    def test_what_waits_is_lost_only_at_the_end(self):
        group = journals.clean(1)
        journal, place, line = quiet(group, 7)
        journal[place - 1]["kind"] = "nack"
        del journal[place]
        self.assertEqual(run_check(group)[0], 0)
        code, report = run_check(group, "--final")
        self.assertEqual((code, list(report["violations"])), (1, ["lost"]))

    def test_what_was_given_up_is_lost_only_at_the_end(self):
        group = journals.clean(1)
        for _, _, line in list(lines_of(group, "start", "late")):
            forget(group, line)
        self.assertEqual(run_check(group)[0], 0)
        code, report = run_check(group, "--final")
        self.assertEqual((code, list(report["violations"])), (1, ["lost"]))

    def test_a_suspended_worker_may_start_late_but_not_be_acknowledged(self):
        group = journals.clean(1)
        taken = next(line for _, _, line in lines_of(group, "acked")
                     if {other["term"] for _, other in lines_about(group, line)} > {line["term"]})
        old = next(line for _, line in lines_about(group, taken) if line["term"] < taken["term"])
        at = last_at(group)
        journal = group.sinks[old["worker"]]
        journal += [old | {"kind": kind, "at": at + more, "attempt": 9} for more, kind in enumerate(["start", "end"])]
        self.assertEqual(run_check(group)[0], 1)
        code, report = run_check(group, "--suspended")
        self.assertEqual((code, report["stale_starts"]), (0, 1), report["violations"])
        journal.append(journal[-1] | {"kind": "acked", "at": at + 9})
        code, report = run_check(group, "--suspended")
        self.assertEqual((code, list(report["violations"])), (1, ["acked_by_fenced"]))


class BrokenJournals(Checker):
    def test_finds_lost(self):
        self.broken(lambda group: forget(group, quiet(group, 7)[2]))
        self.broken(lambda group: forget(group, quiet(group, 7)[2]), "--final")

    def test_finds_never_produced(self):
        def breaking(group):
            gone = quiet(group, 5)[2]
            group.produced.remove({field: gone[field] for field in ("entity", "epoch", "sequence")})
        self.broken(breaking)

    def test_finds_hole(self):
        self.broken(lambda group: forget(group, quiet(group, 5)[2]))
        # The gap that was delivered makes the difference.
        self.broken(lambda group: forget(group, quiet(group, 4, "gap")[2]))
        # Of what passed without order nothing may be missing either.
        self.broken(lambda group: forget(group, quiet(group, 2, "passed")[2]))

    def test_finds_order(self):
        def breaking(group):
            line = quiet(group, 5)[2]
            swap(group, line, quiet(group, 6, entity=line["entity"])[2])
        self.broken(breaking)

    def test_finds_epoch_order(self):
        def breaking(group):
            for entity in ("e2", "e6", "e10"):
                acked = {(line["epoch"], line["sequence"]): line for _, _, line in lines_of(group, "acked")
                         if line["entity"] == entity}
                if (0, 7) in acked and (1, 0) in acked:
                    return swap(group, acked[0, 7], acked[1, 0])
            raise LookupError
        self.broken(breaking)

    def test_finds_went_back(self):
        def breaking(group):
            journal, place, line = quiet(group, 4)
            del journal[place]  # its ack was not heard of
            follower = quiet(group, 5, entity=line["entity"])
            follower[0].insert(follower[1] + 1, later(line, follower[2]["at"] - line["at"], kind="start",
                               term=follower[2]["term"], worker=follower[2]["worker"]))
        self.broken(breaking)

    def test_finds_overlap(self):
        def breaking(group):
            journal, place, line = quiet(group, 5)
            end, start = journal[place - 1], journal[place - 2]
            # It takes until after the next one's start.
            following = next(other for _, _, other in lines_of(group, "start")
                             if other["entity"] == line["entity"] and other["sequence"] == 6)
            if following["term"] != line["term"] or start["kind"] != "start":
                raise LookupError
            at = journal.index(following)
            for moved in (end, line):
                moved["at"] = following["at"]
                journal.remove(moved)
            journal[at - 1:at - 1] = [end, line]
        self.broken(breaking)

    def test_finds_run_after_ack(self):
        def breaking(group):
            journal, place, line = quiet(group, 7)
            journal.insert(place + 1, later(line, 1, kind="start"))
        self.broken(breaking)

    def test_finds_acked_twice(self):
        def breaking(group):
            line = quiet(group, 7)[2]
            at = last_at(group)
            again = [line | {"kind": kind, "at": at + 1, "worker": "new", "term": line["term"] + 10**9}
                     for kind in ("start", "end", "acked")]
            group.sinks["new"] = again
        self.broken(breaking)

    def test_finds_acked_by_fenced(self):
        def breaking(group):
            journal, place, line = next(lines_of(group, "fenced"), (None, None, None))
            if line is None:
                raise LookupError
            line["kind"] = "acked"
        self.broken(breaking)

    def test_finds_term_order(self):
        def breaking(group):
            last = max((line for _, _, line in lines_of(group, "start")), key=lambda line: line["at"])
            for line in group.sinks[last["worker"]]:
                line["term"] = 1
        self.broken(breaking)

    def test_finds_term_shared(self):
        def breaking(group):
            workers = {}
            for _, _, line in sorted(lines_of(group, "start"), key=lambda found: found[2]["at"]):
                workers.setdefault(line["partition"], {})[line["worker"]] = line["term"]
            first, second = list(workers[0])[:2]
            for line in group.sinks[second]:
                line["term"] = workers[0][first]
        self.broken(breaking)

    def test_every_violation_has_its_test(self):
        tested = {name.removeprefix("test_finds_") for name in dir(self) if name.startswith("test_finds_")}
        self.assertEqual(tested, set(check.VIOLATIONS))


if __name__ == "__main__":
    unittest.main()
