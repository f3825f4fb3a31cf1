-- The events of a call in `batch` layout: E pairs of name and value, as they would stand in the
-- stream (src/store/field.rs), then one text with 't' or '-' for each: whether the event itself
-- says that it is terminal. (In its value the caller's terminal types count as well, and these
-- need not be those in force.) Where the lane assigns sequences a name has none, and the id's
-- digest in place of an order.
local offers = {}

function offers.entity(i)
  return string.match(ARGV[events_at + 2 * i - 1], '^%d+:%d+:%d*:%w+:(.*)$')
end

-- One that is appended as it came: epoch, sequence and, instead of an event, its text. (Where the
-- policy in force is the caller's, it says of the event what is so.)
function offers.foreseen(i)
  local epoch, sequence = string.match(ARGV[events_at + 2 * i - 1], '^%d+:(%d+):(%d*):')
  return epoch, sequence, ARGV[events_at + 2 * i]
end

-- One that the rules decide about.
function offers.read(i)
  local epoch, sequence, digest = string.match(ARGV[events_at + 2 * i - 1], '^%d+:(%d+):(%d*):(%w+):')
  local event = event_parse(ARGV[events_at + 2 * i])
  event.terminal = string.sub(ARGV[#ARGV], i, i) == 't'
  return epoch, sequence, digest, event
end
