-- leave.lua: give the place up and admit the next in the same step (G4, G7, G8).
-- ARGV 3 token 4 keep: 0, or ms after which the store ends the hold by itself
-- Answers 1, 0: it was not there, {'f', format}. Repeatable.
--
-- The last one goes and nobody waits or follows: that comes before line.lua, as in join.lua. The
-- header then says one holder, no waiter (bytes 19 to 26) and no follower (the last 8).
local pair = redis.call('HMGET', KEYS[1], '', ARGV[3])
if pair[2] and pair[1] and ARGV[4] == '0' and pair[1]:byte(1) == 1 and
    pair[1]:sub(19, 26) == '\0\0\0\1\0\0\0\0' and pair[1]:sub(51) == '\0\0\0\0\0\0\0\0' then
    redis.call('DEL', KEYS[1])
    return 1
end
--> line.lua
local token, keep = ARGV[3], tonumber(ARGV[4])
local head, mine = pair[1], pair[2]
local format = parse(head)
local waiter
if format then
    return { 'f', format }
end
if mine and keep > 0 then
    local w, f, e, joined, granted, bits, c, rest = unpack(HOLDER, mine)
    if bits < KEPT then
        e = clock() + keep
        sooner(e)
        till = math.max(till, e)
        call('PEXPIREAT', L, text(till))
        call('HSET', L, '', header(), token,
            pack(HOLDER, w, f, e, joined, granted, bits + KEPT, c) .. mine:sub(rest))
        changed = true
        tell_first()
        send_news()
    end
    return 1
end
if mine then
    call('HDEL', L, token)
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
local first = call('ZRANK', Q, token) == 0
local holders = n
dequeue(token, waiter)
purge()
if first or n < holders then
    admit()
end
save()
return 1
