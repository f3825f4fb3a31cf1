-- Answers a call of skip.
return skipped
