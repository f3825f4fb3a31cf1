-- extend: a producer of this entity is connected somewhere, so the last wait of its gap
-- may take longer. Only longer, and only for the gap that was meant.
--
-- ARGV  3 entity  4 epoch  5 next
local lane = lane_of(ARGV[3])
if lane and lane.opened and lane.epoch == tonumber(ARGV[4]) and lane.next == tonumber(ARGV[5])
  and lane.attempt >= last_attempt and lane.terminals == 0 then
  local longest = math.min(lane.opened + tonumber(policy[12]), parked_end(lane))
  lane.deadline = math.max(lane.deadline, longest)
  touch(lane)
end
