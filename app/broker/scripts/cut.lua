-- KEYS: attempt, the channel of calls. ARGV: fence, what is called: the attempt's key.
-- Asks the running segment to close at the end of its epoch.
local stored = redis.call('HMGET', KEYS[1], 'fence', 'state')
if stored[1] ~= ARGV[1] or stored[2] == 'done' then return 0 end
redis.call('HSET', KEYS[1], 'cut', '1')
-- A broker may forbid it; the worker's next beat then says so.
redis.pcall('PUBLISH', KEYS[2], ARGV[2])
return 1
