-- What time does to a lane that waits for something (src/order/lane/wait.rs).

-- Asks for what is missing. What a terminal event waits for is not given more time.
local function probe(lane, is_last)
  probes[#probes + 1] = lane.entity
  probes[#probes + 1] = text_of(lane.epoch)
  probes[#probes + 1] = text_of(lane.next)
  probes[#probes + 1] = text_of(lane.parked[1][1] - 1)
  probes[#probes + 1] = is_last and lane.terminals == 0 and '1' or '0'
  note('p')
  touch(lane)
end

-- When whatever is parked has waited long enough, come what may.
local function parked_end(lane)
  return lane.since + parked_age_max
end

-- Counts anew once all that was parked when it began to count is out.
local function keep_age(lane)
  if not lane.since or lane.next > lane.upto then
    lane.since, lane.upto = now(), lane.parked[#lane.parked][2]
  end
end

-- After anything happened: a gap that is new gets its clock, once.
local function keep_time(lane)
  if lane.count == 0 then
    lane.since, lane.opened = nil, nil
    return
  end
  keep_age(lane)
  if lane.opened or is_draining(lane) then return end
  local time, wait = now(), nil
  if lane.terminals > 0 then
    probe(lane, true)
    lane.attempt, wait = last_attempt, math.min(gap_waits_from(lane, 0), terminal_wait)
  else
    lane.attempt, wait = 0, gap_wait(lane.entity, 0)
  end
  lane.opened, lane.deadline = time, math.min(time + wait, parked_end(lane))
  touch(lane)
end

-- Rule 6: the first terminal event parked behind a gap.
local function shorten_wait(lane)
  if not lane.opened then return end
  local deadline = math.min(lane.deadline + gap_waits_from(lane, lane.attempt + 1), now() + terminal_wait)
  lane.attempt, lane.deadline = last_attempt, math.min(deadline, parked_end(lane))
  probe(lane, true)
end

-- Rule 5: a probe after each wait but the last, a skip after that.
local function elapse_gap(lane)
  local time = now()
  if not lane.opened or lane.deadline > time then return end
  local attempt, finish = lane.attempt + 1, parked_end(lane)
  if attempt > last_attempt or time >= finish then
    if has_room(1) then
      note_trouble('timeout')
      skip(lane, 'timeout')
    end
    return
  end
  probe(lane, attempt == last_attempt)
  lane.attempt, lane.deadline = attempt, math.min(time + gap_wait(lane.entity, attempt), finish)
end
