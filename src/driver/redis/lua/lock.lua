-- lock.lua: one vote of Redlock: take the key if nobody has it. Any SET NX PX user is excluded too.
-- A vote with a mark of this run of the server also takes the candidate for the fence, if the mark
-- is lower. Scripts are atomic: nobody comes between key and mark.
-- KEYS 1 key 2 mark ("FENCE RUN"); ARGV 1 value 2 ttl 3 candidate 4 name of this run 5 '1': this is
-- the only node, and gives the fence whatever its mark is.
-- Answers {1, what, mark} or {0, what, mark, ms until it expires or -1, type of the key};
-- what: 0 no mark, 1 of another run, 2 of this one, 3 the candidate was taken.
local text, mark, what = redis.call('GET', KEYS[2]), 0, 0
local number, run = string.match(text or '', '^(%d+) (.*)$')
if number then
    mark, what = tonumber(number), run == ARGV[4] and 2 or 1
end
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
    return { 0, what, mark, redis.call('PTTL', KEYS[1]), redis.call('TYPE', KEYS[1]).ok }
end
local candidate = tonumber(ARGV[3])
if ARGV[5] == '1' and mark >= candidate then
    candidate = mark + 1
end
if ARGV[5] == '1' or what == 2 and mark < candidate then
    redis.call('SET', KEYS[2], string.format('%.0f ', candidate) .. ARGV[4])
    return { 1, 3, candidate }
end
return { 1, what, mark }
