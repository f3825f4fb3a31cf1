-- Answers a slow call of admit.
local more = (again or left_draining) and 1 or 0
local reply = { 'slow', header, more, drained, after_terminal, table.concat(notes, ' ') }
for i, verdict in ipairs(verdicts) do
  if type(verdict) == 'table' then
    verdict = verdict[1] .. ids[verdict[3]] .. ' ' .. verdict[2]
  end
  reply[6 + i] = verdict
end
return reply
