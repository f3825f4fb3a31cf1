-- announce: somebody says that an entity will exist, and by when its first event is due.
--
-- KEYS  as in enter.lua, then 15-18 closed  19 announced
-- ARGV  3 entity  4 milliseconds from now
-- Reply 'noted', 'begun' or 'full'
-- Due above 0, because the sign tells those that were reported.
local entity, due = ARGV[3], math.max(now() + tonumber(ARGV[4]), 1)
redis.call('HSET', KEYS[6], 'clock', clock_text())
if redis.call('HEXISTS', KEYS[3], entity) == 1 or tombstone_of(entity) then return 'begun' end
-- One of them is the sentinel.
local function is_full()
  return redis.call('ZCARD', KEYS[19]) > tonumber(policy[22])
end
if not redis.call('ZSCORE', KEYS[19], entity) and is_full() then
  -- Those that have begun only wait for their time to be looked at: some of them go now.
  for _, announced in ipairs(redis.call('ZRANDMEMBER', KEYS[19], 100)) do
    if announced ~= '' and (redis.call('HEXISTS', KEYS[3], announced) == 1 or tombstone_of(announced)) then
      redis.call('ZREM', KEYS[19], announced)
    end
  end
  if is_full() then return 'full' end
end
redis.call('ZADD', KEYS[19], text_of(due), entity)
return 'noted'
