-- beat: a sidecar says that it is alive, and hears who else is.
--
-- KEYS  1 sidecars
-- ARGV  1 sidecar  2 what it says about itself  3 milliseconds after which one is forgotten
-- Reply sidecar, about, milliseconds since its last beat, ...
--
-- Times are Redis's own; they are shown to people, nothing is decided by them.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', now) .. '|' .. ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
local reply = {}
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local beat, about = string.match(all[i + 1], '^(%d+)|(.*)$')
  local silent = math.max(now - tonumber(beat), 0)
  if silent > tonumber(ARGV[3]) then
    redis.call('HDEL', KEYS[1], all[i])
  else
    for _, word in ipairs({ all[i], about, string.format('%.0f', silent) }) do reply[#reply + 1] = word end
  end
end
return reply
