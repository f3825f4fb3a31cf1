-- group_open: creates what a group keeps about a partition, where it is absent.
--
-- KEYS  1 events  2 groups  3 lease  4 resume  5 held  6 kept
-- ARGV  1 group  2 where it begins: behind an id, or '$' behind all that is there
-- Reply 1 if it was made, 0 if it was there
for key = 4, 6 do redis.call('HSETNX', KEYS[key], '', '') end
redis.call('HSETNX', KEYS[2], '', '')
redis.call('HSETNX', KEYS[3], 'term', '0')
for _, field in ipairs({ 'owner', 'running', 'loose' }) do redis.call('HSETNX', KEYS[3], field, '') end
for _, field in ipairs({ 'count', 'asked' }) do redis.call('HSETNX', KEYS[3], field, '0') end
local floor = ARGV[2]
if floor == '$' then floor = last_id(KEYS[1]) end
return redis.call('HSETNX', KEYS[2], ARGV[1], floor)
