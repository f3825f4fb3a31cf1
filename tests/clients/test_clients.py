"""The workers of this folder against a sidecar that is made up: deliveries flow, answers
arrive, credit is kept, a broken stream is opened again, SIGTERM ends cleanly. What the
real sidecar does is tested elsewhere.

  target/clients/venv/bin/python -m unittest discover -s tests/clients
"""

import asyncio
import json
import os
import pathlib
import signal
import sys
import tempfile
import unittest

from fake_server import PARTITIONS, FakeSidecar

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
BOUND_S = 60


class Worker:
    """A worker as a child process."""

    def __init__(self, program, folder):
        self.program, self.journal, self.process = program, pathlib.Path(folder, "w1.jsonl"), None

    async def start(self, port, *options, topic="jobs"):
        self.process = await asyncio.create_subprocess_exec(
            *self.program, "--target", f"127.0.0.1:{port}", "--topic", topic, "--group", "g", "--consumer", "w1",
            "--journal", self.journal, "--seed", "7", *options, stderr=asyncio.subprocess.PIPE,
            # The library's remarks about connections that end are not the worker's complaints.
            env=os.environ | {"NODE_PATH": str(ROOT / "target/clients/node_modules"), "GRPC_VERBOSITY": "ERROR"},
        )

    async def stop(self):
        """SIGTERM; returns its exit code and what it complained of."""
        self.process.send_signal(signal.SIGTERM)
        return await self.ended()

    async def ended(self):
        _, complaints = await asyncio.wait_for(self.process.communicate(), BOUND_S)
        return self.process.returncode, complaints.decode()

    def lines(self, kind=None):
        # The last line may be half written while the worker runs.
        whole, _, _ = self.journal.read_text(encoding="utf-8").rpartition("\n")
        lines = [json.loads(line) for line in whole.splitlines()]
        return [line for line in lines if kind in (None, line["kind"])]

    def running_max(self):
        running = highest = 0
        for line in self.lines():
            running += {"start": 1, "end": -1, "nack": -1}.get(line["kind"], 0)
            highest = max(highest, running)
        return highest


async def eventually(what, holds):
    for _ in range(BOUND_S * 100):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"this never happened: {what}")


