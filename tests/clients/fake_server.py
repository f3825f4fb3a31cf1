"""Stands in for a sidecar in the tests of the clients: delivers made-up events as the
contract says (proto/seriatim/v1/delivery.proto), and misbehaves when it is told to.

It orders nothing and stores nothing. One stream at a time has all partitions; the next
stream takes them over, under a higher term.
"""

import asyncio

import grpc
from seriatim.v1 import delivery_pb2 as pb, delivery_pb2_grpc

PARTITIONS = 4


class Lane:
    """One entity: what is delivered next, and whether it is under way."""

    def __init__(self, entity, partition, events):
        self.entity, self.partition, self.events = entity, partition, events
        self.next, self.attempt, self.under_way = 0, 1, False


class FakeSidecar(delivery_pb2_grpc.DeliveryServicer):
    def __init__(self, entities, events, gaps=()):
        self.lanes = [Lane(f"e{number}", number % PARTITIONS, events) for number in range(entities)]
        self.gaps = set(gaps)  # sequences that are delivered as a gap, in every lane
        self.term = 1_763_300_000_000
        self.breaks = []  # of each stream to come: after how many deliveries it breaks
        self.fences = 0  # acks that are to be refused
        self.subscribed, self.flows, self.half_closed = [], [], 0
        self.unanswered_max = 0
        self.server, self.port = None, 0

    async def start(self):
        self.server = grpc.aio.server()
        delivery_pb2_grpc.add_DeliveryServicer_to_server(self, self.server)
        self.port = self.server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self.server.start()

    async def stop(self):
        await self.server.stop(None)

    @property
    def produced(self):
        """What a producer would have written down."""
        return [{"entity": lane.entity, "epoch": 0, "sequence": sequence}
                for lane in self.lanes for sequence in range(lane.events) if sequence not in self.gaps]

    @property
    def is_done(self):
        return all(lane.next == lane.events for lane in self.lanes)

    async def Consume(self, _, context):
        first = await context.read()
        if first is grpc.aio.EOF or first.WhichOneof("request") != "subscribe":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "subscribe first")
        if first.subscribe.topic == "absent":
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such topic: absent")
        self.subscribed.append(first.subscribe)
        self.term += 1
        for lane in self.lanes:
            lane.under_way = False
        stream = Stream(self, context, first.subscribe.in_flight_max or 64)
        breaks_after = self.breaks.pop(0) if self.breaks else None
        reader = asyncio.create_task(stream.read())
        try:
            while not stream.is_closed:
                await stream.deliver()
                if breaks_after is not None and stream.number >= breaks_after:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "the sidecar stops")
                await stream.changed.wait()
                stream.changed.clear()
        finally:
            reader.cancel()


class Stream:
    def __init__(self, sidecar, context, credit):
        self.sidecar, self.context, self.credit = sidecar, context, credit
        self.number, self.unanswered = 0, {}
        self.next_response = pb.ConsumeResponse()
        self.changed, self.is_closed = asyncio.Event(), False

    async def deliver(self):
        """Whatever the credit allows, and what became of acks, in one message."""
        response, self.next_response = self.next_response, pb.ConsumeResponse()
        for lane in self.sidecar.lanes:
            if lane.under_way or lane.next == lane.events or len(self.unanswered) >= self.credit:
                continue
            self.number += 1
            lane.under_way = True
            self.unanswered[self.number] = lane
            response.deliveries.append(self.delivered(lane))
        self.sidecar.unanswered_max = max(self.sidecar.unanswered_max, len(self.unanswered))
        if response.ByteSize():
            await self.context.write(response)

    def delivered(self, lane):
        delivered = pb.Delivered(
            delivery=self.number, entity=lane.entity, sequence=lane.next, order="strict", attempt=lane.attempt,
            partition=lane.partition, term=self.sidecar.term, stream_id=f"{lane.next + 1}-0", type="step", attrs="{}",
        )
        if lane.next in self.sidecar.gaps:
            delivered.order, delivered.reason = "gap", "timeout"
            setattr(delivered, "from", lane.next)
        return delivered

    async def read(self):
        """Answers, until the worker closes its side."""
        while (request := await self.context.read()) is not grpc.aio.EOF:
            kind = request.WhichOneof("request")
            if kind == "flow":
                self.credit = request.flow.in_flight_max
                self.sidecar.flows.append(self.credit)
            elif kind == "ack":
                self.acknowledge(request.ack.delivery)
            elif kind == "nack":
                lane = self.unanswered.pop(request.nack.delivery)
                lane.attempt, lane.under_way = lane.attempt + 1, False
            self.changed.set()
        self.sidecar.half_closed += 1
        self.is_closed = True
        self.changed.set()

    def acknowledge(self, number):
        lane = self.unanswered.pop(number)
        lane.under_way = False
        if self.sidecar.fences:
            # As if the partition had changed hands twice, and come back.
            self.sidecar.fences -= 1
            self.sidecar.term += 1
            self.next_response.fenced.append(number)
        else:
            lane.next, lane.attempt = lane.next + 1, 1
            self.next_response.acked.append(number)
