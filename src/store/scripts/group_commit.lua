-- group_commit: what a worker did, in one fenced step, and a sign that it lives.
--
-- KEYS  1 groups  2 lease  3 resume  4 held  5 kept
-- ARGV  1 group  2 term  3 floor  4 running  5 loose  6 how many commits came before
--       then four lists, each begun by its length in words:
--       points   entity, point
--       heads    entity, state it had (or ''), head, 1 if the hold ends
--       kept     field, event
--       dropped  field
-- Reply {1, asked, milliseconds}, or {0, term} if somebody else has the lease, or the store
--       is not where this worker left it
-- Error NOGROUP  the group is not there
local term, count, asked = unpack(redis.call('HMGET', KEYS[2], 'term', 'count', 'asked'))
if not term then return redis.error_reply('NOGROUP there is no group ' .. ARGV[1]) end
if term ~= ARGV[2] then return { 0, term } end
local time = redis.call('TIME')
local now = string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
-- Sent once more because its answer was lost: it is there already.
if tonumber(count) == tonumber(ARGV[6]) + 1 then return { 1, asked, now } end
if tonumber(count) ~= tonumber(ARGV[6]) then return { 0, term } end

-- As many words as a call can unpack.
local SLICE = 4000
local at = 7
local function next_list()
  local from, words = at + 1, tonumber(ARGV[at])
  at = from + words
  return from, at - 1
end
local function write(command, key, from, to)
  for i = from, to, SLICE do
    redis.call(command, key, unpack(ARGV, i, math.min(i + SLICE - 1, to)))
  end
end

local points_from, points_to = next_list()
local heads_from, heads_to = next_list()
local kept_from, kept_to = next_list()
local dropped_from, dropped_to = next_list()
write('HSET', KEYS[3], points_from, points_to)
write('HDEL', KEYS[5], dropped_from, dropped_to)
write('HSET', KEYS[5], kept_from, kept_to)
for i = heads_from, heads_to, 4 do
  local entity, was, head, ends = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3] == '1'
  local stored = redis.call('HGET', KEYS[4], entity)
  local is = stored and string.sub(stored, 1, 1) or ''
  -- What a person wished meanwhile stands.
  if is ~= '' and is ~= was then head, ends = is .. string.sub(head, 2), false end
  if ends then
    redis.call('HDEL', KEYS[4], entity)
  else
    redis.call('HSET', KEYS[4], entity, head)
  end
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
redis.call('HSET', KEYS[2], 'count', string.format('%.0f', tonumber(count) + 1), 'running', ARGV[4], 'loose', ARGV[5])
return { 1, asked, now }
