-- The fast path of admit in `batch` layout: one entry for all, whose fields came as they are to
-- stand there. Nothing is done for each event but to hand two strings on: that is the point of
-- this layout. As many as a call may append fit into one `unpack`.
if predicted then
  local id = redis.call('XADD', KEYS[1], '*', unpack(ARGV, events_at + 1, events_at + 2 * event_count))
  write_lanes()
  return { 'fast', id }
end
