-- extend.lua: compare and extend. KEYS 1 key; ARGV 1 digits of my value 2 ttl.
-- Answers 1, 0: there is no key, -1: it is another's.
local value = redis.pcall('GET', KEYS[1])
if not value then
    return 0
end
if type(value) ~= 'string' or string.sub(value, 1, #ARGV[1] + 1) ~= ARGV[1] .. ' ' then
    return -1
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
