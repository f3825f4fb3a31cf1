// A worker in Node: receives events of a topic over gRPC, in order, and answers each.
//
// Events of different entities are handled at the same time, up to --in-flight; of one
// entity there is never more than one. SIGTERM ends it: it finishes what it has begun. What
// it does is written to a journal (tests/checker/check.py describes it), which a worker of
// your own does not need. It handles nothing: put your work where `handle` sleeps.
//
//   NODE_PATH=target/clients/node_modules node tests/clients/consume.js --target 127.0.0.1:7401 \
//       --topic evaluations --group storage --consumer w1 --journal w1.jsonl
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const { parseArgs } = require('node:util');
const { setTimeout: sleep } = require('node:timers/promises');
const grpc = require('@grpc/grpc-js');
const protoLoader = require('@grpc/proto-loader');

const BACKOFF_FIRST_MS = 100;
const BACKOFF_MAX_MS = 5_000;
const CLOSE_WITHIN_MS = 10_000;
// Trying again does not help then. All else is tried again: a connection that breaks shows as UNAVAILABLE,
// or as INTERNAL, CANCELLED or UNKNOWN, depending on the library and on how it broke.
const HOPELESS = [
  grpc.status.NOT_FOUND,
  grpc.status.INVALID_ARGUMENT,
  grpc.status.FAILED_PRECONDITION,
  grpc.status.UNIMPLEMENTED,
];
const CHANNEL = {
  // A sidecar that comes back is found within seconds, and one that hangs is left.
  'grpc.initial_reconnect_backoff_ms': 100,
  'grpc.max_reconnect_backoff_ms': 2_000,
  'grpc.keepalive_time_ms': 10_000,
  'grpc.keepalive_timeout_ms': 5_000,
};

const PROTO = path.join(__dirname, '../../proto/seriatim/v1/delivery.proto');
// Every number of the contract is below 2^53, so Number is exact.
const { Delivery } = grpc.loadPackageDefinition(
  protoLoader.loadSync(PROTO, { keepCase: true, longs: Number, defaults: true }),
).seriatim.v1;

const { values: args } = parseArgs({
  options: {
    target: { type: 'string' }, // host:port of the sidecar
    topic: { type: 'string' },
    group: { type: 'string' }, // who shares the work
    consumer: { type: 'string' }, // this worker's name
    journal: { type: 'string' }, // is appended to; one for each process
    'in-flight': { type: 'string', default: '64' }, // deliveries that may be unanswered
    'handler-ms': { type: 'string', default: '0' }, // each takes a random time up to this
    'nack-percent': { type: 'string', default: '0' }, // so many of a hundred fail
    seed: { type: 'string' }, // repeats the same random choices
  },
});
for (const name of ['target', 'topic', 'group', 'consumer', 'journal']) {
  if (!args[name]) {
    console.error(`--${name} is missing; ${__filename} says how it is used`);
    process.exit(2);
  }
}

const random = generator(args.seed === undefined ? Date.now() : Number(args.seed));
const journal = fs.openSync(args.journal, 'a');
let stopping = false;
let stop = () => {}; // what the present stream does then

// The work. It may run twice for the same event; if it throws, it will.
async function handle(delivered) {
  await sleep(random() * Number(args['handler-ms']));
  if (random() * 100 < Number(args['nack-percent'])) throw new Error('failed, as --nack-percent asks for');
}

// Subscribes again and again until it is told to stop.
async function main() {
  const client = new Delivery(args.target, grpc.credentials.createInsecure(), CHANNEL);
  for (const signal of ['SIGTERM', 'SIGINT']) {
    process.on(signal, () => {
      stopping = true;
      stop();
    });
  }
  let backoff = BACKOFF_FIRST_MS;
  while (!stopping) {
    const { error, hasReceived } = await consume(client);
    if (error && HOPELESS.includes(error.code)) {
      console.error(error.message);
      process.exit(1);
    }
    backoff = hasReceived ? BACKOFF_FIRST_MS : Math.min(2 * backoff, BACKOFF_MAX_MS);
    const pause = new AbortController();
    stop = () => pause.abort();
    if (!stopping) await sleep(backoff * (0.5 + Math.random() / 2), null, pause).catch(() => {});
  }
  client.close();
}

// One subscription: the worker's life as the group sees it. When it ends, whatever was not
// answered on it is delivered again, perhaps to somebody else.
async function consume(client) {
  const open = new Map(); // by their number: deliveries without an answer that is known to be stored
  const handlers = new Set();
  let hasReceived = false;
  const call = client.consume();

  const serve = async (delivered) => {
    note('start', delivered);
    try {
      await handle(delivered);
    } catch (error) {
      note('nack', delivered);
      call.write({ nack: { delivery: delivered.delivery, reason: error.message } });
      open.delete(delivered.delivery); // nothing says that a nack is stored
      return;
    }
    note('end', delivered);
    call.write({ ack: { delivery: delivered.delivery } });
  };
  const settle = (kind, number) => {
    if (!open.has(number)) return;
    note(kind, open.get(number));
    open.delete(number);
  };
  // Takes no more, waits until all acks are stored, and closes.
  stop = async () => {
    call.write({ flow: { in_flight_max: 0 } });
    const begun = performance.now();
    while ((open.size || handlers.size) && performance.now() - begun < CLOSE_WITHIN_MS) await sleep(10);
    call.end();
    setTimeout(() => call.cancel(), CLOSE_WITHIN_MS).unref();
  };

  call.on('data', (response) => {
    hasReceived = true;
    for (const delivered of response.deliveries) {
      if (stopping) continue; // not begun: it is delivered again
      open.set(delivered.delivery, delivered);
      const handler = serve(delivered).finally(() => handlers.delete(handler));
      handlers.add(handler);
    }
    response.acked.forEach((number) => settle('acked', number));
    response.fenced.forEach((number) => settle('fenced', number));
  });
  const ended = new Promise((resolve) => {
    call.on('end', () => resolve(null));
    call.on('error', resolve);
  });
  const { topic, group, consumer } = args;
  call.write({ subscribe: { topic, group, consumer, in_flight_max: Number(args['in-flight']) } });
  const error = await ended;
  open.clear(); // nobody will say any more what became of these
  // Handlers that have begun finish, or they would run beside their own repetition.
  await Promise.all(handlers);
  return { error, hasReceived };
}

function note(kind, delivered) {
  const { partition, term, entity, epoch, sequence, order, attempt, stream_id: id } = delivered;
  const line = { kind, at: 0, worker: args.consumer, partition, term, entity, epoch, sequence, order, attempt, id };
  if (order === 'gap') line.from = delivered.from;
  // Nanoseconds do not fit into a Number; microseconds do.
  const at = Math.floor((performance.timeOrigin + performance.now()) * 1000);
  // One write: whole or not at all.
  fs.writeSync(journal, `${JSON.stringify(line).replace('"at":0', `"at":${at}000`)}\n`);
}

// Small and repeatable (a linear congruential generator); for choices, not for secrets.
function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

main();
