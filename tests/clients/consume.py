"""A worker in Python: receives events of a topic over gRPC, in order, and answers each.

Events of different entities are handled at the same time, up to --in-flight; of one
entity there is never more than one. SIGTERM ends it: it finishes what it has begun. What
it does is written to a journal (tests/checker/check.py describes it), which a worker of
your own does not need. It handles nothing: put your work where `handle` sleeps.

  target/clients/venv/bin/python tests/clients/consume.py --target 127.0.0.1:7401 \\
      --topic evaluations --group storage --consumer w1 --journal w1.jsonl
"""

import argparse
import asyncio
import json
import random
import signal
import sys
import time

import grpc
from seriatim.v1 import delivery_pb2 as pb, delivery_pb2_grpc

BACKOFF_FIRST_S, BACKOFF_MAX_S = 0.1, 5.0
CLOSE_WITHIN_S = 10.0
# Trying again does not help then. All else is tried again: a connection that breaks shows as UNAVAILABLE,
# or as INTERNAL, CANCELLED or UNKNOWN, depending on the library and on how it broke.
HOPELESS = {
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
}
CHANNEL = [
    # A sidecar that comes back is found within seconds, and one that hangs is left.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
]


class Worker:
    def __init__(self, args):
        self.args = args
        self.random = random.Random(args.seed)
        self.journal = open(args.journal, "ab", buffering=0)
        self.stopping = asyncio.Event()

    async def run(self):
        """Subscribes again and again until it is told to stop."""
        for name in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(name, self.stopping.set)
        backoff = BACKOFF_FIRST_S
        async with grpc.aio.insecure_channel(self.args.target, CHANNEL) as channel:
            while not self.stopping.is_set():
                stream = Stream(self, delivery_pb2_grpc.DeliveryStub(channel))
                try:
                    await stream.run()
                except grpc.aio.AioRpcError as error:
                    if error.code() in HOPELESS:
                        raise
                backoff = BACKOFF_FIRST_S if stream.has_received else min(2 * backoff, BACKOFF_MAX_S)
                await self.pause(backoff * random.uniform(0.5, 1.0))

    async def pause(self, seconds):
        try:
            await asyncio.wait_for(self.stopping.wait(), seconds)
        except asyncio.TimeoutError:
            pass

    async def handle(self, delivered):
        """The work. It may run twice for the same event; if it raises, it will."""
        await asyncio.sleep(self.random.uniform(0, self.args.handler_ms) / 1000)
        if self.random.uniform(0, 100) < self.args.nack_percent:
            raise RuntimeError("failed, as --nack-percent asks for")

    def note(self, kind, delivered):
        line = {
            "kind": kind, "at": time.time_ns(), "worker": self.args.consumer,
            "partition": delivered.partition, "term": delivered.term, "entity": delivered.entity,
            "epoch": delivered.epoch, "sequence": delivered.sequence, "order": delivered.order,
            "attempt": delivered.attempt, "id": delivered.stream_id,
        }
        if delivered.order == "gap":
            line["from"] = getattr(delivered, "from")  # a word of Python
        self.journal.write(json.dumps(line).encode() + b"\n")  # one write: whole or not at all


class Stream:
    """One subscription: the worker's life as the group sees it. When it ends, whatever was
    not answered on it is delivered again, perhaps to somebody else."""

    def __init__(self, worker, stub):
        self.worker, self.stub = worker, stub
        self.requests = asyncio.Queue()
        self.open = {}  # by their number: deliveries without an answer that is known to be stored
        self.handlers = set()
        self.has_received = False

    async def run(self):
        args = self.worker.args
        subscribe = pb.Subscribe(
            topic=args.topic, group=args.group, consumer=args.consumer, in_flight_max=args.in_flight
        )
        self.requests.put_nowait(pb.ConsumeRequest(subscribe=subscribe))
        call = self.stub.Consume(self.to_send())
        stop = asyncio.create_task(self.stop(call))
        try:
            async for response in call:
                self.receive(response)
        finally:
            # Handlers that have begun finish, or they would run beside their own repetition.
            await asyncio.gather(*self.handlers)
            stop.cancel()

    async def to_send(self):
        while (request := await self.requests.get()) is not None:
            yield request

    def receive(self, response):
        self.has_received = True
        for delivered in response.deliveries:
            if self.worker.stopping.is_set():
                continue  # not begun: it is delivered again
            self.open[delivered.delivery] = delivered
            handler = asyncio.create_task(self.serve(delivered))
            self.handlers.add(handler)
            handler.add_done_callback(self.handlers.discard)
        for kind, numbers in (("acked", response.acked), ("fenced", response.fenced)):
            for number in numbers:
                if number in self.open:
                    self.worker.note(kind, self.open.pop(number))

    async def serve(self, delivered):
        self.worker.note("start", delivered)
        try:
            await self.worker.handle(delivered)
        except Exception as error:
            self.worker.note("nack", delivered)
            nack = pb.Nack(delivery=delivered.delivery, reason=str(error))
            self.requests.put_nowait(pb.ConsumeRequest(nack=nack))
            del self.open[delivered.delivery]  # nothing says that a nack is stored
        else:
            self.worker.note("end", delivered)
            self.requests.put_nowait(pb.ConsumeRequest(ack=pb.Ack(delivery=delivered.delivery)))

    async def stop(self, call):
        """When it is time: takes no more, waits until all acks are stored, and closes."""
        await self.worker.stopping.wait()
        self.requests.put_nowait(pb.ConsumeRequest(flow=pb.Flow(in_flight_max=0)))
        waited = time.monotonic()
        while (self.open or self.handlers) and time.monotonic() - waited < CLOSE_WITHIN_S:
            await asyncio.sleep(0.01)
        self.requests.put_nowait(None)
        await asyncio.sleep(CLOSE_WITHIN_S)
        call.cancel()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True, metavar="HOST:PORT", help="the sidecar")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True, help="who shares the work")
    parser.add_argument("--consumer", required=True, help="this worker's name")
    parser.add_argument("--journal", required=True, metavar="FILE", help="is appended to; one for each process")
    parser.add_argument("--in-flight", type=int, default=64, help="deliveries that may be unanswered (64)")
    parser.add_argument("--handler-ms", type=float, default=0, help="each takes a random time up to this (0)")
    parser.add_argument("--nack-percent", type=float, default=0, help="so many of a hundred fail (0)")
    parser.add_argument("--seed", type=int, help="repeats the same random choices")
    args = parser.parse_args()
    try:
        asyncio.run(Worker(args).run())
    except grpc.aio.AioRpcError as error:
        sys.exit(f"{error.code().name}: {error.details()}")
    except asyncio.CancelledError:
        pass  # the sidecar did not close its side in time


if __name__ == "__main__":
    main()
