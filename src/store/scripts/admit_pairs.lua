-- The events of a call in `batch` layout: E pairs of name and value, as they would stand in the
-- stream (src/store/field.rs), then one text with 't' or '-' for each: whether the event itself
-- says that it is terminal. (In its value the caller's terminal types count as well, and these
-- need not be those in force.) Where the lane assigns sequences a name has none, and the id's
-- digest in place of an order.
local function offered(i)
  local name, value = ARGV[events_at + 2 * i - 1], ARGV[events_at + 2 * i]
  local epoch, sequence, digest, entity = string.match(name, '^%d+:(%d+):(%d*):(%w+):(.*)$')
  local event = event_parse(value)
  event.terminal = string.sub(ARGV[#ARGV], i, i) == 't'
  return entity, epoch, sequence, digest, event
end
