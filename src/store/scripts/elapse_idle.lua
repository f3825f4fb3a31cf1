-- What nearly all calls of elapse come to: nothing is due and nothing unusual, or it is too soon. Returns
-- before the rules are even defined; leaves to them whatever else there is to do.
local function is_idle()
  -- The caller's policy is in force, nothing is draining, the partition neither degraded nor full.
  if header ~= ARGV[1] then return end
  local policy, clock, elapsed, late_full =
    unpack(redis.call('HMGET', KEYS[6], 'policy', 'clock', 'elapsed', 'late_full'))
  if late_full == '1' then return end
  local entries_max, late_max = string.match(policy, '^' .. string.rep('%w*:', 24) .. '(%d+):%d+:(%d+):')
  if not late_max or redis.call('XLEN', KEYS[1]) >= tonumber(entries_max)
    or redis.call('XLEN', KEYS[2]) >= tonumber(late_max) then return end
  clock_parse(clock)
  local time = string.format('%.0f', now())
  local is_soon = tonumber(time) - tonumber(elapsed) < TICK_MS / 2
  -- Lanes that wait for their partition to be restored (DUE_WHEN_RESTORED, not defined yet) are due as well.
  if not is_soon and (redis.call('ZCOUNT', KEYS[5], '-inf', time) > 0
    or redis.call('ZCOUNT', KEYS[5], '9007199254740992', '9007199254740992') > 0) then return end
  redis.call('HSET', KEYS[6], 'clock', clock_text(), 'elapsed', is_soon and elapsed or time)
  return is_soon and 0 or 1
end
do
  local ran = is_idle()
  if ran then return { ran, 0, 0, 0, 0, '', 0 } end
end
