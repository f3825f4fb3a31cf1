-- Ends a transaction that straight.lua has begun: a stream that it barred is as it was.
--
-- KEYS  1 events  2 barred
local last = redis.call('GET', KEYS[2])
if last then
  redis.call('XSETID', KEYS[1], last)
  redis.call('DEL', KEYS[2])
end
