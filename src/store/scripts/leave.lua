-- leave: a sidecar ends as it should; nobody need wonder where it is.
--
-- KEYS  1 sidecars  2 reconciler
-- ARGV  1 sidecar
redis.call('HDEL', KEYS[1], ARGV[1])
if redis.call('GET', KEYS[2]) == ARGV[1] then redis.call('DEL', KEYS[2]) end
return 1
