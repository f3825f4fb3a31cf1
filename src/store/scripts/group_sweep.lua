-- group_sweep: forgets how far a group is with entities that were retired, some of them at a
-- time. The caller has done everything in the stream: such a point is of no use any more.
--
-- KEYS  1 lease  2 resume  3-6 tombs
-- ARGV  1 term  2 cursor  3 how many to look at, about
-- Reply {next cursor ('0' at the end), forgotten}
if redis.call('HGET', KEYS[1], 'term') ~= ARGV[1] then return { '0', 0 } end
local scanned = redis.call('HSCAN', KEYS[2], ARGV[2], 'COUNT', ARGV[3])
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
