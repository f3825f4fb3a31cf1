-- What is in front of straight.lua where no lane waits.
local waiting
