-- Creates the keys of a partition where they are absent, and puts the caller's policy in
-- force if it differs from the one there and the caller offers it. Running it twice
-- changes nothing.
--
-- KEYS  1 events  2 late  3 lanes  4 parked  5 gaps  6 meta  7-10 born  11-14 tombs
--       15-18 closed  19 announced  20 groups  21-24 opened
-- ARGV  1 wire version  2 policy  3 its lists  4 generation for a partition that is new
--       5 'offer' the policy, or only 'look' whether it is the one in force
--       6 channel on which gaps are probed  7 layout of the topic
-- Reply {header, 1 if the caller's policy is in force, else 0}
-- Error WIRE    another version wrote it
--       LAYOUT  it has another layout: somebody made its topic's record anew by hand
--
-- Redis deletes a hash, list or zset that becomes empty, and a slot that is being moved
-- answers TRYAGAIN for absent keys: so each holds a sentinel.
local header, policy, lists, layout =
  unpack(redis.call('HMGET', KEYS[6], 'header', 'policy', 'lists', 'layout'))
if header and string.match(header, '^w(%d+)|') ~= ARGV[1] then
  return redis.error_reply('WIRE this partition was written by another version: ' .. header)
end
if header and (layout or 'entry') ~= ARGV[7] then
  return redis.error_reply('LAYOUT this partition has the layout ' .. (layout or 'entry') .. ', its topic ' .. ARGV[7])
end
for i = 1, 2 do
  if redis.call('EXISTS', KEYS[i]) == 0 then
    redis.call('XGROUP', 'CREATE', KEYS[i], 'seriatim', '0', 'MKSTREAM')
    redis.call('XGROUP', 'DESTROY', KEYS[i], 'seriatim')
  end
end
redis.call('HSETNX', KEYS[3], '', '')
redis.call('HSETNX', KEYS[4], '', '')
if redis.call('HLEN', KEYS[18]) <= 1 then redis.call('UNLINK', KEYS[18]) end
for i = 7, 10 do
  if redis.call('EXISTS', KEYS[i]) == 0 then redis.call('RPUSH', KEYS[i], '') end
end
for i = 11, 18 do redis.call('HSETNX', KEYS[i], '', '') end
for i = 21, 24 do redis.call('HSETNX', KEYS[i], '', '') end
redis.call('HSETNX', KEYS[20], '', '')
redis.call('ZADD', KEYS[5], '+inf', '')
redis.call('ZADD', KEYS[19], '+inf', '')
-- Commands that only rare calls use: a user that may not run them is found now, not
-- halfway through somebody's events.
local nobody = string.rep('-', 257)   -- longer than any entity
redis.call('HDEL', KEYS[4], nobody)
redis.call('ZREM', KEYS[5], nobody)
redis.call('ZCOUNT', KEYS[5], '-inf', 0)
redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', 0, 'LIMIT', 0, 1)
redis.call('ZREMRANGEBYSCORE', KEYS[19], '-inf', '-inf')
redis.call('ZSCORE', KEYS[19], nobody)
redis.call('ZCARD', KEYS[19])
redis.call('ZRANDMEMBER', KEYS[19], 1)
redis.call('HMGET', KEYS[3], '')
redis.call('HEXISTS', KEYS[3], '')
redis.call('HLEN', KEYS[4])
redis.call('LPUSH', KEYS[7], redis.call('LPOP', KEYS[7], 1)[1])
redis.call('LPOS', KEYS[7], nobody, 'MAXLEN', 1)
redis.call('LLEN', KEYS[7])
redis.call('HRANDFIELD', KEYS[21], 1, 'WITHVALUES')
redis.call('HSCAN', KEYS[3], 0, 'COUNT', 1)
redis.call('ZSCAN', KEYS[5], 0, 'COUNT', 1)
redis.call('HGETALL', KEYS[20])
redis.call('XLEN', KEYS[1])
redis.call('XTRIM', KEYS[1], 'MINID', '~', '0-1', 'LIMIT', 1)   -- removes nothing
redis.call('XINFO', 'GROUPS', KEYS[1])
-- There need not be any group to ask about: only that one may ask counts.
local asked = redis.pcall('XPENDING', KEYS[1], nobody)
if asked.err and not string.find(asked.err, 'NOGROUP', 1, true) then return asked end
local time = redis.call('TIME')
redis.call('PUBLISH', ARGV[6], '[]')
redis.call('HINCRBY', KEYS[6], 'openings', 1)

if not header then
  -- A small hash is searched from its beginning: first what every call asks for.
  header = 'w' .. ARGV[1] .. '|p1|g' .. ARGV[4] .. '|-'
  redis.call('HSET', KEYS[6], 'header', header, 'rings', '0:0000', 'policy', ARGV[2], 'lists', ARGV[3], 'parked_bytes', '0',
    'clock', '0,' .. string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)), 'elapsed', '0', 'mode', 'ordered,0', 'told', '0', 'breaker', '0,0', 'late_full', '0', 'trimmed_at', '0',
    'hand_opened', '0,0,0,0,0,0', 'hand_closed', '0,0,0,0,0,0', 'hand_tombs', '0,0,0,0,0,0')
  -- Older versions do not know the field, and need not: they have no topics but of that layout.
  if ARGV[7] ~= 'entry' then redis.call('HSET', KEYS[6], 'layout', ARGV[7]) end
  return { header, 1 }
end
if policy == ARGV[2] and lists == ARGV[3] then return { header, 1 } end
if ARGV[5] ~= 'offer' then return { header, 0 } end
local before, version, after = string.match(header, '^(w%d+|p)(%d+)(|.*)$')
header = before .. string.format('%.0f', tonumber(version) + 1) .. after
redis.call('HSET', KEYS[6], 'header', header, 'policy', ARGV[2], 'lists', ARGV[3])
return { header, 1 }
