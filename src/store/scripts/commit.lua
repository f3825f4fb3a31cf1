-- Writes what was decided. Nothing was written before this, and from here on nothing
-- is decided: Redis does not roll a failed script back, so nothing that can fail may
-- stand between two writes.

-- The breaker, once for the whole call.
if breaker_hit and not degraded and breaker_skips > 0 and has_room(1)
  and breaker_level_at(now()) >= breaker_skips * 1000 then
  append_edge('seriatim.degraded', 'breaker')
  mode, mode_since, told = 'breaker', now(), 0
end

-- The id of the entry that each of them stands in.
local ids = {}

-- An entry for each. A number instead of an event says behind which argument it is.
local function write_entries()
  for i, append in ipairs(appends) do
    local event = append[6]
    local kind, attrs, data
    if type(event) == 'number' then
      kind, attrs, data = ARGV[event + 4], ARGV[event + 5], ARGV[event + 6]
    else
      kind, attrs, data = event.kind, event.attrs, event.data
    end
    ids[i] = redis.call('XADD', append[1], '*', 'entity', append[2], 'epoch', append[3], 'sequence', append[4],
      'type', kind, 'order', append[5], 'attrs', attrs, 'data', data)
  end
end

-- One entry in each stream for all that go there (src/store/field.rs).
local function write_batches()
  local fields, entries = { [KEYS[1]] = {}, [KEYS[2]] = {} }, {}
  for _, append in ipairs(appends) do
    local of_key = fields[append[1]]
    local place = text_of(#of_key / 2)
    of_key[#of_key + 1] = place .. ':' .. append[3] .. ':' .. append[4] .. ':' .. append[5] .. ':' .. append[2]
    of_key[#of_key + 1] = type(append[6]) == 'string' and append[6] or event_text(append[6])
  end
  for i = 1, 2 do
    local of_key = fields[KEYS[i]]
    if #of_key > 0 then entries[KEYS[i]] = redis.call('XADD', KEYS[i], '*', unpack(of_key)) end
  end
  for i, append in ipairs(appends) do ids[i] = entries[append[1]] end
end

if layout == 'batch' then write_batches() else write_entries() end

-- The states directly behind the entries: whatever comes to a script in between (a
-- command that the user may not run, say), the less a retry finds half done the better.
local kept = {}
for _, lane in ipairs(touched) do
  -- A lane that was only tried, and is not to be, leaves no trace.
  if lanes[lane.entity] == lane then kept[#kept + 1] = lane end
end
for _, lane in ipairs(kept) do
  states[#states + 1] = lane.entity
  states[#states + 1] = lane_text(lane)
end
if #states > 0 then redis.call('HSET', KEYS[3], unpack(states)) end

for field, event in pairs(fresh) do
  parked_now[#parked_now + 1] = field
  parked_now[#parked_now + 1] = event_text(event)
end
for field in pairs(taken) do parked_gone[#parked_gone + 1] = field end
if #parked_now > 0 then redis.call('HSET', KEYS[4], unpack(parked_now)) end
if #parked_gone > 0 then redis.call('HDEL', KEYS[4], unpack(parked_gone)) end

for _, lane in ipairs(kept) do
  local due = lane_due(lane)
  if due then
    due_now[#due_now + 1] = text_of(due)
    due_now[#due_now + 1] = lane.entity
  elseif not lane.was_plain then
    due_never[#due_never + 1] = lane.entity
  end
end
if #due_now > 0 then redis.call('ZADD', KEYS[5], unpack(due_now)) end
if #due_never > 0 then redis.call('ZREM', KEYS[5], unpack(due_never)) end

-- Lanes by age, one write for all that are new.
if #born > 0 then
  for _, entity in ipairs(born) do
    if tombs_found[entity] then redis.call('HDEL', tombs_found[entity], tomb_field(entity)) end
  end
  redis.call('RPUSH', born_key, unpack(born))
end

local left_draining = redis.call('ZCOUNT', KEYS[5], '-inf', 0) > 0
local flags_now = (left_draining and 'd' or '') .. (mode ~= 'ordered' and 'x' or '') .. (full and 'f' or '')
if flags_now == '' then flags_now = '-' end
local changed = { 'clock', clock_text() }
if flags_now ~= flags then
  header = string.sub(header, 1, -#flags - 1) .. flags_now
  changed[#changed + 1] = 'header'
  changed[#changed + 1] = header
end
if mode .. ',' .. text_of(mode_since) ~= stored[5] then
  changed[#changed + 1] = 'mode'
  changed[#changed + 1] = mode .. ',' .. text_of(mode_since)
end
if text_of(told) ~= stored[7] then
  changed[#changed + 1] = 'told'
  changed[#changed + 1] = text_of(told)
end
if late_full ~= (stored[8] == '1') then
  changed[#changed + 1] = 'late_full'
  changed[#changed + 1] = late_full and '1' or '0'
end
if breaker_hit then
  changed[#changed + 1] = 'breaker'
  changed[#changed + 1] = text_of(breaker_level) .. ',' .. text_of(breaker_at)
end
if load_bytes ~= load_bytes_before then
  changed[#changed + 1] = 'parked_bytes'
  changed[#changed + 1] = text_of(math.max(load_bytes, 0))
end
-- Every path writes: since Redis 7.2 WAIT waits for the connection's own last write
-- only, and a duplicate's verdict must not overtake the original's replication.
redis.call('HSET', KEYS[6], unpack(changed))
-- Whoever can fill a gap is asked, wherever it is connected.
if #probes > 0 then redis.call('PUBLISH', ARGV[2], cjson.encode(probes)) end
