-- KEYS: attempt, the study's announcements. ARGV: fence, owner, rank, text, seal, how many are kept.
-- What a running trial has sampled is seen by the study's other trials before it is committed.
local stored = redis.call('HMGET', KEYS[1], 'fence', 'owner' .. ARGV[3], 'state')
if stored[1] ~= ARGV[1] or stored[2] ~= ARGV[2] or stored[3] == 'done' then return 0 end
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[6], '*', 'p', ARGV[4], 's', ARGV[5])
return 1
