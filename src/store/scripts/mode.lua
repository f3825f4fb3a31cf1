-- mode: an operator takes a partition's promise of order away, or gives it back.
--
-- ARGV  3 'degrade' or 'restore'
-- Reply changed (0 or 1)
local time, changed_mode = now(), 0
if ARGV[3] == 'degrade' then
  if not degraded then
    append_edge('seriatim.degraded', 'operator')
    changed_mode = 1
  end
  mode, mode_since, told = 'operator', time, 0
else
  if degraded then
    append_edge('seriatim.restored', 'operator')
    changed_mode = 1
  end
  mode, mode_since = 'ordered', 0
  breaker_level, breaker_at, breaker_hit = 0, 0, true
end
