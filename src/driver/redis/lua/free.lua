-- free.lua: compare and delete, or with ARGV 2 > 0 let it expire in so many ms; those who wait hear
-- of it on the channel ARGV 3, if it is not ''. Where the server has a command for that, this is for
-- the expiry only (ballot.c).
-- KEYS 1 key; ARGV 1 its value. Answers 1, 0: it was not there or not mine. Without the right to
-- publish it is free all the same, and those who wait find out by looking.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
    return 0
end
if ARGV[2] ~= '0' then
    return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
redis.call('DEL', KEYS[1])
if ARGV[3] ~= '' then
    redis.pcall('PUBLISH', ARGV[3], '')
end
return 1
