-- KEYS: attempt, lease, reports. ARGV: fence, owner, rank, closes (0 or 1), text, seal.
-- A report enters the stream only under the fence; one that closes ends the attempt with it.
local stored = redis.call('HMGET', KEYS[1], 'fence', 'owner' .. ARGV[3], 'state', 'cut')
if stored[1] ~= ARGV[1] or stored[2] ~= ARGV[2] then return 'stale' end
if stored[3] == 'done' then return 'done' end
redis.call('XADD', KEYS[3], '*', 'p', ARGV[5], 's', ARGV[6])
if ARGV[4] == '1' then
  redis.call('HSET', KEYS[1], 'state', 'done', 'closer', ARGV[3])
  redis.call('DEL', KEYS[2])
  return 'ok'
end
if stored[4] then return 'cut' end
return 'ok'
