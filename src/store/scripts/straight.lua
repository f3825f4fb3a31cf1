-- Judges entries that the same transaction is about to append: if all is as the caller predicted, the
-- lanes go ahead; if anything is not, the stream is barred until unbar.lua, at the end of the
-- transaction: its last id is the greatest there is, so that no XADD finds one.
--
-- KEYS  1 events  2 lanes  3 meta  4-7 opened  8-11 tombs  12 barred: the stream's last id while it
--       is barred, which is never to be seen outside of a transaction
-- ARGV  1 header that the caller expects in meta  2 number of lanes L  3 number of lanes F that begin
--       then in columns: L entities, L states before, L pairs (entity, state after),
--       F pairs (entity, ''), F names of tombstones
-- Reply 1: it is as predicted; 0: nothing was changed
local lanes, firsts = tonumber(ARGV[2]), tonumber(ARGV[3])
local before, after = 3 + lanes, 3 + 2 * lanes
local filed = 3 + 4 * lanes
local tombs = filed + 2 * firsts

local function settle()
  if redis.call('TYPE', KEYS[1]).ok ~= 'stream' then return end
  local header, rings = unpack(redis.call('HMGET', KEYS[3], 'header', 'rings'))
  if header ~= ARGV[1] then return end
  local found = redis.call('HMGET', KEYS[2], unpack(ARGV, 4, before))
  for i = 1, lanes do
    if (found[i] or '') ~= ARGV[before + i] then return end
  end
  if firsts > 0 then
    for bucket = 1, 4 do
      if string.sub(rings, 2 + bucket, 2 + bucket) == '1' then
        for _, tomb in ipairs(redis.call('HMGET', KEYS[7 + bucket], unpack(ARGV, tombs + 1, tombs + firsts))) do
          if tomb then return end
        end
      end
    end
    redis.call('HSET', KEYS[4 + string.sub(rings, 1, 1)], unpack(ARGV, filed + 1, tombs))
  end
  -- The last write: nothing can go wrong behind it.
  redis.call('HSET', KEYS[2], unpack(ARGV, after + 1, filed))
  return true
end

local is_sound, is_settled = pcall(settle)
if is_sound and is_settled then return 1 end
if redis.call('TYPE', KEYS[1]).ok == 'stream' then
  local stream = redis.call('XINFO', 'STREAM', KEYS[1])
  for i = 1, #stream, 2 do
    if stream[i] == 'last-generated-id' then redis.call('SET', KEYS[12], stream[i + 1]) end
  end
  redis.call('XSETID', KEYS[1], '18446744073709551615-18446744073709551615')
end
return 0
