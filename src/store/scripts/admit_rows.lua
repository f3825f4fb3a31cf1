-- The events of a call in `entry` layout: E rows of entity, epoch, sequence ('' if the lane
-- assigns it), type, attrs, data, tag ('t' terminal or '-', followed by the id's digest if the
-- lane assigns sequences).
local offers = {}

function offers.entity(i)
  return ARGV[events_at + 7 * i - 6]
end

-- One that is appended as it came: epoch, sequence and, instead of an event, the place before it.
function offers.foreseen(i)
  local row = events_at + 7 * (i - 1)
  return ARGV[row + 2], ARGV[row + 3], row
end

-- One that the rules decide about.
function offers.read(i)
  local row = events_at + 7 * (i - 1)
  local tag = ARGV[row + 7]
  local event = {
    kind = ARGV[row + 4], attrs = ARGV[row + 5], data = ARGV[row + 6],
    terminal = string.sub(tag, 1, 1) == 't',
  }
  return ARGV[row + 2], ARGV[row + 3], string.sub(tag, 2), event
end
