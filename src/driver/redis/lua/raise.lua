-- raise.lua: the second phase of a fence: raise the node's mark, while the key is mine.
-- KEYS 1 key 2 mark; ARGV 1 my value 2 candidate 3 name of this run of the server 4 '1': a node
-- without a mark of this run may be given this one
-- Answers {1}, {0, mark} it is not lower, {-1} the key is not mine, {-2} no mark.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
    return { -1 }
end
local number, run = string.match(redis.call('GET', KEYS[2]) or '', '^(%d+) (.*)$')
if run ~= ARGV[3] and ARGV[4] ~= '1' then
    return { -2 }
end
if number and tonumber(number) >= tonumber(ARGV[2]) then
    return { 0, tonumber(number) }
end
redis.call('SET', KEYS[2], ARGV[2] .. ' ' .. ARGV[3])
return { 1 }
