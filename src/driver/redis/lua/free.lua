-- free.lua: compare and delete, or with ARGV 2 > 0 let it expire in so many ms; those who wait hear
-- of it on the channel ARGV 3, if it is not ''. KEYS 1 key; ARGV 1 its value, or only the digits of
-- one of ours. Answers 1, 0: it was not there or not mine.
local value = redis.pcall('GET', KEYS[1])
if type(value) ~= 'string' or
    value ~= ARGV[1] and string.sub(value, 1, #ARGV[1] + 1) ~= ARGV[1] .. ' ' then
    return 0
end
if tonumber(ARGV[2]) > 0 then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return 1
end
redis.call('DEL', KEYS[1])
if ARGV[3] ~= '' then
    redis.call('PUBLISH', ARGV[3], '')
end
return 1
