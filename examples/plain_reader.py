"""A plain reader in Python: reads a topic's streams with redis-py, in order, without the
worker's side of seriatim. docs/plain-readers.md explains every step.

It reads all partitions, of topics in either layout, handles one entry after the other, and
acknowledges each after handling it. Killed and started again under the same --consumer, it first handles what it
was given before and had not acknowledged; so an event may be handled twice, never too
late. It must be the group's only consumer: it shares nothing, and fences nobody.

  target/clients/venv/bin/python examples/plain_reader.py --topic evaluations --group storage
"""

import argparse
import json
import sys
import time

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

BLOCK_MS = 1000
COUNT = 100


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redis", default="redis://127.0.0.1:6379", help="redis://host:port or unix:///path")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--consumer", default="reader", help="the same one after a restart")
    args = parser.parse_args()
    client = redis.Redis.from_url(
        args.redis,
        retry=Retry(NoBackoff(), 0),  # an XREADGROUP that is sent again skips what the lost reply contained
        socket_timeout=BLOCK_MS / 1000 + 5,
        protocol=2,  # replies as lists, in every version of redis-py
    )
    while True:
        try:
            read(client, args)
        except (redis.ConnectionError, redis.TimeoutError) as error:
            # Entries of a reply that was lost are pending now: begin again, with them.
            print(f"connecting again: {error}", file=sys.stderr)
            time.sleep(1)


def read(client, args):
    """Reads for ever: what is pending first, then what is new."""
    partitions = client.hget(f"seriatim:{{{args.topic}}}:topic", "partitions")
    if partitions is None:
        sys.exit(f"there is no topic {args.topic}")
    streams = [f"seriatim:{{{args.topic}.{partition}}}:events" for partition in range(int(partitions))]
    for stream in streams:
        join(client, stream, args.group)
        after = "0"
        while after:
            after = read_pending(client, stream, args, after)
    while True:
        new = client.xreadgroup(args.group, args.consumer, dict.fromkeys(streams, ">"), count=COUNT, block=BLOCK_MS)
        for stream, entries in new:
            for entry_id, fields in entries:
                handle(stream.decode(), entry_id, fields)
                client.xack(stream, args.group, entry_id)


def join(client, stream, group):
    """Makes the group where it is absent; it begins with the oldest entry."""
    try:
        client.xgroup_create(stream, group, id="0")
    except redis.ResponseError as error:
        if "BUSYGROUP" not in str(error):
            raise


def read_pending(client, stream, args, after):
    """One page of this consumer's pending entries. Returns its last id, or None at the end."""
    for _, entries in client.xreadgroup(args.group, args.consumer, {stream: after}, count=COUNT):
        for entry_id, fields in entries:
            if fields:
                handle(stream, entry_id, fields)
            else:
                print(f"{entry_id.decode()} was removed from {stream} before it was handled", file=sys.stderr)
            client.xack(stream, args.group, entry_id)
        if entries:
            return entries[-1][0]
    return None


def handle(stream, entry_id, fields):
    """The work, for each event of an entry, in order. It may run twice for the same entry."""
    for index, event in enumerate(events_of(fields)):
        entity, epoch, sequence, order, kind, attrs, data = event
        line = {
            "stream": stream,
            "id": entry_id.decode() + (f"#{index}" if index else ""),
            "entity": entity.decode(),
            "epoch": int(epoch),
            "sequence": int(sequence),
            "type": kind.decode(),
            "order": order.decode(),
            "attrs": json.loads(attrs),
            "data": data.decode(errors="replace"),
        }
        print(json.dumps(line), flush=True)


def events_of(fields):
    """The events of an entry: the entry itself in `entry` layout, each of its fields in `batch` layout."""
    if b"entity" in fields:
        return [tuple(fields[name] for name in (b"entity", b"epoch", b"sequence", b"order", b"type", b"attrs", b"data"))]
    named = [(name.split(b":", 4), value) for name, value in fields.items()]
    return [unpacked(*parts, value) for parts, value in sorted(named, key=lambda field: int(field[0][0]))]


def unpacked(_index, epoch, sequence, order, entity, value):
    _tag, kind_length, attrs_length, rest = value.split(b":", 3)
    attrs_at = int(kind_length)
    data_at = attrs_at + int(attrs_length)
    return entity, epoch, sequence, order, rest[:attrs_at], rest[attrs_at:data_at], rest[data_at:]


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
