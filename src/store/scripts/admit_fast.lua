-- admit, part 1 of 3: the fast path. Parts 2 (lane.lua) and 3 (admit.lua) follow in
-- the same script; this one returns before they are even defined.
--
-- Admits one batch of events into one partition, atomically.
--
-- KEYS  1 events  2 late  3 lanes  4 parked  5 gaps  6 meta
-- ARGV  1 header that the caller expects in meta
--       2 number of lanes L      3 number of events E
--       then in columns: L entities, L states before, L pairs (entity, state after);
--       then E rows: entity, epoch, sequence ('' if the lane assigns it), type,
--       attrs, data, tag ('t' terminal or '-', followed by the id's digest if the
--       lane assigns sequences)
-- Reply fast: {'fast', id of event 1, id of event 2, ...}
--       slow: {'slow', more (0 or 1), drained, after_terminal, verdict 1, ...}
-- Error UNINITIALISED  the partition is not there, or was made anew since the caller
--                      opened it: open it, then call again
--       WIRE           another version wrote it: do not touch it
--
-- Nearly all batches are all in order. The caller predicted each lane's state
-- before and after from the events alone; if all predictions hold, nothing has to
-- be parsed. A single mismatch sends the whole call down the slow path.
local header = redis.call('HGET', KEYS[6], 'header')
if not header then
  return redis.error_reply('UNINITIALISED this partition has no header in meta')
end
-- The caller's topic may differ from the one that is here now, even in its partitions.
if header ~= ARGV[1] and string.match(header, '|g(%x+)|') ~= string.match(ARGV[1], '|g(%x+)|') then
  return redis.error_reply('UNINITIALISED this partition was made anew: ' .. header)
end
local lane_count, event_count = tonumber(ARGV[2]), tonumber(ARGV[3])
local before_at, after_at, rows_at = 3 + lane_count, 3 + 2 * lane_count, 3 + 4 * lane_count
local found = {}
if lane_count > 0 then
  found = redis.call('HMGET', KEYS[3], unpack(ARGV, 4, before_at))
end

if header == ARGV[1] and lane_count > 0 then
  local predicted = true
  for i = 1, lane_count do
    if (found[i] or '') ~= ARGV[before_at + i] then
      predicted = false
      break
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
    redis.call('HSET', KEYS[3], unpack(ARGV, after_at + 1, rows_at))
    return reply
  end
end
