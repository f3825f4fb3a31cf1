-- group_release: gives a lease back. What was running stays noted.
--
-- KEYS  1 lease
-- ARGV  1 term under which it is held
-- Reply 1 if it was given back, 0 if somebody else has it
if redis.call('HGET', KEYS[1], 'term') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'owner', '')
return 1
