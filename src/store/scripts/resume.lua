-- Where an entity stands.
--
-- KEYS  1 lanes  2 meta  3-6 tombs
-- ARGV  1 entity
-- Reply the state of its lane, or of what is left of it; or nil
--
-- It writes although it only reads: since Redis 7.2 WAIT waits for the connection's
-- own last write, and this answer must be as durable as a verdict.
if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('HINCRBY', KEYS[2], 'resumes', 1) end
local text = redis.call('HGET', KEYS[1], ARGV[1])
local bucket = 3
while not text and bucket <= 6 do
  text = redis.call('HGET', KEYS[bucket], string.sub(redis.sha1hex(ARGV[1]), 1, 16))
  bucket = bucket + 1
end
return text
