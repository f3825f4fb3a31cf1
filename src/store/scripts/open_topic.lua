-- Creates a topic's record if it is absent; returns what is fixed in it either way.
--
-- KEYS  1 topic
-- ARGV  field, value, ... as the caller would have it
-- Reply field, value, ... as it is
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], unpack(ARGV))
end
return redis.call('HGETALL', KEYS[1])
