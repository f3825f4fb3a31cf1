// A plain reader in Node: reads a topic's streams with ioredis, in order, without the
// worker's side of seriatim. docs/plain-readers.md explains every step.
//
// It reads all partitions, of topics in either layout, handles one entry after the other, and
// acknowledges each after handling it. Killed and started again under the same --consumer, it first handles what it
// was given before and had not acknowledged; so an event may be handled twice, never too
// late. It must be the group's only consumer: it shares nothing, and fences nobody.
//
//   NODE_PATH=target/clients/node_modules node examples/plain_reader.js --topic evaluations --group storage
'use strict';

const fs = require('node:fs');
const { parseArgs } = require('node:util');
const { setTimeout: sleep } = require('node:timers/promises');
const { Redis, ReplyError } = require('ioredis');

const BLOCK_MS = 1000;
const COUNT = 100;

const { values: args } = parseArgs({
  options: {
    redis: { type: 'string', default: 'redis://127.0.0.1:6379' }, // or the path of a Unix socket
    topic: { type: 'string' },
    group: { type: 'string' },
    consumer: { type: 'string', default: 'reader' }, // the same one after a restart
  },
});

async function main() {
  if (!args.topic || !args.group) fail('--topic and --group are needed');
  const client = new Redis(args.redis, {
    // No retries: an XREADGROUP that is sent again skips what the lost reply contained.
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    lazyConnect: true,
    retryStrategy: null, // the loop below connects again
  });
  client.on('error', () => {}); // the command that fails says so
  for (;;) {
    try {
      if (client.status !== 'ready') await client.connect();
      await read(client);
    } catch (error) {
      if (error instanceof ReplyError) fail(error.message);
      // Entries of a reply that was lost are pending now: begin again, with them.
      console.error(`connecting again: ${error.message}`);
      await sleep(1000);
    }
  }
}

// Reads for ever: what is pending first, then what is new.
async function read(client) {
  const partitions = await client.hget(`seriatim:{${args.topic}}:topic`, 'partitions');
  if (partitions === null) fail(`there is no topic ${args.topic}`);
  const streams = Array.from({ length: Number(partitions) }, (_, p) => `seriatim:{${args.topic}.${p}}:events`);
  for (const stream of streams) {
    await join(client, stream);
    let after = '0';
    while (after) after = await readPending(client, stream, after);
  }
  const group = ['GROUP', args.group, args.consumer, 'COUNT', COUNT];
  for (;;) {
    const fresh = streams.map(() => '>');
    const reply = await client.xreadgroupBuffer(...group, 'BLOCK', BLOCK_MS, 'STREAMS', ...streams, ...fresh);
    for (const [stream, entries] of reply ?? []) {
      for (const [id, fields] of entries) {
        handle(stream.toString(), id.toString(), fields);
        await client.xack(stream, args.group, id);
      }
    }
  }
}

// Makes the group where it is absent; it begins with the oldest entry.
async function join(client, stream) {
  try {
    await client.xgroup('CREATE', stream, args.group, '0');
  } catch (error) {
    if (!error.message.startsWith('BUSYGROUP')) throw error;
  }
}

// One page of this consumer's pending entries. Returns its last id, or null at the end.
async function readPending(client, stream, after) {
  const group = ['GROUP', args.group, args.consumer, 'COUNT', COUNT];
  const [[, entries]] = await client.xreadgroupBuffer(...group, 'STREAMS', stream, after);
  for (const [id, fields] of entries) {
    if (fields?.length) handle(stream, id.toString(), fields);
    else console.error(`${id} was removed from ${stream} before it was handled`);
    await client.xack(stream, args.group, id);
  }
  return entries.length ? entries.at(-1)[0].toString() : null;
}

// The work, for each event of an entry, in order. It may run twice for the same entry.
function handle(stream, id, fields) {
  eventsOf(fields).forEach((event, index) => {
    const { entity, type, order } = event;
    const numbers = { epoch: Number(event.epoch), sequence: Number(event.sequence) };
    const [attrs, data] = [JSON.parse(event.attrs), event.data.toString()];
    const line = { stream, id: index ? `${id}#${index}` : id, entity, ...numbers, type, order, attrs, data };
    fs.writeSync(1, `${JSON.stringify(line)}\n`); // at once: what is acknowledged has been written
  });
}

// The events of an entry: the entry itself in `entry` layout, each of its fields in `batch` layout.
function eventsOf(fields) {
  const pairs = [];
  for (let i = 0; i < fields.length; i += 2) pairs.push([fields[i].toString(), fields[i + 1]]);
  if (pairs.some(([name]) => name === 'entity')) {
    const text = ([name, value]) => [name, name === 'data' ? value : value.toString()];
    return [Object.fromEntries(pairs.map(text))];
  }
  return pairs.map(([name, value]) => unpacked(name, value)).sort((a, b) => a.index - b.index);
}

// The entity comes last in a name, because it may contain colons. Lengths are in bytes.
function unpacked(name, value) {
  const [, index, epoch, sequence, order, entity] = /^(\d+):(\d+):(\d+):(\w+):(.*)$/s.exec(name);
  const head = /^[t-]:(\d+):(\d+):/.exec(value.toString('latin1'));
  const typeAt = head[0].length;
  const attrsAt = typeAt + Number(head[1]);
  const dataAt = attrsAt + Number(head[2]);
  const type = value.toString('utf8', typeAt, attrsAt);
  const attrs = value.toString('utf8', attrsAt, dataAt);
  return { index: Number(index), entity, epoch, sequence, order, type, attrs, data: value.subarray(dataAt) };
}

function fail(why) {
  console.error(why);
  process.exit(1);
}

main();
