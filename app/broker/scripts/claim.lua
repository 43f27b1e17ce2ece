-- KEYS: attempt, lease, then in a gang one meeting a rank. ARGV: fence, owner, lease in ms, rank,
-- the trainer's identity, how long a meeting is kept (ms).
-- The owner is new for every claim, so that a replayed message is a duplicate even in the worker
-- that runs the first one. A gang runs once all its ranks have claimed. Each rank then finds the
-- identities of all their trainers at its meeting.
local mine = 'owner' .. ARGV[4]
local stored = redis.call('HMGET', KEYS[1], 'fence', 'state', mine)
if stored[1] ~= ARGV[1] or stored[2] == 'revoked' then return 'stale' end
if stored[2] == 'done' then return 'done' end
if stored[3] and stored[3] ~= ARGV[2] and redis.call('EXISTS', KEYS[2]) == 1 then return 'dup' end
redis.call('HSET', KEYS[1], mine, ARGV[2], 'trainer' .. ARGV[4], ARGV[5])
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
local trainers = {}
for rank = 0, #KEYS - 3 do
  trainers[rank + 1] = redis.call('HGET', KEYS[1], 'trainer' .. rank)
  if not trainers[rank + 1] then return 'ok' end
end
redis.call('HSET', KEYS[1], 'state', 'running')
for rank = 0, #KEYS - 3 do
  redis.call('DEL', KEYS[3 + rank])
  redis.call('RPUSH', KEYS[3 + rank], cjson.encode(trainers))
  redis.call('PEXPIRE', KEYS[3 + rank], ARGV[6])
end
return 'ok'
