-- What straight.lua does about lanes that wait, or are about to, without the tables of the rules: their states are
-- read and written as text. The events themselves do not come here. The caller parks them, and appends them when their
-- turn has come. What is written is what the rules would write (wait.lua, release.lua); whatever is not as usual is
-- left to them.
--
-- ARGV  behind the entities, for each of the W lanes seven: what, epoch, sequence, count, size, closed, waits
--       what 'a'  an event of this size is ahead of its turn; 't' likewise, and terminal
--       what 'f'  an event is in its turn, and releases so many parked ones of this size together; the last of them
--                 closes the lane if closed is 'c'
--       waits are those of the schedule for this entity, with colons between them; of 'a' the first is enough
--       then the limits: 'parked_max,parked_bytes_max,partition_parked_max,partition_parked_bytes_max,ahead_max,
--       parked_age_max,terminal_wait', and the sequence with which lanes begin
--       last the channel on which gaps are probed
local waiting = { depths = {}, notes = {} }
do
  local WORDS = 7
  local limits = {}
  for limit in string.gmatch(ARGV[#ARGV - 2], '%d+') do limits[#limits + 1] = tonumber(limit) end
  local parked_max, parked_bytes_max, partition_parked_max, partition_parked_bytes_max, ahead_max, parked_age_max,
    terminal_wait = unpack(limits)
  local first = ARGV[#ARGV - 1]
  local states, due, never_due, probes, born = {}, {}, {}, {}, {}
  local load_events, load_bytes

  local function text_of(number)
    return string.format('%.0f', number)
  end

  -- The ranges with one more sequence in them; nil if it was there.
  local function with(parked, sequence)
    local number = tonumber(sequence)
    local last = string.match(parked, '%d+$')
    local behind = number - tonumber(last)
    if behind > 1 then return parked .. ',' .. sequence end
    if behind == 1 then
      local head = string.sub(parked, 1, -#last - 1)
      return string.sub(head, -1) == '-' and head .. sequence or parked .. '-' .. sequence
    end
    local ranges, from_here, upto = {}, number, number
    for from, to in string.gmatch(parked, '(%d+)%-?(%d*)') do
      from, to = tonumber(from), tonumber(to) or tonumber(from)
      if from <= number and number <= to then return end
      if to + 1 == number then
        from_here = from
      elseif from == number + 1 then
        upto = to
      else
        if from > number and from_here then
          ranges[#ranges + 1] = { from_here, upto }
          from_here = nil
        end
        ranges[#ranges + 1] = { from, to }
      end
    end
    if from_here then ranges[#ranges + 1] = { from_here, upto } end
    for i, range in ipairs(ranges) do
      ranges[i] = text_of(range[1]) .. (range[2] > range[1] and '-' .. text_of(range[2]) or '')
    end
    return table.concat(ranges, ',')
  end

  -- How long the attempts from this one on wait together, and which is the last.
  local function waits_from(waits, attempt)
    local sum, last = 0, -1
    for wait in string.gmatch(waits, '%d+') do
      last = last + 1
      if last >= attempt then sum = sum + tonumber(wait) end
    end
    return sum, last
  end

  local function probe(entity, epoch, next, parked)
    local upto = text_of(tonumber(string.match(parked, '^%d+')) - 1)
    for _, word in ipairs({ entity, epoch, next, upto, '1' }) do probes[#probes + 1] = word end
    waiting.notes[#waiting.notes + 1] = 'p'
  end

  -- The state of a lane that waits; `clock` is all that concerns time.
  local function keep(entity, epoch, next, count, bytes, parked, clock)
    states[#states + 1] = entity
    states[#states + 1] = epoch .. ':' .. next .. ';k' .. count .. ',' .. text_of(bytes) .. ',' .. parked .. ';g' .. clock
  end

  local function set_due(entity, deadline)
    due[#due + 1] = deadline
    due[#due + 1] = entity
  end

  -- A gap that is new: since when and up to which parked events are counted, how many are terminal; when it opened, its
  -- attempt and deadline.
  local function wait_anew(entity, epoch, next, parked, since, upto, terminals, waits)
    local time, attempt, wait = now(), 0, tonumber(string.match(waits, '^%d+'))
    if not since or tonumber(next) > tonumber(upto) then
      since, upto = time, string.match(parked, '%d+$')
    end
    if terminals > 0 then
      probe(entity, epoch, next, parked)
      wait, attempt = waits_from(waits, 0)
      wait = math.min(wait, terminal_wait)
    end
    local deadline = text_of(math.min(time + wait, since + parked_age_max))
    set_due(entity, deadline)
    return string.format('%.0f,%s,%d,%.0f,%d,%s', since, upto, terminals, time, attempt, deadline)
  end

  -- Rule 6: the first terminal event parked behind a gap.
  local function shortened(entity, epoch, next, parked, clock, waits)
    local since, upto, opened, attempt, deadline = string.match(clock, '^(%d+),(%d+),0,(%d+),(%d+),(%d+)$')
    if not since then
      local head, terminals, tail = string.match(clock, '^(%d+,%d+,)(%d+)(.*)$')
      return head .. text_of(tonumber(terminals) + 1) .. tail
    end
    local left, last = waits_from(waits, tonumber(attempt) + 1)
    deadline = text_of(math.min(tonumber(deadline) + left, now() + terminal_wait, tonumber(since) + parked_age_max))
    probe(entity, epoch, next, parked)
    set_due(entity, deadline)
    return string.format('%s,%s,1,%s,%d,%s', since, upto, opened, last, deadline)
  end

  local function may_park(ahead, count, bytes, size)
    return ahead > 0 and ahead <= ahead_max and count < parked_max and bytes + size <= parked_bytes_max
      and load_events < partition_parked_max and load_bytes + size <= partition_parked_bytes_max
  end

  local function has_tombstone(entity, rings)
    local name
    for bucket = 1, 4 do
      if string.sub(rings, 2 + bucket, 2 + bucket) == '1' then
        name = name or string.sub(redis.sha1hex(entity), 1, 16)
        if redis.call('HEXISTS', KEYS[7 + bucket], name) == 1 then return true end
      end
    end
    return false
  end

  local function park(entity, text, rings, its_epoch, sequence, _, size, _, waits, is_terminal)
    local epoch, next, count, bytes, parked, clock
    if not text then
      if has_tombstone(entity, rings) then return end
      epoch, next = its_epoch, first
      born[#born + 1] = entity
    else
      epoch, next = string.match(text, '^(%d+):(%d+)$')
    end
    if epoch then
      count, bytes = 0, 0
    else
      epoch, next, count, bytes, parked, clock =
        string.match(text, '^(%d+):(%d+);k(%d+),(%d+),([^;]+);g(%d+,%d+,%d+,%d+,%d+,%d+)$')
      count, bytes = tonumber(count), tonumber(bytes)
    end
    if epoch ~= its_epoch or not may_park(tonumber(sequence) - tonumber(next), count, bytes, size) then return end
    if count == 0 then
      parked, clock = sequence, wait_anew(entity, epoch, next, sequence, nil, nil, is_terminal and 1 or 0, waits)
    else
      parked = with(parked, sequence)
      if not parked then return end
      if is_terminal then clock = shortened(entity, epoch, next, parked, clock, waits) end
    end
    keep(entity, epoch, next, count + 1, bytes + size, parked, clock)
    load_events, load_bytes = load_events + 1, load_bytes + size
    return count + 1
  end

  local function fill(entity, text, _, its_epoch, sequence, run, size, closed, waits)
    local epoch, next, count, bytes, parked, since, upto, terminals, opened = string.match(text or '',
      '^(%d+):(%d+);k(%d+),(%d+),([^;]+);g(%d+),(%d+),(%d+),(%d+),%d+,%d+$')
    if epoch ~= its_epoch or next ~= sequence then return end
    count, bytes = tonumber(count), tonumber(bytes)
    local from, to, rest = string.match(parked, '^(%d+)%-?(%d*),?(.*)$')
    from = tonumber(from)
    local adjacent = from == tonumber(sequence) + 1 and (tonumber(to) or from) - from + 1 or 0
    if adjacent ~= run then return end
    if run == 0 then rest = parked end
    local after = text_of(tonumber(sequence) + run + 1)
    waiting.notes[#waiting.notes + 1] = 'f' .. text_of(now() - tonumber(opened))
    if rest == '' then
      if bytes ~= size or count ~= run then return end
      states[#states + 1] = entity
      states[#states + 1] = epoch .. ':' .. after .. closed
      never_due[#never_due + 1] = entity
    else
      -- What is behind the end of an entity is not as usual.
      if closed ~= '' then return end
      local clock = wait_anew(entity, epoch, after, rest, tonumber(since), upto, tonumber(terminals), waits)
      keep(entity, epoch, after, count - run, bytes - size, rest, clock)
    end
    load_events, load_bytes = load_events - run, load_bytes - size
    return count - run
  end

  -- W lanes of those that were found are behind so many others; their entities are behind this argument, what is to be
  -- done about them behind that one.
  function waiting.is_usual(found, others, count, entities_at, words_at, rings)
    local bytes, clock = unpack(redis.call('HMGET', KEYS[3], 'parked_bytes', 'clock'))
    load_events, load_bytes = redis.call('HLEN', KEYS[14]) - 1, tonumber(bytes)
    if load_events == 0 then load_bytes = 0 end
    clock_parse(clock)
    for i = 1, count do
      local at = words_at + WORDS * (i - 1)
      local what = ARGV[at + 1]
      local depth = (what == 'f' and fill or park)(ARGV[entities_at + i], found[others + i], rings, ARGV[at + 2],
        ARGV[at + 3], tonumber(ARGV[at + 4]), tonumber(ARGV[at + 5]), ARGV[at + 6], ARGV[at + 7], what == 't')
      if not depth then return end
      waiting.depths[i] = depth
    end
    return true
  end

  function waiting.write(born_key)
    redis.call('HSET', KEYS[2], unpack(states))
    if #due > 0 then redis.call('ZADD', KEYS[16], unpack(due)) end
    if #never_due > 0 then redis.call('ZREM', KEYS[16], unpack(never_due)) end
    if #born > 0 then redis.call('RPUSH', born_key, unpack(born)) end
    redis.call('HSET', KEYS[3], 'parked_bytes', text_of(math.max(load_bytes, 0)), 'clock', clock_text())
    -- What is written is written, whether anybody can be asked or not.
    if #probes > 0 then redis.pcall('PUBLISH', ARGV[#ARGV], cjson.encode(probes)) end
  end
end
