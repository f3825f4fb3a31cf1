-- How far a stream went, also if its last entries are gone.
local function last_id(key)
  if redis.call('EXISTS', key) == 0 then return '0-0' end
  local stream = redis.call('XINFO', 'STREAM', key)
  for i = 1, #stream, 2 do
    if stream[i] == 'last-generated-id' then return stream[i + 1] end
  end
end
