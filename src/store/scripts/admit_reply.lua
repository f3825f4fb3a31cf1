-- Answers a slow call of admit. Lanes that wait are told with their states: who has parked there may want to know.
local more = (again or left_draining) and 1 or 0
local waiting = {}
for i = 1, #states, 2 do
  if string.find(states[i + 1], ';k', 1, true) then
    waiting[#waiting + 1], waiting[#waiting + 2] = states[i], states[i + 1]
  end
end
local reply = { 'slow', header, more, drained, after_terminal, table.concat(notes, ' '), waiting }
for i, verdict in ipairs(verdicts) do
  if type(verdict) == 'table' then
    verdict = verdict[1] .. ids[verdict[3]] .. ' ' .. verdict[2]
  end
  reply[7 + i] = verdict
end
return reply
