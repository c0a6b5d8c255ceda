-- extend.lua: compare and extend. KEYS 1 key; ARGV 1 its value 2 ttl.
-- Answers 1, 0: there is no key, -1: it is another's.
local value = redis.pcall('GET', KEYS[1])
if value == ARGV[1] then
    return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return value and -1 or 0
