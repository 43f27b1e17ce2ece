-- KEYS: attempt, lease. ARGV: fence, owner, lease in ms, rank. The owner is new for every claim, so
-- that a replayed message is a duplicate even in the worker that runs the first one.
local mine = 'owner' .. ARGV[4]
local stored = redis.call('HMGET', KEYS[1], 'fence', 'state', mine)
if stored[1] ~= ARGV[1] or stored[2] == 'revoked' then return 'stale' end
if stored[2] == 'done' then return 'done' end
if stored[3] and stored[3] ~= ARGV[2] and redis.call('EXISTS', KEYS[2]) == 1 then return 'dup' end
redis.call('HSET', KEYS[1], 'state', 'running', mine, ARGV[2])
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return 'ok'
