-- KEYS: devices, installation. ARGV: prefix, then (trial, ranks) pairs.
-- Returns {boot, {name, record, ...} of the devices alive, {fence, state, leases, ...} by trial}.
local prefix = ARGV[1]
local devices = {}
local known = redis.call('HGETALL', KEYS[1])
for i = 1, #known, 2 do
  if redis.call('EXISTS', prefix .. 'alive:' .. known[i]) == 1 then
    devices[#devices + 1] = known[i]
    devices[#devices + 1] = known[i + 1]
  else
    redis.call('HDEL', KEYS[1], known[i])
  end
end
local attempts = {}
for i = 2, #ARGV, 2 do
  local stored = redis.call('HMGET', prefix .. 'attempt:' .. ARGV[i], 'fence', 'state')
  local leases = 0
  for rank = 0, tonumber(ARGV[i + 1]) - 1 do
    leases = leases + redis.call('EXISTS', prefix .. 'lease:' .. ARGV[i] .. ':' .. rank)
  end
  attempts[#attempts + 1] = stored[1]
  attempts[#attempts + 1] = stored[2]
  attempts[#attempts + 1] = leases
end
return {redis.call('HGET', KEYS[2], 'boot'), devices, attempts}
