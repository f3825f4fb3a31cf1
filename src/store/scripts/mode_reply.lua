-- Answers a call of mode.
return changed_mode
