-- Answers a call of elapse.
local more = redis.call('ZCOUNT', KEYS[5], '-inf', text_of(time)) > 0
if not more and mode == 'ordered' then
  local score = text_of(DUE_WHEN_RESTORED)
  more = redis.call('ZCOUNT', KEYS[5], score, score) > 0
end
more = more or #lanes_untold(math.max(told, time) + 1, 1) > 0
if not more then redis.call('HSET', KEYS[6], 'elapsed', text_of(time)) end
return {
  1, seen, more and 1 or 0, drained, after_terminal, table.concat(notes, ' '), mode ~= 'ordered' and 1 or 0,
}
