-- Ends a transaction that straight.lua has begun: what it barred is as it was.
--
-- KEYS  1 events  2 barred  3 lanes  4 barred:lanes
local last = redis.call('GET', KEYS[2])
if last then
  if last ~= '' then redis.call('XSETID', KEYS[1], last) end
  redis.call('DEL', KEYS[2], KEYS[3])
  if redis.call('EXISTS', KEYS[4]) == 1 then redis.call('RENAME', KEYS[4], KEYS[3]) end
end
