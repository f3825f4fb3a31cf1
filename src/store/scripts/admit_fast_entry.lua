-- The fast path of admit in `entry` layout: one entry an event.
if predicted then
  local reply, row = { 'fast' }, events_at
  for i = 1, event_count do
    reply[i + 1] = redis.call('XADD', KEYS[1], '*', 'entity', ARGV[row + 1], 'epoch', ARGV[row + 2],
      'sequence', ARGV[row + 3], 'type', ARGV[row + 4], 'order', 'strict', 'attrs', ARGV[row + 5],
      'data', ARGV[row + 6])
    row = row + 7
  end
  write_lanes()
  return reply
end
