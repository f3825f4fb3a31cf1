-- Ends a transaction that straight.lua has begun: what it barred is as it was.
--
-- KEYS  1 events  2 barred  3 lanes  4 barred:lanes  5 parked  6 barred:parked
local last = redis.call('GET', KEYS[2])
if last then
  if last ~= '' then redis.call('XSETID', KEYS[1], last) end
  redis.call('DEL', KEYS[2], KEYS[3], KEYS[5])
  for i = 3, 5, 2 do
    if redis.call('EXISTS', KEYS[i + 1]) == 1 then redis.call('RENAME', KEYS[i + 1], KEYS[i]) end
  end
end
