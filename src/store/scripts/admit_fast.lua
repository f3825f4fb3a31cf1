-- admit: decides about one batch of events of one partition, atomically. This is its
-- fast path, which returns before the rules are even defined.
--
-- ARGV  3 number of lanes L  4 number of events E  5 number of lanes F that begin
--       then in columns: L entities, L states before, L pairs (entity, state after),
--       F pairs (entity, '');
--       then E rows: entity, epoch, sequence ('' if the lane assigns it), type,
--       attrs, data, tag ('t' terminal or '-', followed by the id's digest if the
--       lane assigns sequences)
-- Reply fast: {'fast', id of event 1, id of event 2, ...}
--       slow: {'slow', header, more (0 or 1), drained, after_terminal, notes, verdict 1, ...}
--
-- Nearly all batches are all in order. The caller predicted each lane's state
-- before and after from the events alone; if all predictions hold, nothing has to
-- be parsed. A single mismatch sends the whole call down the slow path.
local lane_count, event_count, first_count = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local before_at, after_at = 5 + lane_count, 5 + 2 * lane_count
local filed_at = 5 + 4 * lane_count
local rows_at = filed_at + 2 * first_count
local found = {}
if lane_count > 0 then
  found = redis.call('HMGET', KEYS[3], unpack(ARGV, 6, before_at))
end

if header == ARGV[1] and lane_count > 0 then
  local predicted = true
  for i = 1, lane_count do
    if (found[i] or '') ~= ARGV[before_at + i] then
      predicted = false
      break
    end
  end
  if predicted and first_count > 0 and string.find(rings, '1', 3, true) then
    for i = 1, first_count do
      if tombstone_of(ARGV[filed_at + 2 * i - 1]) then
        predicted = false
        break
      end
    end
  end
  if predicted then
    local reply, row = { 'fast' }, rows_at
    for i = 1, event_count do
      reply[i + 1] = redis.call('XADD', KEYS[1], '*', 'entity', ARGV[row + 1], 'epoch', ARGV[row + 2],
        'sequence', ARGV[row + 3], 'type', ARGV[row + 4], 'order', 'strict', 'attrs', ARGV[row + 5],
        'data', ARGV[row + 6])
      row = row + 7
    end
    redis.call('HSET', KEYS[3], unpack(ARGV, after_at + 1, filed_at))
    if first_count > 0 then redis.call('HSET', opened_key, unpack(ARGV, filed_at + 1, rows_at)) end
    return reply
  end
end
