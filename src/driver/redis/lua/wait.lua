-- wait.lua: the waiting tickets of a client are alive, and what became of the oldest of them: the
-- safety look (G1, G4, G5). Grants leave the queue in its order, so if the oldest still waits,
-- none of the others was granted.
-- ARGV 3 client 4 ttl 5.. tokens, the oldest first
-- Answers {group's till (0: no such group), its count, recheck, then for each token: 0 gone,
-- 1 waits, or its fence: it holds, and its time counts anew (its expiry is `now + ttl` too)},
-- or {'f', format}.
local client, ttl = ARGV[3], tonumber(ARGV[4])
local group = group_of(client, ttl)
local format = parse(call('HGET', L, ''))
local expiry = clock() + ttl
local g, answer, first
if format then
    return { 'f', format }
end
g = call('HGET', W, group)
if g then
    local _, count = unpack(GROUP, g)
    lasts(expiry, true)
    call('HSET', W, group, pack(GROUP, expiry, count))
end
purge()
admit()
answer = { 0, 0, -1 }
for i = 5, #ARGV do
    local mine = call('HGET', L, ARGV[i])
    local state = 0
    if mine then
        local w, f, e, joined, granted, bits, c, rest = unpack(HOLDER, mine)
        if bits == 0 and e > now then
            lasts(expiry)
            sooner(expiry)
            call('HSET', L, ARGV[i], pack(HOLDER, w, f, expiry, joined, granted, 0, c) .. mine:sub(rest))
            state = f
        end
    elseif nw > 0 then
        local rank = call('ZRANK', Q, ARGV[i])
        if rank then
            state = 1
            first = first or rank
        end
    end
    answer[i - 1] = state
end
g = call('HGET', W, group)
if g then
    answer[1], answer[2] = unpack(GROUP, g)
end
answer[3] = recheck(first)
save()
return answer