class Clients:
    """What every client must do; the classes below say which one."""

    async def asyncSetUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.worker = Worker(self.program, folder.name)
        self.addAsyncCleanup(self.clean_up)
        self.sidecar = None

    async def clean_up(self):
        if self.worker.process and self.worker.process.returncode is None:
            self.worker.process.kill()
            await self.worker.process.communicate()
        if self.sidecar:
            await self.sidecar.stop()

    async def begin(self, sidecar, *options):
        self.sidecar = sidecar
        await sidecar.start()
        await self.worker.start(sidecar.port, *options)

    async def checked(self, *options):
        """The checker's report; it must find nothing wrong."""
        produced = pathlib.Path(self.folder, "produced.jsonl")
        produced.write_text("".join(json.dumps(line) + "\n" for line in self.sidecar.produced), encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            sys.executable, ROOT / "tests/checker/check.py", "--produced", produced, *options, self.worker.journal,
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await process.communicate()
        self.assertEqual(process.returncode, 0, said.decode())
        return json.loads(said)

    async def test_deliveries_flow_and_answers_arrive(self):
        sidecar = FakeSidecar(entities=30, events=10, gaps=[4])
        await self.begin(sidecar, "--handler-ms", "5", "--nack-percent", "10")
        await eventually("all is handled", lambda: sidecar.is_done)
        self.assertEqual(await self.worker.stop(), (0, ""))
        self.assertEqual(sidecar.half_closed, 1)
        report = await self.checked("--final")
        self.assertEqual((report["events"], report["acked"]), (270, 270))
        self.assertGreater(report["nacks"], 10)
        self.assertEqual(report["duplicates"], 0)
        self.assertEqual({line["from"] for line in self.worker.lines("acked") if line["order"] == "gap"}, {4})

    async def test_credit_is_kept_and_work_runs_in_parallel(self):
        sidecar = FakeSidecar(entities=30, events=4)
        await self.begin(sidecar, "--in-flight", "3", "--handler-ms", "10")
        await eventually("all is handled", lambda: sidecar.is_done)
        self.assertEqual(await self.worker.stop(), (0, ""))
        self.assertEqual([subscribe.in_flight_max for subscribe in sidecar.subscribed], [3])
        self.assertEqual((sidecar.unanswered_max, self.worker.running_max()), (3, 3))
        await self.checked("--final")

    async def test_a_broken_stream_is_opened_again(self):
        sidecar = FakeSidecar(entities=10, events=20)
        sidecar.breaks = [40, 1, 60]
        await self.begin(sidecar, "--handler-ms", "5")
        await eventually("all is handled", lambda: sidecar.is_done)
        self.assertEqual(await self.worker.stop(), (0, ""))
        self.assertEqual(len(sidecar.subscribed), 4)
        report = await self.checked("--final")
        self.assertGreater(report["duplicates"], 0)
        self.assertEqual(report["take_overs"], 3 * PARTITIONS)

    async def test_a_sidecar_that_is_away_is_waited_for(self):
        sidecar = FakeSidecar(entities=10, events=50)
        await self.begin(sidecar, "--handler-ms", "5")
        await eventually("work has begun", lambda: self.worker.journal.exists() and len(self.worker.lines("acked")) > 20)
        await sidecar.stop()
        before = len(self.worker.lines("acked"))
        await asyncio.sleep(1)  # it tries in vain; whether it does so once or often does not matter
        self.assertIsNone(self.worker.process.returncode)
        await sidecar.start()
        await eventually("work goes on", lambda: len(self.worker.lines("acked")) > before)
        await eventually("all is handled", lambda: sidecar.is_done)
        self.assertEqual(await self.worker.stop(), (0, ""))
        await self.checked("--final")

    async def test_it_can_be_stopped_while_the_sidecar_is_away(self):
        sidecar = FakeSidecar(entities=10, events=50)
        await self.begin(sidecar, "--handler-ms", "5")
        await eventually("work has begun", lambda: self.worker.journal.exists() and self.worker.lines("acked"))
        await sidecar.stop()
        self.assertEqual(await self.worker.stop(), (0, ""))

    async def test_an_answer_that_is_fenced_is_noted(self):
        sidecar = FakeSidecar(entities=10, events=5)
        sidecar.fences = 3
        await self.begin(sidecar)
        await eventually("all is handled", lambda: sidecar.is_done)
        self.assertEqual(await self.worker.stop(), (0, ""))
        self.assertEqual(len(self.worker.lines("fenced")), 3)
        # The made-up fences of one worker raise terms while others run: only order is checked.
        self.assertEqual(len(self.worker.lines("acked")), 50)

    async def test_sigterm_finishes_what_has_begun(self):
        sidecar = FakeSidecar(entities=200, events=5)
        await self.begin(sidecar, "--in-flight", "8", "--handler-ms", "20")
        await eventually("work has begun", lambda: self.worker.journal.exists() and len(self.worker.lines("acked")) > 20)
        self.assertEqual(await self.worker.stop(), (0, ""))
        self.assertFalse(sidecar.is_done)
        self.assertEqual((sidecar.flows, sidecar.half_closed), ([0], 1))
        counted = [len(self.worker.lines(kind)) for kind in ("start", "end", "acked")]
        self.assertEqual(len(set(counted)), 1, f"starts, ends, acks stored: {counted}")

    async def test_what_cannot_succeed_is_not_tried_again(self):
        self.sidecar = FakeSidecar(entities=1, events=1)
        await self.sidecar.start()
        await self.worker.start(self.sidecar.port, topic="absent")
        code, complaints = await self.worker.ended()
        self.assertEqual(code, 1)
        self.assertIn("no such topic: absent", complaints)


class InPython(Clients, unittest.IsolatedAsyncioTestCase):
    program = [sys.executable, HERE / "consume.py"]


class InNode(Clients, unittest.IsolatedAsyncioTestCase):
    program = ["node", HERE / "consume.js"]


if __name__ == "__main__":
    unittest.main()
