-- KEYS: attempt, lease. ARGV: fence, owner, lease in ms, rank.
-- Returns -1 when fenced off (or the broker forgot the attempt, or another rank has ended it), 1 when
-- a cut is wanted, else 0.
local stored = redis.call('HMGET', KEYS[1], 'fence', 'owner' .. ARGV[4], 'state', 'cut', 'closer')
if stored[1] ~= ARGV[1] or stored[2] ~= ARGV[2] then return -1 end
if stored[3] == 'done' then
  if stored[5] == ARGV[4] then return 0 end
  return -1
end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
if stored[4] then return 1 end
return 0
