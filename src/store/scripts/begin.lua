-- Begins a call that runs the rules: whose partition is this, under which policy, in
-- which mode, at what time.
--
-- KEYS  1 events  2 late  3 lanes  4 parked  5 gaps  6 meta  7-10 born  11-14 tombs
local WIRE = '4'
if string.match(header, '^w(%d+)|') ~= WIRE then
  return redis.error_reply('WIRE this partition was written by another version: ' .. header)
end
-- Stands for a deadline in lanes that must be marked once the partition is restored.
local DUE_WHEN_RESTORED = 9007199254740992

local stored = redis.call('HMGET', KEYS[6], 'policy', 'lists', 'parked_bytes', 'clock', 'mode', 'breaker', 'told',
  'late_full', 'layout')
local policy = {}
for word in string.gmatch(stored[1], '[^:]+') do policy[#policy + 1] = word end
local first, ordering, late_place, overflow = tonumber(policy[1]), policy[2], policy[3], policy[4]
local parked_max, parked_bytes_max = tonumber(policy[5]), tonumber(policy[6])
local partition_parked_max, partition_parked_bytes_max = tonumber(policy[7]), tonumber(policy[8])
local ahead_max, append_max, percent = tonumber(policy[9]), tonumber(policy[10]), tonumber(policy[11])
-- The others are read where they are needed: a function has at most 200 locals.
local parked_age_max, terminal_wait = tonumber(policy[13]), tonumber(policy[14])
local breaker_skips, breaker_window = tonumber(policy[15]), tonumber(policy[16])
local gap_waits = {}
for wait in string.gmatch(policy[#policy], '%d+') do gap_waits[#gap_waits + 1] = tonumber(wait) end
-- Attempts count from 0, tables from 1.
local last_attempt = #gap_waits - 1

-- allow and deny; terminal types; the lifecycle.
local lists = stored[2] ~= '' and cjson.decode(stored[2]) or {}
local terminal_types, lifecycle = {}, lists.lifecycle
for _, kind in ipairs(lists.terminal or {}) do terminal_types[kind] = true end

if not clock_asked then clock_parse(stored[4]) end

-- 'ordered', or who degraded it and when.
local mode, mode_since = string.match(stored[5], '^(%a+),(%d+)$')
mode_since = tonumber(mode_since)
local degraded = mode ~= 'ordered'
-- While it is degraded: lanes that are due before this have been told.
local told = tonumber(stored[7])
local breaker_level, breaker_at = string.match(stored[6], '^(%d+),(%d+)$')
breaker_level, breaker_at = tonumber(breaker_level), tonumber(breaker_at)
local breaker_hit = false

-- Which of its streams were full at the last look (src/order/full.rs). Only slow calls write
-- late events, so only for `events` the header has to say it.
local full, late_full = string.find(flags, 'f', 1, true) ~= nil, stored[8] == '1'

-- What an entry of its streams is. Partitions of the older layout do not say so.
local layout = stored[9] or 'entry'

local load_events = redis.call('HLEN', KEYS[4]) - 1
local load_bytes = tonumber(stored[3])
local load_bytes_before = load_bytes
-- A count that went wrong (somebody deleted or added an event by hand) heals here.
if load_events == 0 then load_bytes = 0 end
local appends, drained, after_terminal = {}, 0, 0
local notes, probes = {}, {}
local lanes, touched = {}, {}   -- entity -> lane; those whose state may have changed, in order
local states = {}               -- entity, state; of lanes about which nothing had to be decided
local born = {}                 -- entities whose lanes were made or woken by this call
local fresh, taken = {}, {}     -- parked field -> event of this call; -> true if stored before it
-- What is written to parked and removed from it, and to and from gaps, besides what becomes of touched lanes.
local parked_now, parked_gone, due_now, due_never = {}, {}, {}, {}

local function note(text)
  notes[#notes + 1] = text
end

local function touch(lane)
  if not lane.touched then
    lane.touched = true
    touched[#touched + 1] = lane
  end
end

local function lane_of(entity)
  if lanes[entity] == nil then
    local text = redis.call('HGET', KEYS[3], entity)
    lanes[entity] = text and lane_parse(entity, text) or false
  end
  return lanes[entity] or nil
end

local function has_room(entries)
  return #appends + entries <= append_max
end

local function append(key, lane, epoch, sequence, order, event)
  appends[#appends + 1] = { key, lane.entity, text_of(epoch), text_of(sequence), order, event }
  touch(lane)
end

-- What seriatim itself says, in an event's place.
local function marker(kind, attrs)
  return { kind = kind, attrs = attrs, data = '', terminal = false }
end

-- One that concerns the whole partition: its entity is empty.
local function append_edge(kind, by)
  appends[#appends + 1] = { KEYS[1], '', '0', '0', 'marker', marker(kind, '{"reason":"' .. by .. '"}') }
end

local function passes(lane)
  return lane.mode ~= 'e' or lane.unmarked ~= nil
end

local function is_draining(lane)
  return lane.count > 0 and (lane.unmarked ~= nil or lane.parked[1][1] == lane.next)
end

-- The wait of one attempt, give or take 20 %.
local function gap_wait(entity, attempt)
  local permille = 800 + mix(entity, attempt + 1) % 401
  return math.max(math.floor(gap_waits[attempt + 1] * permille / 1000), 1)
end

local function gap_waits_from(lane, attempt)
  local sum = 0
  for i = attempt, last_attempt do sum = sum + gap_wait(lane.entity, i) end
  return sum
end

local function breaker_level_at(time)
  if breaker_skips == 0 then return 0 end
  local elapsed = math.min(math.max(time - breaker_at, 0), breaker_window)
  return math.max(breaker_level - math.floor(elapsed * breaker_skips * 1000 / breaker_window), 0)
end

-- A skip that speaks of trouble: one more for the breaker.
local function note_trouble(reason)
  note('x' .. reason)
  local time = now()
  if breaker_skips > 0 then
    breaker_level = math.min(breaker_level_at(time) + 1000, breaker_skips * 1000)
    breaker_at = time
    breaker_hit = true
  end
end
