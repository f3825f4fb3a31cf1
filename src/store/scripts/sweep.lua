-- sweep: looks at lanes that are old enough, retires them, forgets tombstones, and finds
-- what is stuck or never began (src/order/retire.rs). Running it twice does no harm.
--
-- KEYS  as in enter.lua, then 15-18 closed  19 announced  20 groups  21-24 opened
-- ARGV  3 entities at most, in each of three places  4 when the search began, or '' for now
-- Reply {time, retired, forgotten, more (0 or 1), then for each finding: kind, entity, time, state}
local count, time = tonumber(ARGV[3]), now()
local as_of = tonumber(ARGV[4]) or time
local stuck_after, retire_after = tonumber(policy[18]), tonumber(policy[19])
local idle_retire_after, remember_for = tonumber(policy[20]), tonumber(policy[21])
local BORN, TOMBS, CLOSED, OPENED = 6, 10, 14, 20   -- the keys of a ring follow these
local retired, forgotten, findings = 0, 0, {}

local function hand_parse(text)
  local numbers = {}
  for number in string.gmatch(text, '%d+') do numbers[#numbers + 1] = tonumber(number) end
  return { current = numbers[1], turned = numbers[2], ended = { unpack(numbers, 3, 6) } }
end

local function hand_text(hand)
  local words = { text_of(hand.current), text_of(hand.turned) }
  for i = 1, 4 do words[2 + i] = text_of(hand.ended[i]) end
  return table.concat(words, ',')
end

-- Every bucket holds a sentinel.
local function is_empty(keys, bucket)
  local is_unborn = keys ~= OPENED or redis.call('LLEN', KEYS[BORN + 1 + bucket]) <= 1
  return is_unborn and redis.call('HLEN', KEYS[keys + 1 + bucket]) <= 1
end

-- Lets the next bucket take over, if it is time and it is empty.
local function turn(keys, hand, width)
  local next = (hand.current + 1) % 4
  if time - hand.turned >= width and is_empty(keys, next) then
    hand.ended[hand.current + 1] = time
    hand.current, hand.turned = next, time
  end
end

-- The oldest bucket that is not empty, if all in it are old enough.
local function due(keys, hand, age)
  for step = 1, 3 do
    local bucket = (hand.current + step) % 4
    if hand.ended[bucket + 1] + age <= as_of and not is_empty(keys, bucket) then return bucket end
  end
end

local function file(keys, hand, entity, value)
  redis.call('HSET', KEYS[keys + 1 + hand.current], entity, value)
end

-- Adds up to `count` entities of a bucket, which nobody has looked at yet.
local function take_born(bucket, entities, values)
  local key = KEYS[BORN + 1 + bucket]
  for _, entity in ipairs(redis.call('LPOP', key, count + 1) or {}) do
    if entity ~= '' and not values[entity] then
      entities[#entities + 1], values[entity] = entity, ''
    end
  end
  redis.call('LPUSH', key, '')
end

-- Takes up to `count` entities out of a bucket, with what was filed about them.
local function take(keys, bucket)
  local key = KEYS[keys + 1 + bucket]
  local entities, values = {}, {}
  if keys == OPENED then take_born(bucket, entities, values) end
  local drawn = redis.call('HRANDFIELD', key, count + 1, 'WITHVALUES')
  for i = 1, #drawn, 2 do
    if drawn[i] ~= '' and #entities < count then
      entities[#entities + 1] = drawn[i]
      values[drawn[i]] = drawn[i + 1]
    end
  end
  table.sort(entities)
  if #entities > 0 then redis.call('HDEL', key, unpack(entities)) end
  return entities, values
end

local stored_hands = redis.call('HMGET', KEYS[6], 'hand_opened', 'hand_closed', 'hand_tombs')
local opened, closed = hand_parse(stored_hands[1]), hand_parse(stored_hands[2])
local tombs = hand_parse(stored_hands[3])
turn(OPENED, opened, math.floor(stuck_after / 2))
turn(CLOSED, closed, math.floor(retire_after / 2))
turn(TOMBS, tombs, math.floor(remember_for / 2))

-- Which bucket is current, and in which tombstones are: before anything is moved, so that
-- a call that is cut short has lost sight of nothing.
local function write_rings(may_retire)
  rings = text_of(opened.current) .. ':'
  for i = 0, 3 do
    local is_used = not is_empty(TOMBS, i) or (may_retire and i == tombs.current)
    rings = rings .. (is_used and '1' or '0')
  end
  redis.call('HSET', KEYS[6], 'rings', rings, 'hand_opened', hand_text(opened), 'hand_closed',
    hand_text(closed), 'hand_tombs', hand_text(tombs), 'clock', clock_text())
end
write_rings(true)

local function retire(entity, tombstone)
  local field = tomb_field(entity)
  for i = 0, 3 do
    if i ~= tombs.current then redis.call('HDEL', KEYS[TOMBS + 1 + i], field) end
  end
  redis.call('HSET', KEYS[TOMBS + 1 + tombs.current], field, tombstone)
  redis.call('HDEL', KEYS[3], entity)
  redis.call('ZREM', KEYS[5], entity)
  retired = retired + 1
end

local bucket = due(OPENED, opened, stuck_after)
if bucket then
  local entities, values = take(OPENED, bucket)
  for _, entity in ipairs(entities) do
    local text = redis.call('HGET', KEYS[3], entity)
    local lane = text and lane_parse(entity, text)
    if lane and lane.closed and lane.count == 0 then
      file(CLOSED, closed, entity, text_of(time) .. '|' .. text)
    elseif lane then
      local since, seen = string.match(values[entity], '^(%d+)|(.*)$')
      since = seen == text and tonumber(since) or time
      if idle_retire_after > 0 and time - since >= idle_retire_after and not lane_due(lane) then
        -- Somebody may know it by heart (straight.lua).
        redis.call('HSET', KEYS[6], 'header', header)
        retire(entity, text)
      else
        file(OPENED, opened, entity, text_of(since) .. '|' .. text)
        for _, word in ipairs({ 'stuck', entity, text_of(since), text }) do findings[#findings + 1] = word end
      end
    end
  end
end

bucket = due(CLOSED, closed, retire_after)
if bucket then
  local entities, values = take(CLOSED, bucket)
  for _, entity in ipairs(entities) do
    local text = redis.call('HGET', KEYS[3], entity)
    local lane = text and lane_parse(entity, text)
    if lane and (not lane.closed or lane.count > 0) then
      file(OPENED, opened, entity, '')
    elseif lane and string.match(values[entity], '^%d+|(.*)$') == text and not lane_due(lane) then
      local tombstone = text_of(lane.epoch) .. ':' .. text_of(lane.next) .. 'c'
      -- What a lane that passes misses is marked when its next epoch begins.
      if lane.mode ~= 'e' and #lane.missing > 0 then
        tombstone = tombstone .. lane.mode .. ';m' .. ranges_text(lane.missing)
      end
      retire(entity, tombstone)
    elseif lane then
      file(CLOSED, closed, entity, text_of(time) .. '|' .. text)
    end
  end
end

as_of = time
bucket = due(TOMBS, tombs, remember_for)
if bucket then
  local key = KEYS[TOMBS + 1 + bucket]
  forgotten = redis.call('HLEN', key) - 1
  redis.call('UNLINK', key)
  redis.call('HSET', key, '', '')
end

write_rings(false)

-- Announced entities: by when they are due; below 0 once they were reported.
local announced = redis.call('ZRANGEBYSCORE', KEYS[19], 1, text_of(time), 'WITHSCORES', 'LIMIT', 0, count)
for i = 1, #announced, 2 do
  local entity, first_due = announced[i], tonumber(announced[i + 1])
  if redis.call('HEXISTS', KEYS[3], entity) == 1 or tombstone_of(entity) then
    redis.call('ZREM', KEYS[19], entity)
  else
    redis.call('ZADD', KEYS[19], text_of(-first_due), entity)
    for _, word in ipairs({ 'missing', entity, text_of(first_due), '' }) do findings[#findings + 1] = word end
  end
end
if time >= remember_for then
  redis.call('ZREMRANGEBYSCORE', KEYS[19], text_of(remember_for - time), '(0')
end

as_of = tonumber(ARGV[4]) or time
local more = due(OPENED, opened, stuck_after) or due(CLOSED, closed, retire_after)
local reply = { text_of(time), retired, forgotten, more and 1 or 0 }
for _, word in ipairs(findings) do reply[#reply + 1] = word end
return reply
