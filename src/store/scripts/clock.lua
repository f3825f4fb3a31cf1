-- The partition clock: moves by at most two ticks between two looks, and never back. A call that
-- needs no time takes none.
local TICK_MS = 250
local clock_now, clock_last
local clock_asked = false

local function clock_parse(text)
  clock_now, clock_last = string.match(text, '^(%d+),(%d+)$')
  clock_now, clock_last = tonumber(clock_now), tonumber(clock_last)
end

local function clock_text()
  return string.format('%.0f,%.0f', clock_now, clock_last)
end

local function now()
  if not clock_asked then
    clock_asked = true
    local time = redis.call('TIME')
    local wall = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
    clock_now = clock_now + math.min(math.max(wall - clock_last, 0), 2 * TICK_MS)
    clock_last = wall
  end
  return clock_now
end
