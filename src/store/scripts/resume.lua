-- Where an entity stands.
--
-- KEYS  1 lanes  2 meta
-- ARGV  1 entity
-- Reply the lane's state, or nil
--
-- It writes although it only reads: since Redis 7.2 WAIT waits for the connection's
-- own last write, and this answer must be as durable as a verdict.
if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('HINCRBY', KEYS[2], 'resumes', 1) end
return redis.call('HGET', KEYS[1], ARGV[1])
