-- Judges what the same transaction is about to write: entries, and the states of their lanes. If anything
-- is not as the caller predicted, all of that is barred until unbar.lua, at the end of the transaction: the
-- stream's last id is the greatest there is, so that no XADD finds one, and the lanes are elsewhere.
--
-- KEYS  1 events  2 lanes  3 meta  4-7 born  8-11 tombs  12 barred: the stream's last id while it is barred
--       13 barred:lanes: the lanes meanwhile. Neither is ever to be seen outside of a transaction
-- ARGV  1 header that the caller expects in meta  2 number of lanes L that go on  3 their states, with
--       commas between them  4 tombstones' names of those that begin, 16 digits each
--       then the entities: L whose lanes go on, then those whose lanes begin
-- Reply 1: it is as predicted; 0: nothing is going to be changed
local NAME = 16
local going, begin = tonumber(ARGV[2]), 4 + tonumber(ARGV[2])

local function is_predicted()
  if redis.call('TYPE', KEYS[1]).ok ~= 'stream' then return end
  local header, rings = unpack(redis.call('HMGET', KEYS[3], 'header', 'rings'))
  if header ~= ARGV[1] then return end
  local found = redis.call('HMGET', KEYS[2], unpack(ARGV, 5))
  -- A state in which all is well has no comma in it; one that is missing cannot be joined.
  if table.concat(found, ',', 1, going) ~= ARGV[3] then return end
  if begin == #ARGV then return true end
  for i = going + 1, #found do
    if found[i] then return end
  end
  for bucket = 1, 4 do
    if string.sub(rings, 2 + bucket, 2 + bucket) == '1' then
      local names = {}
      for at = 1, #ARGV[4], NAME do names[#names + 1] = string.sub(ARGV[4], at, at + NAME - 1) end
      for _, tomb in ipairs(redis.call('HMGET', KEYS[7 + bucket], unpack(names))) do
        if tomb then return end
      end
    end
  end
  -- The last that can go wrong.
  redis.call('RPUSH', KEYS[4 + string.sub(rings, 1, 1)], unpack(ARGV, begin + 1))
  return true
end

local is_sound, is_good = pcall(is_predicted)
if is_sound and is_good then return 1 end
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
return 0
