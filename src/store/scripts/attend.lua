-- attend: a worker shows up, and sees who else did.
--
-- KEYS  1 groups of the topic  2 members
-- ARGV  1 group  2 member  3 what it counts up
-- Reply {switches, member, count, ...}, or nothing if the group is not registered
local switches = redis.call('HGET', KEYS[1], ARGV[1])
if not switches then return false end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
local reply = { switches }
for _, word in ipairs(redis.call('HGETALL', KEYS[2])) do reply[#reply + 1] = word end
return reply
