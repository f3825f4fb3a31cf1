-- skip: an operator gives one gap up; the marker says who and why.
--
-- ARGV  3 entity  4 epoch  5 next  6 members of the marker's attrs, as JSON without braces
-- Reply the last sequence that was given up, or nothing
audit = ARGV[6]
local skipped = false
local lane = lane_of(ARGV[3])
if lane and not passes(lane) and lane.epoch == tonumber(ARGV[4]) and lane.next == tonumber(ARGV[5])
  and lane.count > 0 and lane.parked[1][1] > lane.next and has_room(1) then
  skipped = text_of(lane.parked[1][1] - 1)
  note('xoperator')
  skip(lane, 'operator')
  keep_time(lane)
end
