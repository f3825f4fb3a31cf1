-- Life without a promise of order: lanes born outside, shadow lanes that measure what
-- enforcing would have done, lanes of a degraded partition (src/order/lane/pass.rs).

-- Where enforcing would be waiting: the lowest missing sequence not given up.
local function shadow_gap_at(lane)
  return lane.shadow and ranges_first_from(lane.missing, lane.shadow.floor) or nil
end

local function open_shadow_gap(lane, floor, opened, deadline)
  if #lane.missing == 0 then
    lane.shadow = nil
    return
  end
  lane.shadow = { floor = floor }
  if not ranges_first_from(lane.missing, floor) then return end
  if not opened then
    opened = now()
    deadline = opened + math.min(gap_waits_from(lane, 0), parked_age_max)
  end
  lane.shadow.opened, lane.shadow.deadline = opened, deadline
end

local function give_up_shadow_gap(lane)
  local _, to = ranges_first_from(lane.missing, lane.shadow.floor)
  note('k')
  open_shadow_gap(lane, to + 1)
end

-- After an event passed: has the gap that enforcing would wait for changed?
local function measure(lane, before, terminal)
  local shadow, at = lane.shadow, shadow_gap_at(lane)
  local opened, deadline = shadow and shadow.opened, shadow and shadow.deadline
  if opened and at ~= before then note('w' .. text_of(now() - opened)) end
  if at ~= before then opened = nil end
  open_shadow_gap(lane, shadow and shadow.floor or first, opened, deadline)
  at = shadow_gap_at(lane)
  -- What would be parked: all that came beyond the gap.
  while at and lane.next - at - ranges_count_from(lane.missing, at) > parked_max do
    give_up_shadow_gap(lane)
    at = shadow_gap_at(lane)
  end
  if terminal and lane.shadow and lane.shadow.opened then
    lane.shadow.deadline = math.min(lane.shadow.deadline, now() + terminal_wait)
  end
end

local function elapse_shadow(lane)
  if lane.shadow and lane.shadow.opened and lane.shadow.deadline <= now() then
    give_up_shadow_gap(lane)
    touch(lane)
  end
end

-- On the way into degraded mode what is parked passes, too.
local function pass_parked(lane)
  while has_room(1) and lane.count > 0 do
    local lowest = lane.parked[1][1]
    local event = unpark(lane, lowest)
    if event then
      jump(lane, lowest)
      append_next(lane, event)
    end
  end
end

-- Follows the partition into degraded mode or out of it. False if there was no room.
local function settle_mode(lane)
  if lane.mode ~= 'e' then return true end
  if degraded and not lane.unmarked then
    lane.unmarked, lane.opened = lane.next, nil
    touch(lane)
  end
  if not lane.unmarked then return true end
  pass_parked(lane)
  if lane.count > 0 then return false end
  if degraded then return true end
  local from, to = ranges_first_from(lane.missing, lane.unmarked)
  while from do
    if not has_room(1) then return false end
    note('xdegraded')
    mark_gap(lane, 'degraded', from, to)
    lane.unmarked = to + 1
    from, to = ranges_first_from(lane.missing, lane.unmarked)
  end
  lane.unmarked = nil
  touch(lane)
  return true
end

-- Goes on with what an earlier call had no room for.
local function go_on(lane)
  touch(lane)
  if lane.unmarked then pass_parked(lane) else drain(lane) end
  keep_time(lane)
end

-- What is due now: draining goes on, a gap is probed or given up, a mode changes.
local function elapse(lane)
  touch(lane)
  if settle_mode(lane) and not passes(lane) then
    drain(lane)
    elapse_gap(lane)
  end
  elapse_shadow(lane)
  keep_time(lane)
end

-- When time has something to do: at once while draining, never without a gap.
local function lane_due(lane)
  if is_draining(lane) then return 0 end
  if lane.mode == 'e' and lane.unmarked then
    return ranges_first_from(lane.missing, lane.unmarked) and DUE_WHEN_RESTORED
  end
  return lane.opened and lane.deadline or lane.shadow and lane.shadow.deadline
end
