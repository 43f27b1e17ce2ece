-- KEYS: devices, installation, scheduler, what our keys begin with. ARGV: owner, ttl in ms, then (trial, ranks)
-- pairs.
-- Renews the owner's hold on the broker. Returns an error if another scheduler has it.
-- Returns {{boot, key}, {name, record, ...} of the devices alive, {fence, state, ranks without a lease, ...} by trial,
-- {name, record, ...} of the devices that are gone since the last survey}.
local prefix = KEYS[4]
local holder = redis.call('GET', KEYS[3])
if holder and holder ~= ARGV[1] then
  return redis.error_reply('HELD ' .. holder)
end
redis.call('SET', KEYS[3], ARGV[1], 'PX', ARGV[2])
local devices, gone = {}, {}
local known = redis.call('HGETALL', KEYS[1])
for i = 1, #known, 2 do
  if redis.call('EXISTS', prefix .. 'alive:' .. known[i]) == 1 then
    devices[#devices + 1] = known[i]
    devices[#devices + 1] = known[i + 1]
  else
    gone[#gone + 1] = known[i]
    gone[#gone + 1] = known[i + 1]
    redis.call('HDEL', KEYS[1], known[i])
  end
end
local attempts = {}
for i = 3, #ARGV, 2 do
  local stored = redis.call('HMGET', prefix .. 'attempt:' .. ARGV[i], 'fence', 'state')
  local absent = {}
  for rank = 0, tonumber(ARGV[i + 1]) - 1 do
    if redis.call('EXISTS', prefix .. 'lease:' .. ARGV[i] .. ':' .. rank) == 0 then
      absent[#absent + 1] = rank
    end
  end
  attempts[#attempts + 1] = stored[1]
  attempts[#attempts + 1] = stored[2]
  attempts[#attempts + 1] = absent
end
return {redis.call('HMGET', KEYS[2], 'boot', 'key'), devices, attempts, gone}
