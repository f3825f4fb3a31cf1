-- Judges what the same transaction is about to write: entries, the states of their lanes, and what is parked. The
-- commands behind it write to other keys than these are under (`writable`). If all is as the caller predicted, the stream
-- and the hashes are put there, and the last commands of the transaction put them back. If anything is not, or if
-- nobody ran this script, what those commands write goes nowhere.
--
-- A caller knows by heart where lanes are that it moved itself, as long as nobody else has moved any. So it leaves a
-- token at the end of the header, another one each time. Whoever moves lanes in its place removes it, and a store
-- that went back in time has an older one. Where it is still there, what rests on it need not be looked at.
--
-- KEYS  1 events  2 lanes  3 meta  4-7 born  8-11 tombs  12 writable: says that they are put there
--       13 writable:lanes  14 parked  15 writable:parked  16 gaps  17 writable:events
--       None that is writable is ever to be seen outside of a transaction
-- ARGV  1 header that the caller expects in meta if there is no token  2 the token that it left, or ''
--       3 the one that it leaves now  4 'rests' if anything rests on the one that it left, or ''
--       5 number of lanes L that are to be looked at  6 their states, a line for each  7 tombstones' names of the F
--       lanes that begin, 16 digits each  8 'rest' if a call of admit follows in the same transaction, or ''
--       then the entities: L that are looked at, F whose lanes begin
--       `waiting` is that of straight_waiting.lua, or nil if there is nothing for it to do
-- Reply {2 or 1, time}: it is as predicted, and the caller's token was there or not; the partition's clock if there was
--       something for `waiting` to do
--       {0, reason, 1 or 0}: nothing is going to be changed; the caller's token was there or not
local NAME, FIXED = 16, 8
local looked_at, begin = tonumber(ARGV[5]), #ARGV[7] / NAME
local begin_at = FIXED + looked_at
local healthy = string.sub(ARGV[1], 1, -2)
local has_token, moved = false, {}

-- Puts a key where the commands write.
local function put(from, to)
  redis.call('RENAME', KEYS[from], KEYS[to])
  moved[to] = from
end

-- What is not as predicted; nothing if all is.
local function surprise()
  if redis.call('TYPE', KEYS[1]).ok ~= 'stream' then return 'no stream' end
  local header, rings = unpack(redis.call('HMGET', KEYS[3], 'header', 'rings'))
  has_token = header == healthy .. ARGV[2]
  if not has_token and ARGV[4] == 'rests' then return 'token' end
  if not has_token and header ~= ARGV[1] and string.match(header, '^(.*|)%d+$') ~= healthy then return 'header' end
  local found = {}
  if begin_at + begin > FIXED then
    found = redis.call('HMGET', KEYS[2], unpack(ARGV, FIXED + 1, begin_at + begin))
  end
  -- None that is expected has two lines; one that is missing cannot be joined.
  if table.concat(found, '\n', 1, looked_at) ~= ARGV[6] then return 'lane' end
  for i = looked_at + 1, #found do
    if found[i] then return 'lane' end
  end
  if waiting and not waiting.is_room(begin_at + begin) then return 'room' end
  for bucket = 1, begin > 0 and 4 or 0 do
    if string.sub(rings, 2 + bucket, 2 + bucket) == '1' then
      local names = {}
      for at = 1, #ARGV[7], NAME do names[#names + 1] = string.sub(ARGV[7], at, at + NAME - 1) end
      for _, tomb in ipairs(redis.call('HMGET', KEYS[7 + bucket], unpack(names))) do
        if tomb then return 'tombstone' end
      end
    end
  end
  -- What only this way needs comes first: for a user who may not do it nothing has been written.
  if ARGV[8] == 'rest' then redis.call('SET', KEYS[12], '') end
  put(2, 13)
  if waiting then put(14, 15) end
  put(1, 17)
  redis.call('HSET', KEYS[3], 'header', healthy .. ARGV[3])
  if begin > 0 then
    redis.call('RPUSH', KEYS[4 + string.sub(rings, 1, 1)], unpack(ARGV, begin_at + 1, begin_at + begin))
  end
  if waiting then waiting.write() end
end

local is_sound, reason = pcall(surprise)
if is_sound and not reason then return { has_token and 2 or 1, waiting and waiting.time or '' } end
-- All of them or none.
redis.call('DEL', KEYS[12])
for to, from in pairs(moved) do redis.call('RENAME', KEYS[to], KEYS[from]) end
return { 0, tostring(reason), has_token and 1 or 0 }
