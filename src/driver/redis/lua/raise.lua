-- raise.lua: the second phase of a fence: raise the node's mark, while the key is mine. A node without
-- marks of this run may be seeded: it takes nothing up to the floor then, for any name.
-- KEYS 1 key 2 marks (see lock.lua); ARGV 1 my value 2 candidate 3 name of this run of the server
-- 4 bucket 5 floor, or '': it may not be seeded
-- Answers {1}, {0, mark} it is not lower, {-1} the key is not mine, {-2} no marks.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
    return { -1 }
end
local marks = redis.call('HMGET', KEYS[2], 'run', 'floor', 'top', ARGV[4])
local seeds = marks[1] ~= ARGV[3]
local mark, candidate = math.max(tonumber(marks[2] or 0), tonumber(marks[4] or 0)), tonumber(ARGV[2])
if seeds and ARGV[5] == '' then
    return { -2 }
end
if mark >= candidate then
    return { 0, mark }
end
if seeds then
    -- no lower than the candidate: that is taken too
    local floor = string.format('%.0f', math.max(tonumber(ARGV[5]), tonumber(marks[3] or 0), candidate))
    redis.call('DEL', KEYS[2])
    -- a value of more than 64 bytes: the server keeps it as a table, not as a list that it searches
    redis.call('HSET', KEYS[2], 'about', 'fences of the locks that holdfast keeps here; see holdfast-url(7), redlock:',
        'run', ARGV[3], 'floor', floor, 'top', floor)
    return { 1 }
end
if candidate > tonumber(marks[3] or 0) then
    redis.call('HSET', KEYS[2], 'top', ARGV[2])
end
redis.call('HSET', KEYS[2], ARGV[4], ARGV[2])
return { 1 }
