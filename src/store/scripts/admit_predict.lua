-- admit: decides about one batch of events of one partition, atomically. It begins with the
-- fast path, which returns before the rules are even defined.
--
-- KEYS  15 writable
-- ARGV  3 number of lanes L  4 number of events E  5 number of lanes F that begin
--       6 number of entries that the same transaction has appended, or '' if there is none
--       7 the token that the caller left in the header, or ''
--       then in columns: L entities, L states before, L pairs (entity, state after),
--       F entities whose lanes begin;
--       then the events: in `entry` layout as admit_rows.lua says, in `batch` layout as
--       admit_pairs.lua does
-- Reply fast: {'fast', id of event 1, id of event 2, ...}; in `batch` layout {'fast', id}
--       slow: {'slow', header, more (0 or 1), drained, after_terminal, notes, verdict 1, ...}
--       barred: {'barred'}: the transaction is to change nothing (straight.lua)
--
-- Nearly all batches are all in order. The caller predicted each lane's state
-- before and after from the events alone; if all predictions hold, nothing has to
-- be parsed. A single mismatch sends the whole call down the slow path, where the rules
-- decide about the lanes that are not as predicted.
local lane_count, event_count, first_count = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local written = tonumber(ARGV[6]) or 0
if ARGV[6] ~= '' and redis.call('EXISTS', KEYS[15]) == 0 then return { 'barred' } end
-- Whoever else knows lanes by heart has to look again.
if token and token ~= ARGV[7] then redis.call('HSET', KEYS[6], 'header', header) end
local lanes_at, before_at, after_at = 7, 7 + lane_count, 7 + 2 * lane_count
local filed_at = 7 + 4 * lane_count
local events_at = filed_at + first_count
local found = {}
if lane_count > 0 then
  found = redis.call('HMGET', KEYS[3], unpack(ARGV, lanes_at + 1, before_at))
end

-- Predictions count only while the caller's policy is in force and nothing is unusual.
local is_healthy, has_tombs = header == ARGV[1], string.find(rings, '1', 3, true)
local predicted = is_healthy and lane_count > 0
for i = 1, predicted and lane_count or 0 do
  local before = ARGV[before_at + i]
  if (found[i] or '') ~= before or (has_tombs and before == '' and tombstone_of(ARGV[lanes_at + i])) then
    predicted = false
    break
  end
end

-- What was predicted comes true.
local function write_lanes()
  redis.call('HSET', KEYS[3], unpack(ARGV, after_at + 1, filed_at))
  if first_count > 0 then redis.call('RPUSH', born_key, unpack(ARGV, filed_at + 1, events_at)) end
end
