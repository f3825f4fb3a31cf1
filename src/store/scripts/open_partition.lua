-- Creates the keys of a partition where they are absent, and puts the caller's
-- policy in force if it differs from the one there. Running it twice changes
-- nothing.
--
-- KEYS  1 events  2 late  3 lanes  4 parked  5 gaps  6 meta
-- ARGV  1 wire version  2 policy  3 generation for a partition that is new
-- Reply {header, created (0 or 1)}
-- Error WIRE another version wrote it
--
-- Redis deletes a hash or zset that becomes empty, and a slot that is being moved
-- answers TRYAGAIN for absent keys: so each holds a sentinel.
local header = redis.call('HGET', KEYS[6], 'header')
if header and string.match(header, '^w(%d+)|') ~= ARGV[1] then
  return redis.error_reply('WIRE this partition was written by another version: ' .. header)
end
for i = 1, 2 do
  if redis.call('EXISTS', KEYS[i]) == 0 then
    redis.call('XGROUP', 'CREATE', KEYS[i], 'seriatim', '0', 'MKSTREAM')
    redis.call('XGROUP', 'DESTROY', KEYS[i], 'seriatim')
  end
end
redis.call('HSETNX', KEYS[3], '', '')
redis.call('HSETNX', KEYS[4], '', '')
redis.call('ZADD', KEYS[5], '+inf', '')
-- Commands that only rare calls of admit use: a user that may not run them is found
-- now, not halfway through somebody's events.
local nobody = string.rep('-', 257)   -- longer than any entity
redis.call('HDEL', KEYS[4], nobody)
redis.call('ZREM', KEYS[5], nobody)
redis.call('ZCOUNT', KEYS[5], '-inf', 0)
redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', 0, 'LIMIT', 0, 1)
redis.call('HMGET', KEYS[3], '')
redis.call('HLEN', KEYS[4])
redis.call('HINCRBY', KEYS[6], 'opened', 1)

if not header then
  header = 'w' .. ARGV[1] .. '|p1|g' .. ARGV[3] .. '|-'
  redis.call('HSET', KEYS[6], 'header', header, 'policy', ARGV[2], 'parked_bytes', '0')
  return { header, 1 }
end
if redis.call('HGET', KEYS[6], 'policy') ~= ARGV[2] then
  local before, version, after = string.match(header, '^(w%d+|p)(%d+)(|.*)$')
  header = before .. string.format('%.0f', tonumber(version) + 1) .. after
  redis.call('HSET', KEYS[6], 'header', header, 'policy', ARGV[2])
end
return { header, 0 }
