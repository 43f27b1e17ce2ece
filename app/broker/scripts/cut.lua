-- KEYS: attempt. ARGV: fence. Asks the running segment to close at the end of its epoch.
local stored = redis.call('HMGET', KEYS[1], 'fence', 'state')
if stored[1] ~= ARGV[1] or stored[2] == 'done' then return 0 end
redis.call('HSET', KEYS[1], 'cut', '1')
-- A broker may forbid it; the worker's next beat then says so.
redis.pcall('PUBLISH', 'penstock:calls', KEYS[1])
return 1
