-- evict.lua: end one ticket, named by its token (G8): at once, or (a holder) by ending its renewal. A
-- kept one has no owner who could be told, and nobody renews it: it ends at once.
-- ARGV 2 token 3 '1': at once. Answers 1, 0: no such ticket, {'f', format}.
-- KEYS 5: hash, the tokens that were taken out at once. A message may be lost; the next look of
-- its owner finds it there, and knows that its place has not merely expired. After the time of
-- that place it would have.
--> line.lua
--> admit.lua
local token = ARGV[2]
local pair = call('HMGET', L, '', token)
local other = parse(pair[1])
local waiter
local function remember()
    call('HSET', KEYS[5], token, '')
    call('PEXPIREAT', KEYS[5], format(TEXT, till))
end
if other then
    return { 'f', other }
end
if pair[2] then
    local w, f, e, joined, granted, bits, c, rest = unpack(HOLDER, pair[2])
    changed = true
    if ARGV[3] == '1' or bits >= KEPT then
        call('HDEL', L, token, 'r' .. token)
        n = n - 1
        sum = sum - w
        tell(c, 'x', token, 0, 0)
        remember()
        purge()
        admit()
    elseif bits == 0 then
        enter(token, pack(HOLDER, w, f, e, joined, granted, BROKEN, c) .. pair[2]:sub(rest))
        tell(c, 'm', token, 0, 0)
    end
    save()
    return 1
end
waiter = nw > 0 and call('HGET', W, token)
if not waiter then
    return 0
end
local _, _, _, client, _, group, group_till, count = read(waiter)
dequeue(token, group, group_till, count)
tell(client, 'x', token, 0, 0)
remember()
purge()
admit()
save()
return 1
