-- lock.lua: one vote of Redlock: take the key if nobody has it. Any SET NX PX user is excluded too.
-- A vote with a mark of this run of the server also takes the candidate for the fence, if the mark
-- is lower. Scripts are atomic: nobody comes between key and mark, and nobody sees the candidate
-- that is taken away again.
-- KEYS 1 key 2 mark ("FENCE RUN"); ARGV 1 value 2 ttl 3 candidate 4 name of this run 5 '1': this is
-- the only node, and gives the fence whatever its mark is.
-- Answers 1: mine, and the candidate was taken (nearly always); else {1, what, mark} or
-- {0, what, mark, ms until it expires or -1, type of the key}; what: 0 no mark, 1 of another run,
-- 2 of this one, 3 this candidate was taken.
local mine = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
local candidate = tonumber(ARGV[3])
local text
if mine and candidate > 0 then
    text = redis.call('SET', KEYS[2], ARGV[3] .. ' ' .. ARGV[4], 'GET')
else
    text = redis.call('GET', KEYS[2])
end
local number, run = string.match(text or '', '^(%d+) (.*)$')
local mark, what = tonumber(number) or 0, not number and 0 or run == ARGV[4] and 2 or 1
if not mine then
    return { 0, what, mark, redis.call('PTTL', KEYS[1]), redis.call('TYPE', KEYS[1]).ok }
end
if candidate > mark and (what == 2 or ARGV[5] == '1') then
    return 1
end
if ARGV[5] == '1' then
    redis.call('SET', KEYS[2], string.format('%.0f ', mark + 1) .. ARGV[4])
    return { 1, 3, mark + 1 }
end
if text and candidate > 0 then
    redis.call('SET', KEYS[2], text)
elseif candidate > 0 then
    redis.call('DEL', KEYS[2])
end
return { 1, what, mark }
