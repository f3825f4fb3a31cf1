-- elapse: does what is due, in at most so many lanes. Every sidecar calls it for every
-- partition; a call that comes too soon after another returns at once, so that many
-- sidecars do not do many times the work.
--
-- ARGV  3 lanes at most
-- Reply {ran (0 or 1), lanes, more (0 or 1), drained, after_terminal, notes, degraded (0 or 1)}
local lanes_max = tonumber(ARGV[3])
local time = now()
if time - tonumber(redis.call('HGET', KEYS[6], 'elapsed')) < TICK_MS / 2 then
  redis.call('HSET', KEYS[6], 'clock', clock_text())
  return { 0, 0, 0, 0, 0, '', degraded and 1 or 0 }
end

-- Rule 7: full at the limit, and until it is below so many percent of it.
local FULL_UNTIL_PERCENT = 95
local function is_full(was_full, length, limit)
  if was_full then return length * 100 >= limit * FULL_UNTIL_PERCENT end
  return length >= limit
end
full = is_full(full, redis.call('XLEN', KEYS[1]), tonumber(policy[25]))
late_full = is_full(late_full, redis.call('XLEN', KEYS[2]), tonumber(policy[27]))

if mode == 'breaker' and time - mode_since >= tonumber(policy[17])
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

-- Lanes that still wait, from a time on, although the partition is degraded. Those of the
-- last one's very time may be left: the next look begins with them.
local function lanes_untold(from, limit)
  if mode == 'ordered' or limit == 0 or from >= DUE_WHEN_RESTORED then return {} end
  return redis.call('ZRANGEBYSCORE', KEYS[5], text_of(from), '(' .. text_of(DUE_WHEN_RESTORED), 'WITHSCORES',
    'LIMIT', 0, limit)
end
local limit = lanes_max - #due
local untold = lanes_untold(math.max(told, time + 1), limit)
local first_untold = #due + 1
for i = 1, #untold, 2 do due[#due + 1] = untold[i] end
local told_then = told
if degraded and limit > 0 then
  told_then = #untold == 2 * limit and tonumber(untold[#untold]) or DUE_WHEN_RESTORED
end

local seen = 0
for _, entity in ipairs(due) do
  if not has_room(1) then
    -- Those that there is no room for are told by the next look.
    local at = math.max(seen + 1 - first_untold, 0)
    if 2 * at + 2 <= #untold then told_then = tonumber(untold[2 * at + 2]) end
    break
  end
  local lane = lane_of(entity)
  if lane then elapse(lane) else due_never[#due_never + 1] = entity end
  seen = seen + 1
end
told = told_then
