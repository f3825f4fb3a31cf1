-- What becomes of nearly all events that are not in their turn, without the tables of the rules: they
-- are parked in a lane that waits for nothing or for one gap, or fill the gap that all waits for. What
-- is written is what the rules would write; whatever is not as usual is left to them.
local usual = {}

-- The state of a lane that waits with one more parked; nil if it is not behind all others.
function usual.parked_behind(parked, sequence, number)
  local head, last = string.match(parked, '^(.-)(%d+)$')
  local ahead = number - tonumber(last)
  if ahead == 1 then
    return string.sub(head, -1) == '-' and head .. sequence or parked .. '-' .. sequence
  end
  if ahead > 1 then return parked .. ',' .. sequence end
end

function usual.may_park(sequence, next, count, bytes, size)
  return sequence > next and not refusal(sequence, next, count, bytes, size) and not lane_refusal(count, bytes, size)
end

function usual.park(entity, epoch, sequence, event, size, count)
  parked_now[#parked_now + 1] = epoch .. ':' .. sequence .. ':' .. entity
  parked_now[#parked_now + 1] = event_text(event)
  load_events, load_bytes = load_events + 1, load_bytes + size
  return 'K' .. text_of(count)
end

-- The first event that is parked.
function usual.open(entity, epoch, sequence, next, event)
  local number, size = tonumber(sequence), event_size(event)
  if not usual.may_park(number, tonumber(next), 0, 0, size) then return end
  local time = now()
  local deadline = time + math.min(gap_wait(entity, 0), parked_age_max)
  states[#states + 1] = entity
  states[#states + 1] = string.format('%s:%s;k1,%d,%s;g%d,%s,0,%d,0,%d', epoch, next, size, sequence, time, sequence,
    time, deadline)
  due_now[#due_now + 1] = text_of(deadline)
  due_now[#due_now + 1] = entity
  return usual.park(entity, epoch, sequence, event, size, 1)
end

-- One more behind it.
function usual.join(entity, epoch, sequence, next, event, count, bytes, parked, clock)
  local number, size = tonumber(sequence), event_size(event)
  count, bytes = tonumber(count), tonumber(bytes)
  local behind = usual.parked_behind(parked, sequence, number)
  if not behind or not usual.may_park(number, tonumber(next), count, bytes, size) then return end
  states[#states + 1] = entity
  states[#states + 1] = string.format('%s:%s;k%d,%d,%s;g%s', epoch, next, count + 1, bytes + size, behind, clock)
  return usual.park(entity, epoch, sequence, event, size, count + 1)
end

-- What all that is parked waits for, and all of that with it.
function usual.fill(entity, epoch, sequence, row, count, parked, opened)
  local from, to = string.match(parked, '^(%d+)%-?(%d*)$')
  local number = tonumber(sequence)
  from, to, count = tonumber(from), tonumber(to), tonumber(count)
  to = to or from
  if from ~= number + 1 or count ~= to - number or not has_room(count + 1) then return end
  local fields, events, size = {}, {}, 0
  for i = 1, count do fields[i] = epoch .. ':' .. text_of(number + i) .. ':' .. entity end
  for i, text in ipairs(redis.call('HMGET', KEYS[4], unpack(fields))) do
    local event = text and event_parse(text)
    if not event or (event.terminal and i < count) then return end
    events[i], size = event, size + event_size(event)
  end
  note('f' .. text_of(now() - tonumber(opened)))
  local at = #appends + 1
  appends[at] = { KEYS[1], entity, epoch, sequence, 'strict', row }
  for i = 1, count do
    appends[at + i] = { KEYS[1], entity, epoch, text_of(number + i), 'strict', events[i] }
    parked_gone[#parked_gone + 1] = fields[i]
  end
  drained, load_events, load_bytes = drained + count, load_events - count, load_bytes - size
  states[#states + 1] = entity
  states[#states + 1] = epoch .. ':' .. text_of(to + 1) .. (events[count].terminal and 'c' or '')
  due_never[#due_never + 1] = entity
  return { 'R', sequence, at }
end

-- Decides about the only event of a lane in this call; nil if that is not as usual.
function usual.decide(i, entity, text)
  local epoch, sequence, digest, event = offers.read(i)
  if sequence == '' or event.terminal or terminal_types[event.kind] then return end
  local its_epoch, next = string.match(text, '^(%d+):(%d+)$')
  if its_epoch == epoch then return usual.open(entity, epoch, sequence, next, event) end
  local count, bytes, parked, clock, opened
  its_epoch, next, count, bytes, parked, clock, opened =
    string.match(text, '^(%d+):(%d+);k(%d+),(%d+),([^;]+);g(%d+,%d+,%d+,(%d+),%d+,%d+)$')
  if its_epoch ~= epoch then return end
  if sequence ~= next then
    return usual.join(entity, epoch, sequence, next, event, count, bytes, parked, clock)
  end
  local _, _, row = offers.foreseen(i)
  return usual.fill(entity, epoch, sequence, row, count, parked, opened)
end
