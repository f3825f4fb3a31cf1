-- repair: looks for what should not be there, some of it at a time, and mends what is
-- safe to mend. It decides by what it finds at this moment, so running it twice, or by
-- two at once, does no harm.
--
-- ARGV  3 'lanes', 'gaps' or 'parked'  4 cursor  5 how many to look at, about
-- Reply {next cursor ('0' at the end), then for each finding: kind, entity, what}
local findings = {}
local function find(kind, entity, what)
  for _, word in ipairs({ kind, entity, what }) do findings[#findings + 1] = word end
end

-- Where lanes are filed: lists of those that are new, hashes of closed and of open ones.
local LISTS, HASHES = { 7, 8, 9, 10 }, { 15, 16, 17, 18, 21, 22, 23, 24 }
-- A list is searched from its beginning. To file a lane twice does no harm.
local SEARCHED_MAX = 1000

-- Each lane and each sentinel is there once.
local function are_all_filed()
  local filed = 0
  for _, key in ipairs(LISTS) do filed = filed + redis.call('LLEN', KEYS[key]) - 1 end
  for _, key in ipairs(HASHES) do filed = filed + redis.call('HLEN', KEYS[key]) - 1 end
  return filed >= redis.call('HLEN', KEYS[3]) - 1
end

local function is_filed(entity)
  for _, key in ipairs(HASHES) do
    if redis.call('HEXISTS', KEYS[key], entity) == 1 then return true end
  end
  if are_all_filed() then return true end
  for _, key in ipairs(LISTS) do
    if redis.call('LPOS', KEYS[key], entity, 'MAXLEN', SEARCHED_MAX) then return true end
  end
  return false
end

-- A lane is listed under the time at which something is due in it, and filed by age.
local function look_at_lane(entity, text)
  local lane = lane_parse(entity, text)
  local wanted, listed = lane_due(lane), redis.call('ZSCORE', KEYS[5], entity)
  if wanted and not listed then
    redis.call('ZADD', KEYS[5], text_of(wanted), entity)
    find('unlisted_gap', entity, text)
  elseif listed and not wanted then
    redis.call('ZREM', KEYS[5], entity)
    find('idle_gap', entity, text)
  end
  if not is_filed(entity) then
    redis.call('RPUSH', born_key, entity)
    find('unfiled_lane', entity, text)
  end
end

-- A parked event is one of its lane's; one that was released, or whose lane is gone, is not.
local function look_at_parked(field, text)
  local epoch, sequence, entity = string.match(field, '^(%d+):(%d+):(.*)$')
  local lane = entity and lane_of(entity)
  if not lane then
    find('parked_without_lane', entity or '', field)
    return
  end
  epoch, sequence = tonumber(epoch), tonumber(sequence)
  if epoch == lane.epoch and ranges_find(lane.parked, sequence) then return end
  local event = event_parse(text)
  local was_released = epoch == lane.epoch and sequence < lane.next and not ranges_find(lane.missing, sequence)
  if was_released then
    redis.call('HDEL', KEYS[4], field)
    load_bytes = load_bytes - event_size(event)
    find('parked_twice', entity, field)
  elseif epoch == lane.epoch and sequence >= lane.next and not passes(lane) then
    ranges_add(lane.parked, sequence, sequence)
    lane.count, lane.bytes = lane.count + 1, lane.bytes + event_size(event)
    if event.terminal then lane.terminals = lane.terminals + 1 end
    keep_age(lane)
    if not is_draining(lane) and not lane.opened then
      lane.opened, lane.attempt = now(), 0
      lane.deadline = math.min(now() + gap_wait(lane.entity, 0), parked_end(lane))
    end
    redis.call('HSET', KEYS[3], entity, lane_text(lane))
    redis.call('ZADD', KEYS[5], text_of(lane_due(lane)), entity)
    redis.call('HSET', KEYS[6], 'header', header)
    find('parked_unknown_to_lane', entity, field)
  else
    find('parked_astray', entity, field)
  end
end

local next_cursor
if ARGV[3] == 'gaps' then
  local scanned = redis.call('ZSCAN', KEYS[5], ARGV[4], 'COUNT', ARGV[5])
  next_cursor = scanned[1]
  for i = 1, #scanned[2], 2 do
    local entity = scanned[2][i]
    if entity ~= '' and redis.call('HEXISTS', KEYS[3], entity) == 0 then
      redis.call('ZREM', KEYS[5], entity)
      find('gap_without_lane', entity, '')
    end
  end
else
  local key = ARGV[3] == 'lanes' and KEYS[3] or KEYS[4]
  local scanned = redis.call('HSCAN', key, ARGV[4], 'COUNT', ARGV[5])
  next_cursor = scanned[1]
  for i = 1, #scanned[2], 2 do
    local field, text = scanned[2][i], scanned[2][i + 1]
    if field ~= '' and ARGV[3] == 'lanes' then look_at_lane(field, text) end
    if field ~= '' and ARGV[3] == 'parked' then look_at_parked(field, text) end
  end
end
-- The header says whether a lane is draining; a call that was cut short may have left it wrong.
local left_draining = redis.call('ZCOUNT', KEYS[5], '-inf', 0) > 0
local flags_now = (left_draining and 'd' or '') .. (degraded and 'x' or '') .. (full and 'f' or '')
if flags_now == '' then flags_now = '-' end
if flags_now ~= flags then
  redis.call('HSET', KEYS[6], 'header', string.sub(header, 1, -#flags - 1) .. flags_now)
end
redis.call('HSET', KEYS[6], 'parked_bytes', text_of(math.max(load_bytes, 0)), 'clock', clock_text())

local reply = { next_cursor }
for _, word in ipairs(findings) do reply[#reply + 1] = word end
return reply
