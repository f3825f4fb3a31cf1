-- group_sweep: forgets how far a group is with entities that are retired, some of them at a time
-- and in two steps. A call finds some, and says how far the stream went by then: nothing of them is
-- behind that. The next call forgets them, once the group has done everything up to there, so that
-- nobody who takes over meets them again.
--
-- KEYS  1 groups  2 lease  3 resume  4 held  5 lanes  6 events  7-10 tombs
-- ARGV  1 group  2 term  3 cursor  4 how many to look at, about
--       5 how far the stream went when an earlier call found these: pairs of entity and point
-- Reply {next cursor ('0' at the end), forgotten, how far the stream went, then pairs of entity and
--       point}; nothing if it is somebody else's term, or the group has not come so far
if redis.call('HGET', KEYS[2], 'term') ~= ARGV[2] then return false end

-- Whether the id is at least the other.
local function reaches(id, other)
  local ms, number = string.match(id, '^(%d+)%-(%d+)$')
  local other_ms, other_number = string.match(other, '^(%d+)%-(%d+)$')
  ms, number, other_ms, other_number = tonumber(ms), tonumber(number), tonumber(other_ms), tonumber(other_number)
  return ms > other_ms or (ms == other_ms and number >= other_number)
end
if #ARGV > 5 and not reaches(redis.call('HGET', KEYS[1], ARGV[1]) or '0-0', ARGV[5]) then return false end

-- It has no lane, nor one that would go on where it was. What is held is still to be handled.
local function is_retired(entity)
  if entity == '' or redis.call('HEXISTS', KEYS[5], entity) == 1 or redis.call('HEXISTS', KEYS[4], entity) == 1 then
    return false
  end
  local field = string.sub(redis.sha1hex(entity), 1, 16)
  for key = 7, 10 do
    local tombstone = redis.call('HGET', KEYS[key], field)
    if tombstone and not string.match(tombstone, '^%d+:%d+c') then return false end
  end
  return true
end

local gone = {}
for i = 6, #ARGV, 2 do
  -- A point that moved is of a new life, of which something may not be done yet.
  if redis.call('HGET', KEYS[3], ARGV[i]) == ARGV[i + 1] and is_retired(ARGV[i]) then gone[#gone + 1] = ARGV[i] end
end
if #gone > 0 then redis.call('HDEL', KEYS[3], unpack(gone)) end

local scanned = redis.call('HSCAN', KEYS[3], ARGV[3], 'COUNT', ARGV[4])
local reply = { scanned[1], #gone, last_id(KEYS[6]) }
for i = 1, #scanned[2], 2 do
  if is_retired(scanned[2][i]) then
    reply[#reply + 1] = scanned[2][i]
    reply[#reply + 1] = scanned[2][i + 1]
  end
end
return reply
