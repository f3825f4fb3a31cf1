-- lead: takes or keeps the right to look for lost work. It keeps the system from being
-- searched by everybody at once; nothing breaks if two have it.
--
-- KEYS  1 reconciler
-- ARGV  1 owner  2 milliseconds
-- Reply 1 if it is the caller's now, else 0
local owner, left = redis.call('GET', KEYS[1]), redis.call('PTTL', KEYS[1])
-- One that lasts longer than it was given, or for ever, is of before the clock was set back.
local lasts = left >= 0 and left <= tonumber(ARGV[2])
if owner and owner ~= ARGV[1] and lasts then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
