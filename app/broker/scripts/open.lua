-- KEYS: scheduler, installation. ARGV: owner, ttl in ms, key, boot, store, version.
-- A scheduler takes the broker, unless another owner's has it or was the last to have it, with another key.
-- It writes the store's URL in the same step, so that whoever sees a scheduler here sees its store.
-- Owner, key and boot outlive it.
-- Returns {the scheduler that has the broker, the broker's key, the broker's owner}.
local holder = redis.call('GET', KEYS[1]) or ARGV[1]
local key, last = unpack(redis.call('HMGET', KEYS[2], 'key', 'owner'))
if not key or not last or key == ARGV[3] then last = ARGV[1] end
if holder == ARGV[1] and last == ARGV[1] then
  redis.call('SET', KEYS[1], holder, 'PX', ARGV[2])
  redis.call('HSETNX', KEYS[2], 'key', ARGV[3])
  redis.call('HSETNX', KEYS[2], 'boot', ARGV[4])
  redis.call('HSET', KEYS[2], 'store', ARGV[5], 'version', ARGV[6], 'owner', ARGV[1])
end
return {holder, redis.call('HGET', KEYS[2], 'key') or '', last}
