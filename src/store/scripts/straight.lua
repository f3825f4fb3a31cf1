-- Judges what the same transaction is about to write: entries, the states of their lanes, and what is parked. If
-- anything is not as the caller predicted, all of that is barred until unbar.lua, at the end of the transaction: the
-- stream's last id is the greatest there is, so that no XADD finds one, and the hashes are elsewhere.
--
-- A caller knows by heart where lanes are that it moved itself, as long as nobody else has moved any. So it leaves a
-- token at the end of the header, another one each time. Whoever moves lanes in its place removes it, and a store
-- that went back in time has an older one. Where it is still there, what rests on it need not be looked at.
--
-- KEYS  1 events  2 lanes  3 meta  4-7 born  8-11 tombs  12 barred: the stream's last id while it is barred
--       13 barred:lanes: the lanes meanwhile  14 parked  15 barred:parked  16 gaps
--       Those that are barred are never to be seen outside of a transaction
-- ARGV  1 header that the caller expects in meta if there is no token  2 the token that it left, or ''
--       3 the one that it leaves now  4 'rests' if anything rests on the one that it left, or ''
--       5 number of lanes L that are to be looked at  6 their states, a line for each  7 tombstones' names of the F
--       lanes that begin, 16 digits each
--       then the entities: L that are looked at, F whose lanes begin
--       `waiting` is that of straight_waiting.lua, or nil if there is nothing for it to do
-- Reply {2 or 1, time}: it is as predicted, and the caller's token was there or not; the partition's clock if there was
--       something for `waiting` to do
--       {0, reason, 1 or 0}: nothing is going to be changed; the caller's token was there or not
local NAME, FIXED = 16, 7
local looked_at, begin = tonumber(ARGV[5]), #ARGV[7] / NAME
local begin_at = FIXED + looked_at
local healthy = string.sub(ARGV[1], 1, -2)
local has_token = false

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
  -- Nothing goes wrong from here on, but for what concerns the first write as well.
  redis.call('HSET', KEYS[3], 'header', healthy .. ARGV[3])
  if begin > 0 then
    redis.call('RPUSH', KEYS[4 + string.sub(rings, 1, 1)], unpack(ARGV, begin_at + 1, begin_at + begin))
  end
  if waiting then waiting.write() end
end

local is_sound, reason = pcall(surprise)
if is_sound and not reason then return { has_token and 2 or 1, waiting and waiting.time or '' } end
local last = ''
if redis.call('TYPE', KEYS[1]).ok == 'stream' then
  local stream = redis.call('XINFO', 'STREAM', KEYS[1])
  for i = 1, #stream, 2 do
    if stream[i] == 'last-generated-id' then last = stream[i + 1] end
  end
  redis.call('XSETID', KEYS[1], '18446744073709551615-18446744073709551615')
end
redis.call('SET', KEYS[12], last)
if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('RENAME', KEYS[2], KEYS[13]) end
if redis.call('EXISTS', KEYS[14]) == 1 then redis.call('RENAME', KEYS[14], KEYS[15]) end
return { 0, tostring(reason), has_token and 1 or 0 }
