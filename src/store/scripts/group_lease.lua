-- group_lease: takes a partition's lease, if it is still as the caller saw it. Terms rise,
-- also over a store that lost the last ones: they follow its clock.
--
-- KEYS  1 groups  2 lease
-- ARGV  1 group  2 new owner  3 owner, 4 term and 5 count as seen
-- Reply {term, floor, running, loose, asked, milliseconds}, or nothing
-- Error NOGROUP  the group is not there: register it, then call again
local owner, term, count, running, loose, asked =
  unpack(redis.call('HMGET', KEYS[2], 'owner', 'term', 'count', 'running', 'loose', 'asked'))
local floor = redis.call('HGET', KEYS[1], ARGV[1])
if not term or not floor then return redis.error_reply('NOGROUP there is no group ' .. ARGV[1]) end
if owner ~= ARGV[3] or term ~= ARGV[4] or count ~= ARGV[5] then return false end
local time = redis.call('TIME')
local now = string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
term = string.format('%.0f', math.max(tonumber(term) + 1, tonumber(now)))
redis.call('HSET', KEYS[2], 'owner', ARGV[2], 'term', term, 'count', '0')
return { term, floor, running, loose, asked, now }
