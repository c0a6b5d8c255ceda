-- cell.lua: one small record beside a line: C, a hash of version `v` and data `d`; expiry is the
-- key's. Versions come from the bucket's mark, so they grow over deletion and expiry too.
-- KEYS 1 C 2 M; ARGV 1 PUBLISH or SPUBLISH 2 verb (get put add del) 3 version that must be
-- there, '' any 4 number to add 5 ttl or 0 6 data. Every change is published on a channel named like C.
-- Answers {rc, version (0: none), data, ms until it expires or -1}; rc 0, -1 another version,
-- -2 no number or too great.
--> line.lua
--> fence.lua
local C, PUB, verb = KEYS[1], ARGV[1], ARGV[2]
local was = call('HMGET', C, 'v', 'd')
M = KEYS[2]
local version, data, rc = tonumber(was[1] or 0), was[2] or '', 0
if (verb == 'put' or verb == 'del') and ARGV[3] ~= '' and ARGV[3] ~= format(TEXT, version) then
    rc = -1
elseif verb == 'add' then
    local sum = redis.pcall('HINCRBY', C, 'd', ARGV[4])
    if type(sum) == 'table' and sum.err:find('OOM', 1, true) then
        return sum
    elseif type(sum) == 'table' then
        rc = -2
    else
        data = call('HGET', C, 'd')
    end
elseif verb == 'put' then
    data = ARGV[6]
elseif verb == 'del' and version ~= 0 then
    call('DEL', C)
    version, data = 0, ''
    redis.pcall(PUB, C, '')
end
if rc == 0 and (verb == 'put' or verb == 'add') then
    version = fence()
    call('HSET', C, 'v', format(TEXT, version), 'd', data)
    if tonumber(ARGV[5]) > 0 then
        call('PEXPIREAT', C, format(TEXT, now + ARGV[5]))
    else
        call('PERSIST', C)
    end
    redis.pcall(PUB, C, '')
end
return { rc, version, data, call('PTTL', C) }
