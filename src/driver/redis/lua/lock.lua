-- lock.lua: one vote of Redlock: take the key if nobody has it. Any SET NX PX user is excluded too.
-- A vote on a node with marks of this run of the server also takes the candidate for the fence, if
-- the mark is lower. Scripts are atomic: nobody comes between key and mark.
--
-- The marks of a node are one hash, so that they are there or are forgotten together:
--   run     of the server that they are of
--   floor   a lower bound of all marks: what the node was seeded with
--   top     no lower than any fence that it has taken: what others are seeded with (raise.lua). It is
--           ahead of the fences by up to AHEAD µs, so that it is not written with each of them
--   BUCKET  the mark: the highest fence that the node has taken for a name of this bucket. If it is
--           there, it is above the floor: a new floor removes all that were there before
-- KEYS 1 key 2 marks; ARGV 1 value 2 ttl 3 candidate, or 0 4 name of this run 5 bucket 6 '1': this is
-- the only node, and gives the fence whatever its mark is.
-- Answers top, as text: mine, and the candidate was taken (nearly always); else {1, what, mark, top} or
-- {0, what, mark, top, ms until it expires or -1, type of the key}; what: 0 no marks, 1 of another
-- run, 2 of this one, 3 the mark is the fence that was taken.
local AHEAD = 100000
local mine = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])
local marks = redis.call('HMGET', KEYS[2], 'run', 'top', ARGV[5])
local candidate = ARGV[3]
if mine and (marks[1] == ARGV[4] or ARGV[6] == '1') and marks[3] then
    -- Numbers of one length are compared as text: to read one costs more than to write a field.
    local mark, top = marks[3], marks[2]
    if #candidate == #mark and #candidate == #top and candidate > mark and candidate <= top then
        redis.call('HSET', KEYS[2], ARGV[5], candidate)
        return top
    end
end
local what = not marks[1] and 0 or marks[1] == ARGV[4] and 2 or 1
local top = tonumber(marks[2] or 0)
local mark = math.max(tonumber(redis.call('HMGET', KEYS[2], 'floor')[1] or 0), tonumber(marks[3] or 0))
if not mine then
    return { 0, what, mark, top, redis.call('PTTL', KEYS[1]), redis.call('TYPE', KEYS[1]).ok }
end
local asked = tonumber(candidate)
local fence = ARGV[6] == '1' and math.max(asked, mark + 1) or what == 2 and asked or 0
if fence <= mark then
    return { 1, what, mark, top }
end
local text = string.format('%.0f', fence)
if fence > top then
    top = fence + AHEAD
    redis.call('HSET', KEYS[2], 'top', string.format('%.0f', top), ARGV[5], text)
else
    redis.call('HSET', KEYS[2], ARGV[5], text)
end
return fence == asked and string.format('%.0f', top) or { 1, 3, fence, top }
