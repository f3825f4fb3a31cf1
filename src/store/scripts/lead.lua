-- lead: takes or keeps the right to look for lost work. It keeps the system from being
-- searched by everybody at once; nothing breaks if two have it.
--
-- KEYS  1 reconciler
-- ARGV  1 owner  2 milliseconds
-- Reply 1 if it is the caller's now, else 0
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
