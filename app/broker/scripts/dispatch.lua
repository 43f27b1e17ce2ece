-- KEYS: attempt, then one lease a rank, then one queue a rank. ARGV: fence, then one message a rank.
-- Fence and messages are written together, so neither ever exists without the other.
-- Returns 1 when sent, 0 when it was sent before or a later fence stands.
local ranks = #ARGV - 1
local stored = redis.call('HMGET', KEYS[1], 'fence', 'state')
if stored[1] then
  -- A fence that is not a number was not written by us.
  local difference = (tonumber(stored[1]) or -1) - tonumber(ARGV[1])
  if difference > 0 or (difference == 0 and stored[2] ~= 'revoked') then return 0 end
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'state', 'dispatched')
for rank = 1, ranks do
  redis.call('DEL', KEYS[1 + rank])
  redis.call('LPUSH', KEYS[1 + ranks + rank], ARGV[1 + rank])
end
return 1
