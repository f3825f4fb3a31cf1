-- Begins every script that touches a partition: is it there, is it the caller's?
--
-- KEYS  1 events  2 late  3 lanes  4 parked  5 gaps  6 meta  7-10 born  11-14 tombs
-- ARGV  1 header that the caller expects in meta  2 channel on which gaps are probed
-- Error UNINITIALISED  the partition is not there: open it, then call again
--       ANOTHER        it was made anew since the caller opened it: likewise, if it is the
--                      caller's topic still
--       WIRE           another version wrote it: do not touch it
local header, rings = unpack(redis.call('HMGET', KEYS[6], 'header', 'rings'))
if not header then
  return redis.error_reply('UNINITIALISED this partition has no header in meta')
end
-- '-', or what is unusual: d some lane is draining, x degraded, f full.
local token, flags = nil, '-'
-- (A caller that takes it as it is may have found a token there as well.)
if header ~= ARGV[1] or string.sub(header, -2) ~= '|-' then
  -- Who knows lanes by heart leaves a token there (straight.lua). To everybody else that is as usual.
  token = string.match(header, '|(%d+)$')
  if token then header = string.sub(header, 1, -#token - 1) .. '-' end
  -- The caller's topic may differ from the one that is here now, even in its partitions.
  if header ~= ARGV[1] and string.match(header, '|g(%x+)|') ~= string.match(ARGV[1], '|g(%x+)|') then
    return redis.error_reply('ANOTHER generation made this partition anew: ' .. header)
  end
  flags = string.match(header, '|([^|]*)$')
end
local audit = ''
-- Lanes are filed by age in the current one of four buckets; `rings` says which, and
-- which buckets of tombstones are not empty (src/order/rings.rs).
local born_key = KEYS[7 + tonumber(string.sub(rings, 1, 1))]
local tombs_found, tombs_seen = {}, {}

local function tomb_field(entity)
  return string.sub(redis.sha1hex(entity), 1, 16)
end

local function tombstone_of(entity)
  if tombs_seen[entity] ~= nil then return tombs_seen[entity] end
  tombs_seen[entity] = false
  local field
  for bucket = 1, 4 do
    if string.sub(rings, 2 + bucket, 2 + bucket) == '1' then
      field = field or tomb_field(entity)
      local text = redis.call('HGET', KEYS[10 + bucket], field)
      if text then
        tombs_found[entity], tombs_seen[entity] = KEYS[10 + bucket], text
        break
      end
    end
  end
  return tombs_seen[entity]
end
