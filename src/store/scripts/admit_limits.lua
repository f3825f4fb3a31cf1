-- Limits of a call of admit, and why an event may not be parked.

-- What the same transaction has appended is part of the call.
append_max = append_max - written

local function lane_refusal(count, bytes, size)
  if count + 1 > parked_max then return 'parked_max' end
  if bytes + size > parked_bytes_max then return 'parked_bytes_max' end
end

local function refusal(sequence, next, count, bytes, size)
  if sequence - next > ahead_max then return 'ahead_max' end
  local of_lane = overflow == 'refuse' and lane_refusal(count, bytes, size)
  if of_lane then return of_lane end
  if load_events + 1 > partition_parked_max then return 'partition_parked_max' end
  if load_bytes + size > partition_parked_bytes_max then return 'partition_parked_bytes_max' end
end
