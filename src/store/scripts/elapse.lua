-- elapse: does what is due, in at most so many lanes. Every sidecar calls it for every
-- partition; a call that comes too soon after another returns at once, so that many
-- sidecars do not do many times the work.
--
-- ARGV  3 lanes at most
-- Reply {ran (0 or 1), lanes, more (0 or 1), drained, after_terminal, notes, degraded (0 or 1)}
local lanes_max = tonumber(ARGV[3])
local time = now()
if time - tonumber(redis.call('HGET', KEYS[6], 'elapsed')) < ELAPSE_MIN_MS then
  redis.call('HSET', KEYS[6], 'clock', text_of(clock_now) .. ',' .. text_of(clock_last))
  return { 0, 0, 0, 0, 0, '', degraded and 1 or 0 }
end
if mode == 'breaker' and time - mode_since >= breaker_hold
  and breaker_level_at(time) * 2 <= breaker_skips * 1000 then
  append_edge('seriatim.restored', 'breaker')
  mode, mode_since, degraded = 'ordered', 0, false
end

local due = redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', text_of(time), 'LIMIT', 0, lanes_max)
if not degraded and #due < lanes_max then
  local score = text_of(DUE_WHEN_RESTORED)
  for _, entity in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], score, score, 'LIMIT', 0, lanes_max - #due)) do
    due[#due + 1] = entity
  end
end
local seen = 0
for _, entity in ipairs(due) do
  if not has_room(1) then break end
  local lane = lane_of(entity)
  if lane then elapse(lane) else strays[#strays + 1] = entity end
  seen = seen + 1
end
