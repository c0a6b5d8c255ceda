-- leave.lua: give the place up and admit the next in the same step (G4, G7, G8).
-- ARGV 2 token 3 keep: ms after which the store ends the hold by itself, if it is kept
-- Answers 1, 0: it was not there, {'f', format}. Repeatable.
--
-- The last one goes and nobody waits or follows: that comes before line.lua, as in join.lua. The
-- header then says format 2, one holder, no waiter (bytes 19 to 26) and no follower (the last 8).
local pair = redis.call('HMGET', KEYS[1], '', ARGV[2])
if pair[2] and pair[1] and not ARGV[3] and pair[1]:byte(1) == 2 and
    pair[1]:sub(19, 26) == '\0\0\0\1\0\0\0\0' and pair[1]:sub(51) == '\0\0\0\0\0\0\0\0' then
    redis.call('DEL', KEYS[1])
    return 1
end
--> line.lua
--> admit.lua
local token, keep = ARGV[2], tonumber(ARGV[3])
local mine, other = pair[2], parse(pair[1])
local waiter
if other then
    return { 'f', other }
end
if mine and keep then
    local bits = select(6, unpack(HOLDER, mine))
    if bits < KEPT then
        bits = bits + KEPT
        --> kept.lua
    end
    return 1
end
if mine then
    call('HDEL', L, token, 'r' .. token)
    n = n - 1
    sum = sum - unpack('>I8', mine)
    changed = true
    purge()
    admit()
    save()
    return 1
end
waiter = nw > 0 and call('HGET', W, token)
if not waiter then
    return 0
end
local was_first = nw == 1 or call('ZRANK', Q, token) == 0
local holders = n
dequeue(token, select(6, read(waiter)))
purge()
if was_first or n < holders then
    admit()
end
save()
return 1
