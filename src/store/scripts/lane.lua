-- Lanes and ranges. The text form of a lane is described in src/order/state.rs; the merge
-- rule in src/order/ranges.rs; the hash in src/order/schedule.rs.
--
-- Numbers are doubles here. Sequences and epochs are at most 2^53 - 1, next at most
-- 2^53, so every one is exact; '%d' prints it exactly (as a long, and in a fifth of the time that
-- '%.0f' takes), where tostring would turn 10^14 into 1e+14.
local function text_of(number)
  return string.format('%d', number)
end

local RANGES_KEPT_MAX = 16
local RECENT_MAX = 64
local MODULUS, SPREAD, ROLLOUT_SALT = 2147483647, 48271, 7919

-- Every product stays below 2^53, so Rust computes the same, byte by byte; here four bytes are one
-- step. The entity is read once: with another salt the hash begins elsewhere, and the rest adds the
-- same to it.
local POWER_2, POWER_3, POWER_4 = 961, 29791, 923521
local hashes, powers = {}, {}
local function power_of(length)
  if not powers[length] then
    local power = 1
    for _ = 1, length do power = (power * 31) % MODULUS end
    powers[length] = power
  end
  return powers[length]
end

local function mix(entity, salt)
  local known = hashes[entity]
  if not known then
    local length, at = #entity, 1
    known = 0
    while at + 3 <= length do
      local a, b, c, d = string.byte(entity, at, at + 3)
      known = (known * POWER_4 + a * POWER_3 + b * POWER_2 + c * 31 + d) % MODULUS
      at = at + 4
    end
    for last = at, length do known = (known * 31 + string.byte(entity, last)) % MODULUS end
    hashes[entity] = known
  end
  local hash = ((salt * power_of(#entity)) % MODULUS + known) % MODULUS
  return (hash * SPREAD) % MODULUS
end

local function ranges_parse(text)
  local ranges = {}
  for run in string.gmatch(text, '[^,]+') do
    local first, last = string.match(run, '^(%d+)%-(%d+)$')
    first = tonumber(first or run)
    ranges[#ranges + 1] = { first, last and tonumber(last) or first }
  end
  return ranges
end

local function ranges_text(ranges)
  local runs = {}
  for i, range in ipairs(ranges) do
    if range[1] == range[2] then
      runs[i] = text_of(range[1])
    else
      runs[i] = text_of(range[1]) .. '-' .. text_of(range[2])
    end
  end
  return table.concat(runs, ',')
end

-- The index of the run that holds `number`, or nil and the index it would go to.
local function ranges_find(ranges, number)
  for i, range in ipairs(ranges) do
    if number < range[1] then return nil, i end
    if number <= range[2] then return i end
  end
  return nil, #ranges + 1
end

local function ranges_add(ranges, first, last)
  local _, at = ranges_find(ranges, first)
  local below, above = ranges[at - 1], ranges[at]
  if below and below[2] + 1 == first then
    below[2] = last
    if above and last + 1 == above[1] then
      below[2] = above[2]
      table.remove(ranges, at)
    end
  elseif above and last + 1 == above[1] then
    above[1] = first
  else
    table.insert(ranges, at, { first, last })
  end
end

local function ranges_remove(ranges, number)
  local at = ranges_find(ranges, number)
  if not at then return end
  local first, last = ranges[at][1], ranges[at][2]
  table.remove(ranges, at)
  if number < last then table.insert(ranges, at, { number + 1, last }) end
  if first < number then table.insert(ranges, at, { first, number - 1 }) end
end

local function ranges_merge_down(ranges)
  while #ranges > RANGES_KEPT_MAX do
    local at, nearest = 1, nil
    for i = 1, #ranges - 1 do
      local distance = ranges[i + 1][1] - ranges[i][2]
      if not nearest or distance < nearest then at, nearest = i, distance end
    end
    ranges[at][2] = ranges[at + 1][2]
    table.remove(ranges, at + 1)
  end
end

-- First and last of the lowest run that reaches `from`, without what is below.
local function ranges_first_from(ranges, from)
  for _, range in ipairs(ranges) do
    if range[2] >= from then return math.max(range[1], from), range[2] end
  end
end

local function ranges_count_from(ranges, from)
  local count = 0
  for _, range in ipairs(ranges) do
    if range[2] >= from then count = count + range[2] - math.max(range[1], from) + 1 end
  end
  return count
end

-- mode: 'e' enforcing, 's' shadow, 'p' passing. A gap has its clock in opened, attempt and
-- deadline; a shadow lane has its own in shadow. One that was plain is not listed in gaps.
local function lane_new(entity, epoch, first, mode)
  return {
    entity = entity, epoch = epoch, next = first, closed = false, mode = mode, was_plain = true,
    count = 0, bytes = 0, parked = {}, terminals = 0, missing = {}, recent = '',
  }
end

-- A lane that waits, and nothing else: nearly all that are not plain.
local WAITS = '^(%d+):(%d+);k(%d+),(%d+),([^;]+);g(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)$'
local WAITS_AS = '%d:%d;k%d,%d,%s;g%d,%d,%d,%d,%d,%d'

local function lane_parse(entity, text)
  local epoch, next, count, bytes, parked, since, upto, terminals, opened, attempt, deadline = string.match(text, WAITS)
  if epoch then
    return {
      entity = entity, epoch = tonumber(epoch), next = tonumber(next), closed = false, mode = 'e', was_plain = false,
      count = tonumber(count), bytes = tonumber(bytes), parked = ranges_parse(parked), terminals = tonumber(terminals),
      missing = {}, recent = '', since = tonumber(since), upto = tonumber(upto), opened = tonumber(opened),
      attempt = tonumber(attempt), deadline = tonumber(deadline),
    }
  end
  local flags, rest
  epoch, next, flags, rest = string.match(text, '^(%d+):(%d+)(%a*)(.*)$')
  local lane = lane_new(entity, tonumber(epoch), tonumber(next), string.match(flags, '[sp]') or 'e')
  lane.closed, lane.was_plain = string.sub(flags, 1, 1) == 'c', rest == ''
  for tag, body in string.gmatch(rest, ';(%a)([^;]*)') do
    if tag == 'k' then
      local count, bytes, sequences = string.match(body, '^(%d+),(%d+),(.*)$')
      lane.count, lane.bytes, lane.parked = tonumber(count), tonumber(bytes), ranges_parse(sequences)
    elseif tag == 'g' then
      local since, upto, terminals, gap = string.match(body, '^(%d+),(%d+),(%d+),?(.*)$')
      lane.since, lane.upto, lane.terminals = tonumber(since), tonumber(upto), tonumber(terminals)
      local opened, attempt, deadline = string.match(gap, '^(%d+),(%d+),(%d+)$')
      lane.opened, lane.attempt, lane.deadline = tonumber(opened), tonumber(attempt), tonumber(deadline)
    elseif tag == 'm' then
      lane.missing = ranges_parse(body)
    elseif tag == 'u' then
      lane.unmarked = tonumber(body)
    elseif tag == 'h' then
      local floor, opened, deadline = string.match(body, '^(%d+),?(%d*),?(%d*)$')
      lane.shadow = { floor = tonumber(floor), opened = tonumber(opened), deadline = tonumber(deadline) }
    elseif tag == 'l' then
      lane.stage = body
    elseif tag == 'i' then
      lane.recent = body
    end
  end
  return lane
end

local function lane_text(lane)
  if lane.count > 0 and lane.opened and lane.mode == 'e' and not lane.closed and not lane.unmarked and not lane.shadow
    and not lane.stage and #lane.missing == 0 and lane.recent == '' then
    return string.format(WAITS_AS, lane.epoch, lane.next, lane.count, lane.bytes, ranges_text(lane.parked),
      lane.since, lane.upto, lane.terminals, lane.opened, lane.attempt, lane.deadline)
  end
  local text = text_of(lane.epoch) .. ':' .. text_of(lane.next)
  if lane.closed then text = text .. 'c' end
  if lane.mode ~= 'e' then text = text .. lane.mode end
  if lane.count > 0 then
    text = text .. ';k' .. text_of(lane.count) .. ',' .. text_of(lane.bytes) .. ',' .. ranges_text(lane.parked)
      .. ';g' .. text_of(lane.since) .. ',' .. text_of(lane.upto) .. ',' .. text_of(lane.terminals)
    if lane.opened then
      text = text .. ',' .. text_of(lane.opened) .. ',' .. text_of(lane.attempt) .. ','
        .. text_of(lane.deadline)
    end
  end
  if #lane.missing > 0 then text = text .. ';m' .. ranges_text(lane.missing) end
  if lane.unmarked then text = text .. ';u' .. text_of(lane.unmarked) end
  if lane.shadow then
    text = text .. ';h' .. text_of(lane.shadow.floor)
    if lane.shadow.opened then
      text = text .. ',' .. text_of(lane.shadow.opened) .. ',' .. text_of(lane.shadow.deadline)
    end
  end
  if lane.stage then text = text .. ';l' .. lane.stage end
  if #lane.recent > 0 then text = text .. ';i' .. lane.recent end
  return text
end

-- The sequence that the event with this id digest got, or nil.
local function recent_find(lane, digest)
  local count = #lane.recent / 16
  for i = count, 1, -1 do
    if string.sub(lane.recent, i * 16 - 15, i * 16) == digest then
      return lane.next - 1 - (count - i)
    end
  end
end

local function recent_push(lane, digest)
  lane.recent = string.sub(lane.recent .. digest, -16 * RECENT_MAX)
end
