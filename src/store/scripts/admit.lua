-- The slow path of admit: what becomes of events that are offered
-- (src/order/lane/admit.rs).

-- Why nothing new may be written to this stream.
local function full_refusal(key)
  if full then return 'Fentries_max' end
  if late_full and key == KEYS[2] then return 'Flate_max' end
end

-- Verdicts: one letter, then what belongs to it. For R, P and L it is the sequence;
-- the entry's id is put in front of it once it is known.
local function released(letter, sequence)
  return { letter, text_of(sequence), #appends }
end

-- Rule 7: gives gaps up until the event fits; never its own sequence.
local function make_room(lane, sequence, size)
  while lane_refusal(lane.count, lane.bytes, size) do
    if is_draining(lane) or not has_room(2) then return false end
    local to = sequence - 1
    if lane.count > 0 and lane.parked[1][1] < sequence then to = lane.parked[1][1] - 1 end
    note_trouble('overflow')
    give_up(lane, 'overflow', to)
    drain(lane)
    if lane.next == sequence then return true end
  end
  return true
end

local function admit_below_next(lane, sequence, event)
  if not ranges_find(lane.missing, sequence) then return 'D' .. text_of(sequence) end
  local key = late_place == 'aside' and KEYS[2] or KEYS[1]
  local refused = full_refusal(key)
  if refused then return refused end
  if not has_room(1) then return 'A' end
  ranges_remove(lane.missing, sequence)
  ranges_merge_down(lane.missing)
  append(key, lane, lane.epoch, sequence, 'late', event)
  lane.closed = lane.closed or event.terminal
  return released('L', sequence)
end

local function admit_given(lane, sequence, event)
  if sequence < lane.next then return admit_below_next(lane, sequence, event) end
  if ranges_find(lane.parked, sequence) then
    local field = parked_field(lane, sequence)
    local parked = parked_get(field)
    -- An event that somebody deleted from `parked` by hand is welcome once more.
    if not parked then
      fresh[field] = event
      return 'K' .. text_of(lane.count)
    end
    local same = parked.kind == event.kind and parked.data == event.data
    return same and 'D' .. text_of(sequence) or 'C'
  end
  if full then return full_refusal(KEYS[1]) end
  if sequence > lane.next then
    local size = event_size(event)
    local reason = refusal(sequence, lane.next, lane.count, lane.bytes, size)
    if reason then return 'F' .. reason end
    if not make_room(lane, sequence, size) then return 'A' end
  end
  if sequence == lane.next then
    if not has_room(1) then return 'A' end
    append_next(lane, event)
    local verdict = released('R', sequence)
    drain(lane)
    return verdict
  end
  local first_terminal = event.terminal and lane.terminals == 0
  park(lane, sequence, event)
  if first_terminal then shorten_wait(lane) end
  return 'K' .. text_of(lane.count)
end

local function admit_assigned(lane, digest, event)
  local known = recent_find(lane, digest)
  if known then return 'D' .. text_of(known) end
  if full then return full_refusal(KEYS[1]) end
  if not has_room(1) then return 'A' end
  local sequence = lane.next
  recent_push(lane, digest)
  append_next(lane, event)
  return released(passes(lane) and 'P' or 'R', sequence)
end

local function pass(lane, sequence, event)
  local is_missing = sequence < lane.next
  if is_missing and not ranges_find(lane.missing, sequence) then return 'D' .. text_of(sequence) end
  if lane.unmarked and sequence < lane.unmarked then return admit_below_next(lane, sequence, event) end
  if full then return full_refusal(KEYS[1]) end
  if not has_room(1) then return 'A' end
  local gap = shadow_gap_at(lane)
  local verdict
  if is_missing then
    if lane.mode == 's' then
      note('d' .. text_of(lane.next - 1 - sequence))
      if lane.shadow and sequence < lane.shadow.floor then note('l') end
    end
    ranges_remove(lane.missing, sequence)
    ranges_merge_down(lane.missing)
    append_judged(lane, 'passed', sequence, event)
    lane.closed = lane.closed or event.terminal
    verdict = released('P', sequence)
  else
    jump(lane, sequence)
    append_next(lane, event)
    verdict = released('P', sequence)
  end
  if lane.mode == 's' then measure(lane, gap, event.terminal) end
  return verdict
end

local function is_in(list, entity)
  for _, pattern in ipairs(list or {}) do
    if pattern == entity then return true end
    if string.sub(pattern, -1) == '*' and string.sub(entity, 1, #pattern - 1) == string.sub(pattern, 1, -2) then
      return true
    end
  end
  return false
end

-- The mode of a lane that is made now.
local function mode_of(entity)
  if ordering == 'off' or is_in(lists.deny, entity) then return 'p' end
  if percent < 100 and not is_in(lists.allow, entity) and mix(entity, ROLLOUT_SALT) % 10000 >= percent * 100 then
    return 'p'
  end
  return ordering == 'shadow' and 's' or 'e'
end

-- The lane begins a new epoch; if it was retired before, a new life, too.
local function begin_epoch(lane, epoch)
  if lane.reborn then
    lane.mode, lane.reborn = mode_of(lane.entity), nil
  end
  rebase(lane, epoch)
end

local function decide(lane, epoch, sequence, digest, event)
  if epoch > lane.epoch then
    if full then return full_refusal(KEYS[1]) end
    if sequence and sequence > first and not passes(lane) then
      local reason = refusal(sequence, first, 0, 0, event_size(event))
      if reason then return 'F' .. reason end
    end
    if not flush(lane) or not has_room(2) then return 'A' end
    begin_epoch(lane, epoch)
  end
  if not sequence then return admit_assigned(lane, digest, event) end
  if passes(lane) then return pass(lane, sequence, event) end
  return admit_given(lane, sequence, event)
end

local function admit(lane, epoch, sequence, digest, event)
  if epoch < lane.epoch then return 'S' .. text_of(lane.epoch) end
  event.terminal = event.terminal or terminal_types[event.kind] or false
  local verdict = settle_mode(lane) and decide(lane, epoch, sequence, digest, event) or 'A'
  keep_time(lane)
  return verdict
end

-- The lane of an entity that has none: a new one, or one woken from its tombstone; or
-- nothing and the epoch in which it has ended.
local function lane_for(entity, epoch)
  local text = tombstone_of(entity)
  if not text then
    local lane = lane_new(entity, epoch, first, mode_of(entity))
    lane.unmarked = degraded and lane.mode == 'e' and first or nil
    return lane
  end
  local lane = lane_parse(entity, text)
  if lane.closed then
    if epoch <= lane.epoch then return nil, lane.epoch end
    lane.reborn = true
  end
  -- Where an open lane was idle, it is there again whatever becomes of the event.
  lane.woken = not lane.closed
  return lane
end

-- What was promised comes before what is new: lanes that ran out of room.
if string.find(flags, 'd', 1, true) then
  for _, entity in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', 0, 'LIMIT', 0, append_max)) do
    local lane = lane_of(entity)
    if lane then go_on(lane) else due_never[#due_never + 1] = entity end
  end
end

-- The same as the fast path asks of all of them; there it is not worth a call for each.
local function is_predicted(place)
  local before = ARGV[before_at + place]
  return (found[place] or '') == before and not (has_tombs and before == '' and tombstone_of(ARGV[lanes_at + place]))
end

-- Each lane's events come together. What was predicted of a lane comes true here as well, as
-- long as there is room for all that is left: then nothing of it has to be parsed.
local verdicts, again = {}, false
local place, is_true, current = 0, false, nil
for i = 1, event_count do
  local entity = offers.entity(i)
  local verdict
  if entity ~= current then
    current, place = entity, place + 1
    is_true = is_healthy and has_room(event_count - i + 1) and is_predicted(place)
    if is_true then
      states[#states + 1] = entity
      states[#states + 1] = ARGV[after_at + 2 * place]
      if ARGV[before_at + place] == '' then born[#born + 1] = entity end
    elseif lanes[entity] == nil then
      local is_alone = is_healthy and found[place] and not lifecycle and (i == event_count or offers.entity(i + 1) ~= entity)
      verdict = is_alone and usual.decide(i, entity, found[place])
      if not verdict then lanes[entity] = found[place] and lane_parse(entity, found[place]) or false end
    end
  end
  if is_true then
    local epoch, sequence, event = offers.foreseen(i)
    appends[#appends + 1] = { KEYS[1], entity, epoch, sequence, 'strict', event }
    verdict = { 'R', sequence, #appends }
  elseif not verdict then
    local epoch, sequence, digest, event = offers.read(i)
    epoch = tonumber(epoch)
    local lane, ended = lanes[entity] or nil, nil
    local is_known = lane ~= nil
    if not is_known then lane, ended = lane_for(entity, epoch) end
    local before = #appends
    if lane then
      verdict = admit(lane, epoch, tonumber(sequence), digest, event)
      -- Its text does not say that it was retired once; so this holds for one event only.
      lane.reborn = nil
    else
      verdict = 'T' .. text_of(ended)
    end
    local letter = type(verdict) == 'table' and verdict[1] or string.sub(verdict, 1, 1)
    local leaves_trace = #appends > before or (letter ~= 'A' and letter ~= 'F' and letter ~= 'D')
    if lane and not is_known and (lane.woken or leaves_trace) then
      lanes[entity] = lane
      born[#born + 1] = entity
      touch(lane)
    end
    again = again or letter == 'A'
  end
  verdicts[i] = verdict
end
