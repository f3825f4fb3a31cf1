-- admit, part 3 of 3: the slow path, the rules themselves (ARCHITECTURE.md, "The
-- rules"; src/order/lane.rs says the same in Rust).
--
-- First everything is decided on tables in memory, reading what is needed; then
-- everything is written. Redis does not roll a failed script back, so nothing that
-- can fail may stand between two writes.
local WIRE = '1'
if string.match(header, '^w(%d+)|') ~= WIRE then
  return redis.error_reply('WIRE this partition was written by another version: ' .. header)
end
local stored = redis.call('HMGET', KEYS[6], 'policy', 'parked_bytes')
local policy = {}
for word in string.gmatch(stored[1], '[^:]+') do policy[#policy + 1] = word end
local first, ordering, late_place = tonumber(policy[1]), policy[2], policy[3]
local parked_max, parked_bytes_max = tonumber(policy[4]), tonumber(policy[5])
local partition_parked_max, partition_parked_bytes_max = tonumber(policy[6]), tonumber(policy[7])
local ahead_max, append_max = tonumber(policy[8]), tonumber(policy[9])

local load_events = redis.call('HLEN', KEYS[4]) - 1
local load_bytes = tonumber(stored[2])
local load_bytes_before = load_bytes
local appends, drained, after_terminal, again = {}, 0, 0, false
local lanes, touched = {}, {}   -- entity -> lane; those whose state may have changed, in order
local fresh, taken = {}, {}     -- parked field -> event of this call; -> true if stored before it
local verdicts = {}

for i = 1, lane_count do
  local entity = ARGV[3 + i]
  if found[i] then lanes[entity] = lane_parse(entity, found[i]) end
end

local function touch(lane)
  if not lane.touched then
    lane.touched = true
    touched[#touched + 1] = lane
  end
end

local function has_room(entries)
  return #appends + entries <= append_max
end

local function append(key, lane, epoch, sequence, kind, order, attrs, data)
  appends[#appends + 1] = { key, lane.entity, text_of(epoch), text_of(sequence), kind, order, attrs, data }
  touch(lane)
end

local function append_next(lane, event)
  if lane.closed then after_terminal = after_terminal + 1 end
  append(KEYS[1], lane, lane.epoch, lane.next, event.kind, lane.passing and 'passed' or 'strict',
    event.attrs, event.data)
  lane.next = lane.next + 1
  lane.closed = lane.closed or event.terminal
end

local function mark_gap(lane, reason, from, to)
  append(KEYS[1], lane, lane.epoch, to, 'seriatim.gap', 'marker',
    '{"reason":"' .. reason .. '","from":' .. text_of(from) .. '}', '')
end

local function parked_field(lane, sequence)
  return text_of(lane.epoch) .. ':' .. text_of(sequence) .. ':' .. lane.entity
end

local function event_size(event)
  return #event.kind + #event.attrs + #event.data
end

-- A parked event as text: tag:length of type:length of attrs:type attrs data
local function event_text(event)
  return (event.terminal and 't' or '-') .. ':' .. #event.kind .. ':' .. #event.attrs .. ':'
    .. event.kind .. event.attrs .. event.data
end

local function event_parse(text)
  local tag, kind_size, attrs_size, at = string.match(text, '^(.):(%d+):(%d+):()')
  local attrs_at = at + tonumber(kind_size)
  local data_at = attrs_at + tonumber(attrs_size)
  return {
    terminal = tag == 't', kind = string.sub(text, at, attrs_at - 1),
    attrs = string.sub(text, attrs_at, data_at - 1), data = string.sub(text, data_at),
  }
end

local function parked_get(lane, sequence)
  local field = parked_field(lane, sequence)
  if fresh[field] then return fresh[field] end
  local text = redis.call('HGET', KEYS[4], field)
  return text and event_parse(text)
end

local function is_draining(lane)
  return lane.count > 0 and lane.parked[1] ~= nil and lane.parked[1][1] == lane.next
end

local function park(lane, sequence, event)
  fresh[parked_field(lane, sequence)] = event
  ranges_add(lane.parked, sequence, sequence)
  lane.count = lane.count + 1
  lane.bytes = lane.bytes + event_size(event)
  load_events = load_events + 1
  load_bytes = load_bytes + event_size(event)
  touch(lane)
end

local function drain(lane)
  while has_room(1) and is_draining(lane) do
    local event = parked_get(lane, lane.next)
    local field = parked_field(lane, lane.next)
    ranges_remove(lane.parked, lane.next)
    lane.count = lane.count - 1
    touch(lane)
    -- An event that somebody deleted from `parked` by hand becomes a gap again.
    if not event then
      if lane.count == 0 then lane.bytes = 0 end
      return
    end
    if fresh[field] then fresh[field] = nil else taken[field] = true end
    lane.bytes = lane.bytes - event_size(event)
    load_events = load_events - 1
    load_bytes = load_bytes - event_size(event)
    drained = drained + 1
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

local function skip(lane, reason)
  local lowest = lane.parked[1][1]
  mark_gap(lane, reason, lane.next, lowest - 1)
  jump(lane, lowest)
  drain(lane)
end

-- Releases all that is parked, around marked gaps. False if there was no room.
local function flush(lane)
  drain(lane)
  while lane.count > 0 do
    if is_draining(lane) or not has_room(1) then return false end
    skip(lane, 'epoch')
  end
  while lane.passing and #lane.missing > 0 do
    if not has_room(1) then return false end
    local range = table.remove(lane.missing, 1)
    mark_gap(lane, 'epoch', range[1], range[2])
  end
  return true
end

local function rebase(lane, epoch)
  append(KEYS[1], lane, epoch, first, 'seriatim.epoch', 'marker',
    '{"previous":' .. text_of(lane.epoch) .. '}', '')
  lane.epoch, lane.next, lane.closed, lane.missing, lane.recent = epoch, first, false, {}, ''
end

local function refusal(sequence, next, count, bytes, size)
  if sequence - next > ahead_max then return 'ahead_max' end
  if count + 1 > parked_max then return 'parked_max' end
  if bytes + size > parked_bytes_max then return 'parked_bytes_max' end
  if load_events + 1 > partition_parked_max then return 'partition_parked_max' end
  if load_bytes + size > partition_parked_bytes_max then return 'partition_parked_bytes_max' end
end

-- Verdicts: one letter, then what belongs to it. For R, P and L it is the sequence;
-- the entry's id is put in front of it once it is known.
local function released(lane, letter, sequence)
  return { letter, text_of(sequence), #appends }
end

local function admit_below_next(lane, sequence, event)
  if not ranges_find(lane.missing, sequence) then return 'D' .. text_of(sequence) end
  if not has_room(1) then return 'A' end
  ranges_remove(lane.missing, sequence)
  ranges_merge_down(lane.missing)
  append(late_place == 'aside' and KEYS[2] or KEYS[1], lane, lane.epoch, sequence, event.kind, 'late',
    event.attrs, event.data)
  lane.closed = lane.closed or event.terminal
  return released(lane, 'L', sequence)
end

local function admit_given(lane, sequence, event)
  if sequence < lane.next then return admit_below_next(lane, sequence, event) end
  if ranges_find(lane.parked, sequence) then
    local parked = parked_get(lane, sequence)
    -- An event that somebody deleted from `parked` by hand is welcome once more.
    if not parked then
      fresh[parked_field(lane, sequence)] = event
      return 'K' .. text_of(lane.count)
    end
    local same = parked.kind == event.kind and parked.data == event.data
    return same and 'D' .. text_of(sequence) or 'C'
  end
  if sequence == lane.next then
    if not has_room(1) then return 'A' end
    append_next(lane, event)
    local verdict = released(lane, 'R', sequence)
    drain(lane)
    return verdict
  end
  local reason = refusal(sequence, lane.next, lane.count, lane.bytes, event_size(event))
  if reason then return 'F' .. reason end
  park(lane, sequence, event)
  return 'K' .. text_of(lane.count)
end

local function admit_assigned(lane, digest, event)
  local known = recent_find(lane, digest)
  if known then return 'D' .. text_of(known) end
  if not has_room(1) then return 'A' end
  local sequence = lane.next
  recent_push(lane, digest)
  append_next(lane, event)
  return released(lane, lane.passing and 'P' or 'R', sequence)
end

local function pass(lane, sequence, event)
  local missing = sequence < lane.next
  if missing and not ranges_find(lane.missing, sequence) then return 'D' .. text_of(sequence) end
  if not has_room(1) then return 'A' end
  if missing then
    ranges_remove(lane.missing, sequence)
    ranges_merge_down(lane.missing)
    append(KEYS[1], lane, lane.epoch, sequence, event.kind, 'passed', event.attrs, event.data)
    lane.closed = lane.closed or event.terminal
  else
    jump(lane, sequence)
    append_next(lane, event)
  end
  return released(lane, 'P', sequence)
end

local function admit(lane, epoch, sequence, digest, event)
  if epoch < lane.epoch then return 'S' .. text_of(lane.epoch) end
  if epoch > lane.epoch then
    if sequence and sequence > first and not lane.passing then
      local reason = refusal(sequence, first, 0, 0, event_size(event))
      if reason then return 'F' .. reason end
    end
    if not flush(lane) or not has_room(2) then return 'A' end
    rebase(lane, epoch)
  end
  if not sequence then return admit_assigned(lane, digest, event) end
  if lane.passing then return pass(lane, sequence, event) end
  return admit_given(lane, sequence, event)
end

-- What was promised comes before what is new: lanes that ran out of room.
local was_draining = string.sub(header, -1) == 'd'
local strays = {}   -- listed in gaps, but somebody deleted the lane by hand
if was_draining then
  for _, entity in ipairs(redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', 0, 'LIMIT', 0, append_max)) do
    local text = not lanes[entity] and redis.call('HGET', KEYS[3], entity)
    if text then lanes[entity] = lane_parse(entity, text) end
    if lanes[entity] then
      touch(lanes[entity])
      drain(lanes[entity])
    else
      strays[#strays + 1] = entity
    end
  end
end

local row = rows_at
for i = 1, event_count do
  local entity, epoch, tag = ARGV[row + 1], tonumber(ARGV[row + 2]), ARGV[row + 7]
  local event = {
    kind = ARGV[row + 4], attrs = ARGV[row + 5], data = ARGV[row + 6],
    terminal = string.sub(tag, 1, 1) == 't',
  }
  local lane = lanes[entity] or lane_new(entity, epoch, first, ordering == 'off')
  local verdict = admit(lane, epoch, tonumber(ARGV[row + 3]), string.sub(tag, 2), event)
  local letter = type(verdict) == 'table' and verdict[1] or string.sub(verdict, 1, 1)
  if letter ~= 'A' and letter ~= 'F' then lanes[entity] = lane end
  again = again or letter == 'A'
  verdicts[i] = verdict
  row = row + 7
end

-- Nothing was written so far. From here on nothing is decided.
local ids = {}
for i, entry in ipairs(appends) do
  ids[i] = redis.call('XADD', entry[1], '*', 'entity', entry[2], 'epoch', entry[3], 'sequence', entry[4],
    'type', entry[5], 'order', entry[6], 'attrs', entry[7], 'data', entry[8])
end

-- The states directly behind the entries: whatever comes to a script in between (a
-- command that the user may not run, say), the less a retry finds half done the better.
local states = {}
for _, lane in ipairs(touched) do
  states[#states + 1] = lane.entity
  states[#states + 1] = lane_text(lane)
end
if #states > 0 then redis.call('HSET', KEYS[3], unpack(states)) end

local parked_now, parked_gone = {}, {}
for field, event in pairs(fresh) do
  parked_now[#parked_now + 1] = field
  parked_now[#parked_now + 1] = event_text(event)
end
for field in pairs(taken) do parked_gone[#parked_gone + 1] = field end
if #parked_now > 0 then redis.call('HSET', KEYS[4], unpack(parked_now)) end
if #parked_gone > 0 then redis.call('HDEL', KEYS[4], unpack(parked_gone)) end

local left_draining = false
for _, lane in ipairs(touched) do
  if is_draining(lane) then
    left_draining = true
    redis.call('ZADD', KEYS[5], 0, lane.entity)
  elseif was_draining then
    redis.call('ZREM', KEYS[5], lane.entity)
  end
end
if #strays > 0 then redis.call('ZREM', KEYS[5], unpack(strays)) end
if was_draining then left_draining = redis.call('ZCOUNT', KEYS[5], '-inf', 0) > 0 end
if was_draining ~= left_draining then
  header = string.sub(header, 1, -2) .. (left_draining and 'd' or '-')
  redis.call('HSET', KEYS[6], 'header', header)
end
if load_bytes ~= load_bytes_before then
  redis.call('HSET', KEYS[6], 'parked_bytes', text_of(load_bytes))
end
-- Every path writes: since Redis 7.2 WAIT waits for the connection's own last write
-- only, and a duplicate's verdict must not overtake the original's replication.
redis.call('HINCRBY', KEYS[6], 'slow_calls', 1)

local more = (again or left_draining) and 1 or 0
local reply = { 'slow', more, drained, after_terminal }
for i, verdict in ipairs(verdicts) do
  if type(verdict) == 'table' then
    verdict = verdict[1] .. ids[verdict[3]] .. ' ' .. verdict[2]
  end
  reply[4 + i] = verdict
end
return reply
