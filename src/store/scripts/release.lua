-- Writing in turn: what is next, what was parked behind it, and the marks for what is
-- given up in between (src/order/lane/release.rs).

local function parked_field(lane, sequence)
  return text_of(lane.epoch) .. ':' .. text_of(sequence) .. ':' .. lane.entity
end

local function event_size(event)
  return #event.kind + #event.attrs + #event.data
end

-- An event as text, parked or in a stream: tag:length of type:length of attrs:type attrs data.
-- One that came as such a text still has it.
local function event_text(event)
  local tag = event.terminal and 't' or '-'
  if event.text and string.sub(event.text, 1, 1) == tag then return event.text end
  return tag .. ':' .. #event.kind .. ':' .. #event.attrs .. ':' .. event.kind .. event.attrs .. event.data
end

local function event_parse(text)
  local tag, kind_size, attrs_size, at = string.match(text, '^(.):(%d+):(%d+):()')
  local attrs_at = at + tonumber(kind_size)
  local data_at = attrs_at + tonumber(attrs_size)
  return {
    text = text, terminal = tag == 't', kind = string.sub(text, at, attrs_at - 1),
    attrs = string.sub(text, attrs_at, data_at - 1), data = string.sub(text, data_at),
  }
end

-- What was fetched of `parked`: a text, or false.
local fetched = {}

local function parked_get(field)
  if fresh[field] then return fresh[field] end
  local text = fetched[field]
  if text == nil then text = redis.call('HGET', KEYS[4], field) end
  return text and event_parse(text)
end

-- Fetches so many parked events in one go.
local function parked_fetch(lane, from, count)
  local fields = {}
  for i = 1, count do fields[i] = parked_field(lane, from + i - 1) end
  for i, text in ipairs(redis.call('HMGET', KEYS[4], unpack(fields))) do fetched[fields[i]] = text end
end

local function park(lane, sequence, event)
  fresh[parked_field(lane, sequence)] = event
  ranges_add(lane.parked, sequence, sequence)
  lane.count = lane.count + 1
  lane.bytes = lane.bytes + event_size(event)
  if event.terminal then lane.terminals = lane.terminals + 1 end
  load_events = load_events + 1
  load_bytes = load_bytes + event_size(event)
  touch(lane)
end

-- Takes a parked event out; nil if somebody deleted it by hand.
local function unpark(lane, sequence)
  local field = parked_field(lane, sequence)
  local event = parked_get(field)
  ranges_remove(lane.parked, sequence)
  lane.count = lane.count - 1
  touch(lane)
  if not event then
    if lane.count == 0 then lane.bytes, lane.terminals = 0, 0 end
    return nil
  end
  if fresh[field] then fresh[field] = nil else taken[field] = true end
  lane.bytes = lane.bytes - event_size(event)
  if event.terminal then lane.terminals = lane.terminals - 1 end
  load_events = load_events - 1
  load_bytes = load_bytes - event_size(event)
  drained = drained + 1
  return event
end

local function is_listed(list, kind)
  for _, known in ipairs(list or {}) do
    if known == kind then return true end
  end
  return false
end

-- Appends what the lifecycle has an opinion about.
local function append_judged(lane, order, sequence, event)
  if lifecycle then
    local stage, kind = lane.stage, event.kind
    local allowed
    if stage then allowed = lifecycle.transitions[stage] else allowed = lifecycle.initial end
    if not is_listed(allowed, kind) then
      note('i')
      local attrs, mark = event.attrs, '"illegal":"' .. (stage or '') .. '"}'
      attrs = attrs == '{}' and '{' .. mark or string.sub(attrs, 1, -2) .. ',' .. mark
      event = { kind = kind, attrs = attrs, data = event.data, terminal = event.terminal }
    end
    if is_listed(lifecycle.known, kind) then lane.stage = kind end
  end
  append(KEYS[1], lane, lane.epoch, sequence, order, event)
end

local function append_next(lane, event)
  if lane.opened then
    note('f' .. text_of(now() - lane.opened))
    lane.opened = nil
  end
  if lane.closed then after_terminal = after_terminal + 1 end
  append_judged(lane, passes(lane) and 'passed' or 'strict', lane.next, event)
  lane.next = lane.next + 1
  lane.closed = lane.closed or event.terminal
end

local function mark_gap(lane, reason, from, to, waited)
  local attrs = '{"reason":"' .. reason .. '","from":' .. text_of(from)
  if waited then attrs = attrs .. ',"waited":' .. text_of(waited) end
  if reason == 'operator' and audit ~= '' then attrs = attrs .. ',' .. audit end
  append(KEYS[1], lane, lane.epoch, to, 'marker', marker('seriatim.gap', attrs .. '}'))
end

local function drain(lane)
  local run = lane.parked[1]
  if run and run[1] == lane.next then
    local count = math.min(run[2] - run[1] + 1, append_max - #appends)
    if count > 1 then parked_fetch(lane, run[1], count) end
  end
  while has_room(1) and lane.count > 0 and lane.parked[1][1] == lane.next do
    local event = unpark(lane, lane.next)
    -- An event that somebody deleted from `parked` by hand becomes a gap again.
    if not event then return end
    append_next(lane, event)
  end
end

-- Moves next up; what lies between is missing from now on.
local function jump(lane, to)
  if to > lane.next then
    ranges_add(lane.missing, lane.next, to - 1)
    ranges_merge_down(lane.missing)
    lane.next = to
  end
end

-- Marks what lies at next and moves next behind it.
local function give_up(lane, reason, to)
  local waited = lane.opened and now() - lane.opened
  lane.opened = nil
  mark_gap(lane, reason, lane.next, to, waited)
  jump(lane, to + 1)
end

local function skip(lane, reason)
  give_up(lane, reason, lane.parked[1][1] - 1)
  drain(lane)
end

-- First and last of the lowest missing run of a lane that passes, of which no marker speaks.
local function first_unmarked(lane)
  if lane.unmarked then return ranges_first_from(lane.missing, lane.unmarked) end
  if lane.mode ~= 'e' and #lane.missing > 0 then return lane.missing[1][1], lane.missing[1][2] end
end

-- Releases all that is parked, around marked gaps. False if there was no room.
local function flush(lane)
  drain(lane)
  while lane.count > 0 do
    if is_draining(lane) or not has_room(1) then return false end
    note('xepoch')
    skip(lane, 'epoch')
  end
  local from, to = first_unmarked(lane)
  while from do
    if not has_room(1) then return false end
    mark_gap(lane, 'epoch', from, to)
    lane.unmarked, lane.shadow = to + 1, nil
    from, to = first_unmarked(lane)
  end
  return true
end

local function rebase(lane, epoch)
  local attrs = '{"previous":' .. text_of(lane.epoch) .. '}'
  append(KEYS[1], lane, epoch, first, 'marker', marker('seriatim.epoch', attrs))
  lane.epoch, lane.next, lane.closed, lane.missing, lane.recent = epoch, first, false, {}, ''
  lane.unmarked = degraded and lane.mode == 'e' and first or nil
  lane.since, lane.shadow, lane.stage = nil, nil, nil
end
