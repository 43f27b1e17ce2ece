-- KEYS: scheduler. ARGV: owner. The owner's scheduler serves the broker no longer.
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
