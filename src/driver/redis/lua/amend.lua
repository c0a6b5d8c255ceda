-- amend.lua: of a hold: a smaller weight, another record; admits the next in the same step.
-- ARGV 3 token 4 weight 5 record. Answers 1, 0: it does not hold, {'f', format}. Repeatable.
local pair = call('HMGET', L, '', ARGV[3])
local format = parse(pair[1])
if format then
    return { 'f', format }
end
if not pair[2] then
    return 0
end
local w, f, e, joined, granted, bits, c = unpack(HOLDER, pair[2])
local weight = math.min(w, tonumber(ARGV[4]))
if e <= clock() then
    return 0
end
sum = sum - w + weight
call('HSET', L, ARGV[3], pack(HOLDER, weight, f, e, joined, granted, bits, c) .. ARGV[5])
changed = true
purge()
admit()
save()
return 1
