-- group_wish: notes what a person wants with one held entity. Only the state is written:
-- the worker that has the partition does the rest.
--
-- KEYS  1 lease  2 held
-- ARGV  1 entity  2 state that is wished  3 states in which that makes sense
--       4 head of an entity that is not held yet, or '' if it must be
-- Reply '' if it is noted, '-' if the entity is not held, or the state that does not fit
-- Error NOGROUP  the group is not there
if redis.call('EXISTS', KEYS[1]) == 0 then return redis.error_reply('NOGROUP there is no such group') end
local head = redis.call('HGET', KEYS[2], ARGV[1])
if head then
  local state = string.sub(head, 1, 1)
  if not string.find(ARGV[3], state, 1, true) then return state end
  -- Tried at once, and counted anew.
  local rest = string.match(head, '^%a,%d+,%d+,(.*)$')
  head = ARGV[2] .. ',0,0,' .. rest
elseif ARGV[4] ~= '' then
  head = ARGV[4]
else
  return '-'
end
redis.call('HSET', KEYS[2], ARGV[1], head)
redis.call('HINCRBY', KEYS[1], 'asked', 1)
return ''
