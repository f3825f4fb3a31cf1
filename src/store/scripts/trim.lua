-- trim: removes entries that are old or too many, and that every group has done. Every
-- sidecar calls it for every partition; a call that comes too soon after another returns
-- at once, unless the partition is full.
--
-- Redis removes whole nodes of a stream (100 entries at most, as it is delivered), which is
-- cheap: so somewhat more may stay than was asked for, never less, and a call removes no
-- more than it may.
--
-- KEYS  as in enter.lua, then 15-18 closed  19 announced  20 groups
-- ARGV  3 'trim', or 'look' to know the floor only  4 entries at most, of each stream
-- Reply {ran (0 or 1), events removed, late removed, more (0 or 1), full (0 or 1), late full (0 or 1),
--        events left, late left, entries_max, floor, group that has it; both '' without a group}
local TRIM_MIN_MS = 2 * TICK_MS
local retain_ms, retain_entries, entries_max = tonumber(policy[23]), tonumber(policy[24]), tonumber(policy[25])
local late_retain_ms = tonumber(policy[26])
-- Behind every id.
local END = { '18446744073709551615', '18446744073709551615' }
local trims, count = ARGV[3] == 'trim', tonumber(ARGV[4])
-- Who only looks needs no time.
local time = trims and now()
local changed = { 'clock', clock_text() }

local function answer(ran, events, late, more, floor, group)
  redis.call('HSET', KEYS[6], unpack(changed))
  return {
    ran, events, late, more and 1 or 0, full and 1 or 0, late_full and 1 or 0, redis.call('XLEN', KEYS[1]),
    redis.call('XLEN', KEYS[2]), entries_max, floor, group,
  }
end
if trims and not full and time - tonumber(redis.call('HGET', KEYS[6], 'trimmed_at')) < TRIM_MIN_MS then
  return answer(0, 0, 0, false, '', '')
end

-- Ids are two numbers of up to 20 digits, too long for a double: they stay texts.
local function digits(text)
  return string.match(text, '^0*(%d+)$')
end

local function is_less(a, b)
  for i = 1, 2 do
    if #a[i] ~= #b[i] then return #a[i] < #b[i] end
    if a[i] ~= b[i] then return a[i] < b[i] end
  end
  return false
end

-- What cannot be read counts as nothing done: rather too much stays than too little.
local function id_parse(text)
  local ms, counter = string.match(text, '^(%d+)%-(%d+)$')
  if not ms then return { '0', '0' } end
  return { digits(ms), digits(counter) }
end

local function id_text(id)
  return id[1] .. '-' .. id[2]
end

local function plus_one(number)
  local head, last, nines = string.match(number, '^(%d-)([0-8]?)(9*)$')
  return head .. text_of((tonumber(last) or 0) + 1) .. string.rep('0', #nines)
end

local function minus_one(number)
  local head, last, zeros = string.match(number, '^(%d-)([1-9])(0*)$')
  return digits(head .. text_of(tonumber(last) - 1) .. string.rep('9', #zeros))
end

local function id_after(id)
  if id[2] ~= END[2] then return { id[1], plus_one(id[2]) } end
  if id[1] ~= END[1] then return { plus_one(id[1]), '0' } end
  return END
end

local function id_before(id)
  if id[2] ~= '0' then return { id[1], minus_one(id[2]) } end
  if id[1] ~= '0' then return { minus_one(id[1]), END[2] } end
  return id
end

-- The least id up to which all groups have done everything, and whose it is: of several, the
-- first by name.
local floor, holder
local function lower_to(id, group)
  if not floor or is_less(id, floor) or (group < holder and not is_less(floor, id)) then
    floor, holder = id, group
  end
end

-- Consumer groups that anybody made: they have done what was delivered and acknowledged.
local function look_at_consumer_groups(key)
  for _, fields in ipairs(redis.call('XINFO', 'GROUPS', key)) do
    local group = {}
    for i = 1, #fields, 2 do group[fields[i]] = fields[i + 1] end
    local delivered = id_parse(group['last-delivered-id'])
    local least = group.pending > 0 and redis.call('XPENDING', key, group.name)[2]
    local pending = least and id_before(id_parse(least))
    lower_to(pending and is_less(pending, delivered) and pending or delivered, group.name)
  end
end

local function trim_before(key, id, limit)
  return redis.call('XTRIM', key, 'MINID', '~', id_text(id), 'LIMIT', text_of(limit))
end

-- Removes what is older than so long, or beyond the newest so many, and not above the floor.
local function trim(key, max_age_ms, newest)
  local needed = floor and id_after(floor) or END
  local aged = { text_of(math.max(clock_last - max_age_ms, 0)), '0' }
  local removed = trim_before(key, is_less(needed, aged) and needed or aged, count)
  local excess = newest and redis.call('XLEN', key) - newest or 0
  -- No node with more entries than these is removed, so that the newest stay. 0 would mean
  -- without end.
  local limit = math.min(excess, count - removed)
  if limit > 0 then removed = removed + trim_before(key, needed, limit) end
  return removed
end

local events, late = 0, 0
if trims then
  look_at_consumer_groups(KEYS[2])
  late = trim(KEYS[2], late_retain_ms)
  floor, holder = nil, nil
end
look_at_consumer_groups(KEYS[1])
local registered = redis.call('HGETALL', KEYS[20])
for i = 1, #registered, 2 do
  if registered[i] ~= '' then lower_to(id_parse(registered[i + 1]), registered[i]) end
end
if trims then events = trim(KEYS[1], retain_ms, retain_entries) end
-- As much as half of what it may remove: there is likely more.
local more = math.max(events, late) * 2 >= count
if trims and not more then
  changed[#changed + 1] = 'trimmed_at'
  changed[#changed + 1] = text_of(time)
end
return answer(1, events, late, trims and more, floor and id_text(floor) or '', holder or '')
