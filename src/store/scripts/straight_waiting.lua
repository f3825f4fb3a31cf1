-- What straight.lua does about lanes that wait. The caller knows what they become, and writes it, but for the time, which
-- is Redis's: deadlines are put in here. What it writes elsewhere than in lanes and parked is also written here, where
-- all is known to be as predicted.
--
-- ARGV  behind the entities: 1 events for which there must be room  2 their bytes  3 bytes that are parked now  4 bytes
--       that are released  5 partition_parked_max  6 partition_parked_bytes_max  7 the channel on which gaps are probed
--       8 what to say there, or ''  9 number of lanes whose deadline is new
--       of each of those: its entity, its state without the deadline, @ where the time belongs, how long it waits, and
--       the latest deadline
--       then the entities whose lanes wait no longer
local waiting = { time = '' }
do
  local TAIL, WORDS = 9, 4
  local at, load_events, load_bytes

  local function text_of(number)
    return string.format('%.0f', number)
  end

  local function words(from, to)
    local numbers = {}
    for i = from, to do numbers[#numbers + 1] = tonumber(ARGV[at + i]) end
    return unpack(numbers)
  end

  -- May all be parked that may have to be? What is said about these lanes is behind this argument.
  function waiting.is_room(behind)
    at = behind
    local bytes, clock = unpack(redis.call('HMGET', KEYS[3], 'parked_bytes', 'clock'))
    local events, bytes_wanted, _, _, events_max, bytes_max = words(1, 6)
    load_events, load_bytes = redis.call('HLEN', KEYS[14]) - 1, tonumber(bytes)
    if load_events == 0 then load_bytes = 0 end
    clock_parse(clock)
    return load_events + events <= events_max and load_bytes + bytes_wanted <= bytes_max
  end

  -- A deadline for each that needs one; when the others were due is of no interest any more.
  local function keep_time()
    local time, new = now(), tonumber(ARGV[at + TAIL])
    waiting.time = text_of(time)
    local states, due, from = {}, {}, at + TAIL
    for i = 1, new do
      local entity, state, wait, latest = unpack(ARGV, from + 1, from + WORDS)
      local deadline = text_of(math.min(time + tonumber(wait), tonumber(latest)))
      states[2 * i - 1], states[2 * i] = entity, string.gsub(state, '@', waiting.time) .. deadline
      due[2 * i - 1], due[2 * i] = deadline, entity
      from = from + WORDS
    end
    if new > 0 then redis.call('ZADD', KEYS[16], unpack(due)) end
    if #ARGV > from then redis.call('ZREM', KEYS[16], unpack(ARGV, from + 1)) end
    if new > 0 then redis.call('HSET', KEYS[13], unpack(states)) end
  end

  function waiting.write()
    -- What only is parked behind others takes no time.
    if #ARGV > at + TAIL then keep_time() end
    local _, _, bytes_in, bytes_out = words(1, 4)
    local parked_bytes = text_of(math.max(load_bytes + bytes_in - bytes_out, 0))
    redis.call('HSET', KEYS[3], 'parked_bytes', parked_bytes, 'clock', clock_text())
    -- What is written is written, whether anybody can be asked or not.
    if ARGV[at + 8] ~= '' then redis.pcall('PUBLISH', ARGV[at + 7], ARGV[at + 8]) end
  end
end
