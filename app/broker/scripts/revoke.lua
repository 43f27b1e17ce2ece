-- KEYS: attempt, the channel of calls, then the attempt's leases. ARGV: fence, what is called: the attempt's key.
-- Every copy of the message, queued or running, becomes stale; the next dispatch of the trial may use the very next fence.
if redis.call('HGET', KEYS[1], 'fence') ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1], unpack(KEYS, 3))
redis.call('HSET', KEYS[1], 'fence', string.format('%.0f', tonumber(ARGV[1]) + 1), 'state', 'revoked')
-- A broker may forbid it; the worker's next beat then says so.
redis.pcall('PUBLISH', KEYS[2], ARGV[2])
return 1
