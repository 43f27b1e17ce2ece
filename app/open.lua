-- KEYS: scheduler, installation. ARGV: owner, ttl in ms, key, boot, store, version.
-- A scheduler takes the broker, unless another owner's has it, and says where the store is: at once,
-- so that who sees a scheduler here sees its store. Key and boot outlive it.
-- Returns {who has the broker, the broker's key}.
local holder = redis.call('GET', KEYS[1]) or ARGV[1]
if holder == ARGV[1] then
  redis.call('SET', KEYS[1], holder, 'PX', ARGV[2])
  redis.call('HSETNX', KEYS[2], 'key', ARGV[3])
  redis.call('HSETNX', KEYS[2], 'boot', ARGV[4])
  redis.call('HSET', KEYS[2], 'store', ARGV[5], 'version', ARGV[6])
end
return {holder, redis.call('HGET', KEYS[2], 'key')}
