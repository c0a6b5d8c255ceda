-- join.lua: stand in line, or take the place if there is room (G1, G2, G3, G7).
-- ARGV 3 token 4 client 5 kind 6 capacity 7 weight 8 ttl 9 flags (t: try, b: barge) 10 record
-- Answers the fence: it holds, {'w', group's till, recheck, number}, {'b'} busy and not in line,
-- {'x'} evicted, {'m', kind, capacity} another kind of line, {'f', format} a line of another holdfast.
-- Repeatable: a token that is in line answers its place, and its owner's time counts anew.
--
-- Most lines are free, so that comes first, in few steps and before line.lua: to make the
-- functions of that takes longer than all of this. It leaves what the long way would leave.
local call, pack = redis.call, struct.pack
if call('EXISTS', KEYS[1]) == 0 then
    local weight, t = ARGV[7], call('TIME')
    local us = t[1] * 1000000 + t[2]
    local expiry = math.floor(us / 1000) + ARGV[8]
    local old, number = call('SET', KEYS[4], string.format('%.0f', us), 'GET'), us
    if old and tonumber(old) >= us then
        number = old + 1
        call('SET', KEYS[4], string.format('%.0f', number))
    end
    call('HSET', KEYS[1], '',
        pack('>BBI8I8I4I4I8I8I8I8', 1, ARGV[5], ARGV[6], weight, 1, 0, 0, expiry, expiry, 0), ARGV[3],
        pack('>I8I8I8I8I8Bc16', weight, number, expiry, us, us, 0, ARGV[4]) .. ARGV[10])
    call('PEXPIREAT', KEYS[1], string.format('%.0f', expiry))
    return number
end
--> line.lua
local token, client, flags = ARGV[3], ARGV[4], ARGV[9]
local weight, ttl = tonumber(ARGV[7]), tonumber(ARGV[8])
local pair = call('HMGET', L, '', token)
local head, mine = pair[1], pair[2]
local format = parse(head)
local expiry, number, group, count, waiter, longer
if format then
    return { 'f', format }
end
expiry = clock() + ttl
if head then
    purge()
    if changed or (not mine and nw > 0 and sum + weight <= cap) then
        admit() -- those in front may have died
        mine = call('HGET', L, token)
    end
end
if mine then
    local w, f, _, joined, granted, bits, c, rest = unpack(HOLDER, mine)
    if bits == 0 then
        call('PEXPIREAT', L, text(math.max(till, expiry))) -- also without memory left
        lasts(expiry)
        sooner(expiry)
        call('HSET', L, token, pack(HOLDER, w, f, expiry, joined, granted, 0, c) .. mine:sub(rest))
        save()
        return f
    end
    if bits >= KEPT then
        return { 'b' } -- left already: a late one of these
    end
    call('HDEL', L, token) -- broken before its owner knew of it: its time may not count anew
    n = n - 1
    sum = sum - w
    changed = true
    admit()
    save()
    return { 'x' }
end
waiter = nw > 0 and call('HGET', W, token)
if not waiter then
    if n == 0 and nw == 0 then
        kind, cap = tonumber(ARGV[5]), tonumber(ARGV[6])
    elseif kind ~= tonumber(ARGV[5]) or cap ~= tonumber(ARGV[6]) then
        if changed then
            save()
        end
        return { 'm', kind, cap }
    end
    if sum + weight <= cap and (nw == 0 or flags:find('b', 1, true)) then
        number = fence()
        n = n + 1
        sum = sum + weight
        sooner(expiry)
        changed = true
        if expiry > till then
            till = expiry
            longer = true
        end
        call('HSET', L, '', header(), token,
            pack(HOLDER, weight, number, expiry, us, us, 0, client) .. ARGV[10])
        if longer then
            call('PEXPIREAT', L, text(till))
        end
        send_news()
        return number
    end
    if flags:find('t', 1, true) then
        if changed then
            save()
        end
        return { 'b' }
    end
end
group = group_of(client, ttl)
count = call('HGET', W, group)
if count then
    _, count = unpack(GROUP, count)
else
    count = 0
end
if waiter then
    _, number = unpack(WAITER, waiter)
    lasts(expiry, true) -- first: also without memory left
    call('HSET', W, group, pack(GROUP, expiry, count))
else
    seq = seq + 1
    nw = nw + 1
    number = seq
    changed = true
    call('ZADD', Q, number, token)
    call('HSET', W, token, pack(WAITER, weight, number, us, ttl, client) .. ARGV[10], group,
        pack(GROUP, expiry, count + 1))
end
lasts(expiry, true)
save()
return { 'w', expiry, recheck(call('ZRANK', Q, token)), number }
