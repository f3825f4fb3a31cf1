-- group_sweep: forgets how far a group is with entities that were retired, some of them at a
-- time. As of its last commit the caller has done everything in the stream: such a point is of
-- no use any more. A call that comes after a later commit is too late, and does nothing.
--
-- KEYS  1 lease  2 resume  3-6 tombs
-- ARGV  1 term  2 how many commits there were  3 cursor  4 how many to look at, about
-- Reply {next cursor ('0' at the end), forgotten}
local term, count = unpack(redis.call('HMGET', KEYS[1], 'term', 'count'))
if term ~= ARGV[1] or count ~= ARGV[2] then return { '0', 0 } end
local scanned = redis.call('HSCAN', KEYS[2], ARGV[3], 'COUNT', ARGV[4])
local gone = {}
for i = 1, #scanned[2], 2 do
  local entity = scanned[2][i]
  local field = string.sub(redis.sha1hex(entity), 1, 16)
  for key = 3, 6 do
    local tombstone = entity ~= '' and redis.call('HGET', KEYS[key], field)
    if tombstone and string.match(tombstone, '^%d+:%d+c') then
      gone[#gone + 1] = entity
      break
    end
  end
end
if #gone > 0 then redis.call('HDEL', KEYS[2], unpack(gone)) end
return { scanned[1], #gone }
