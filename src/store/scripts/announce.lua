-- announce: somebody says that an entity will exist, and by when its first event is due.
--
-- KEYS  as in enter.lua, then 15-18 closed  19 announced
-- ARGV  3 entity  4 milliseconds from now
-- Reply 'noted', 'begun' or 'full'
-- Due above 0, because the sign tells those that were reported.
local entity, due = ARGV[3], math.max(now() + tonumber(ARGV[4]), 1)
redis.call('HSET', KEYS[6], 'clock', text_of(clock_now) .. ',' .. text_of(clock_last))
if redis.call('HEXISTS', KEYS[3], entity) == 1 or tombstone_of(entity) then return 'begun' end
-- One of them is the sentinel.
if not redis.call('ZSCORE', KEYS[19], entity) and redis.call('ZCARD', KEYS[19]) > tonumber(policy[22]) then
  return 'full'
end
redis.call('ZADD', KEYS[19], text_of(due), entity)
return 'noted'
