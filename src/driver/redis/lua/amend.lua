-- amend.lua: of a hold: a smaller weight, another record; admits the next in the same step. The
-- first that waits is told to look if a hold ends before it would: renew.lua has no keys for that.
-- ARGV 2 token 3 weight 4 record. Answers 1, 0: it does not hold, {'f', format}. Repeatable.
--> line.lua
--> admit.lua
local pair = call('HMGET', L, '', ARGV[2])
local other = parse(pair[1])
if other then
    return { 'f', other }
end
if not pair[2] then
    return 0
end
local w, f, e, joined, granted, bits, c, rest = unpack(HOLDER, pair[2])
local weight = math.min(w, tonumber(ARGV[3]))
if e <= now then
    return 0
end
sum = sum - w + weight
if #pair[2] < rest then -- who it is stood apart
    call('HDEL', L, 'r' .. ARGV[2])
end
enter(ARGV[2], pack(HOLDER, weight, f, e, joined, granted, bits, c), ARGV[4])
changed = true
headed = true
purge()
admit()
save()
return 1
