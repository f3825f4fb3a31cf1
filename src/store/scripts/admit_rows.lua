-- The events of a call in `entry` layout: E rows of entity, epoch, sequence ('' if the lane
-- assigns it), type, attrs, data, tag ('t' terminal or '-', followed by the id's digest if the
-- lane assigns sequences).
local function offered(i)
  local row = events_at + 7 * (i - 1)
  local tag = ARGV[row + 7]
  local event = {
    kind = ARGV[row + 4], attrs = ARGV[row + 5], data = ARGV[row + 6],
    terminal = string.sub(tag, 1, 1) == 't',
  }
  return ARGV[row + 1], ARGV[row + 2], ARGV[row + 3], string.sub(tag, 2), event
end
