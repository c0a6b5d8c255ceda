-- wait.lua: the waiting tickets of a client are alive, and what became of the oldest of them: the
-- safety look (G1, G4, G5). Grants leave the queue in its order, so if the oldest still waits,
-- none of the others was granted.
-- ARGV 2 client 3 ttl 4.. tokens, the oldest first
-- KEYS 5: tokens that were evicted (evict.lua).
-- Answers {group's till (0: no such group), its count, recheck, then for each token: 0 gone,
-- 1 evicted, below 0: it waits, at minus its position, or its fence: it holds, and its time counts
-- anew (its expiry is `now + ttl`, if it was not later)}, or {'f', format}.
--> line.lua
--> admit.lua
local expiry = now + ARGV[3]
local group = 'g' .. ARGV[2] .. pack('>I8', ARGV[3])
local other = parse(call('HGET', L, ''))
local g, answer, foremost
if other then
    return { 'f', other }
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
for i = 4, #ARGV do
    local mine = holder(ARGV[i])
    local state = 0
    if mine then
        local w, f, e, joined, granted, bits, c, rest = unpack(HOLDER, mine)
        if bits == 0 and e > now then
            e = math.max(e, expiry) -- this may come late, and its owner have renewed it for longer
            lasts(e)
            sooner(e)
            enter(ARGV[i], pack(HOLDER, w, f, e, joined, granted, 0, c) .. mine:sub(rest))
            state = f
        elseif bits == BROKEN then -- before its owner knew of it
            state = 1
        end
    elseif nw > 0 then
        local rank = call('ZRANK', Q, ARGV[i])
        if rank then
            state = -1 - rank
            foremost = foremost or rank
        end
    end
    if state == 0 and call('HGET', KEYS[5], ARGV[i]) then
        state = 1
    end
    answer[i] = state
end
g = call('HGET', W, group)
if g then
    answer[1], answer[2] = unpack(GROUP, g)
end
if foremost == 0 and n > 0 then
    answer[3] = math.max(soonest - now, 0)
end
save()
return answer
