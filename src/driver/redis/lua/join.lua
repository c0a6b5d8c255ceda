-- join.lua: stand in line, or take the place if there is room (G1, G2, G3, G7).
-- ARGV 2 token 3 header of a line that this one alone is in, up to `seq` 4 ttl
-- 5 client and record 6 flags, if any (t: try, b: barge)
-- Answers the fence: it holds, {'w', group's till, recheck, number, position}, {'b'} busy and not in line,
-- {'x'} evicted, {'m', kind, capacity} another kind of line, {'f', format} a line of another holdfast.
-- Recheck: when the first in the queue should look again, ms from now, or -1.
-- Repeatable: a token that is in line answers its place, and its owner's time counts anew.
--
-- Most lines are free, so that comes first, in few steps and before line.lua; then those where
-- somebody holds and nothing is to be done but to stand behind him, before admit.lua. Both leave
-- what the long way would leave.
local call, pack = redis.call, struct.pack
if call('EXISTS', KEYS[1]) == 0 then
    local head, t = ARGV[3], call('TIME')
    local us = t[1] * 1000000 + t[2]
    local expiry = math.floor(us / 1000) + ARGV[4]
    local old, number = call('SET', KEYS[4], t[1] .. ('00000' .. t[2]):sub(-6), 'GET'), us
    if old and tonumber(old) >= us then
        number = old + 1
        call('SET', KEYS[4], string.format('%.0f', number))
    end
    if #ARGV[5] <= 116 then -- client and who it is
        call('HSET', KEYS[1], '', head .. pack('>I8I8I8', expiry, expiry, 0), ARGV[2],
            pack('>c8I8I8I8I8B', head:sub(11), number, expiry, us, us, 0) .. ARGV[5])
    else
        call('HSET', KEYS[1], '', head .. pack('>I8I8I8', expiry, expiry, 0), ARGV[2],
            pack('>c8I8I8I8I8Bc16', head:sub(11), number, expiry, us, us, 0, ARGV[5]),
            'r' .. ARGV[2], ARGV[5]:sub(17))
    end
    call('PEXPIREAT', KEYS[1], string.format('%.0f', expiry))
    return number
end
--> line.lua
local token, ttl, expiry, flags = ARGV[2], tonumber(ARGV[4]), now + ARGV[4], ARGV[6] or ''
local pair = call('HMGET', L, '', token)
local mine, other = pair[2], parse(pair[1])
local _, my_kind, my_cap, weight = unpack('>BBI8I8', ARGV[3])
if other then
    return { 'f', other }
end

-- In the queue, or still in it. The header is to be written after it.
local function stand()
    local group = 'g' .. ARGV[5]:sub(1, 16) .. pack('>I8', ttl)
    local both = nw > 0 and call('HMGET', W, token, group) or {}
    local count, number, rank = 0, nil, 0
    if both[2] then
        _, count = unpack(GROUP, both[2])
    end
    if both[1] then
        _, number = unpack(WAITER, both[1])
        lasts(expiry, true) -- first: also without memory left
        call('HSET', W, group, pack(GROUP, expiry, count))
    else
        seq = seq + 1
        nw = nw + 1
        number = seq
        changed = true
        call('ZADD', Q, number, token)
        call('HSET', W, token, pack('>I8I8I8I8', weight, number, us, ttl) .. ARGV[5], group,
            pack(GROUP, expiry, count + 1))
        lasts(expiry, true)
    end
    if nw > 1 then
        rank = call('ZRANK', Q, token)
    end
    return { 'w', expiry, rank == 0 and n > 0 and math.max(soonest - now, 0) or -1, number,
        rank + 1 }
end

if not mine and n > 0 and now < soonest and sum + weight > cap and followed <= now and
    kind == my_kind and cap == my_cap and (nw == 0 or not flags:find('t', 1, true)) then
    local answer
    if flags:find('t', 1, true) then
        return { 'b' }
    end
    answer = stand()
    call('HSET', L, '', header())
    return answer
end
--> admit.lua
purge()
if changed or (not mine and nw > 0 and sum + weight <= cap) then
    admit() -- those in front may have died
    mine = holder(token)
end
if mine then
    local w, f, _, joined, granted, bits, c, rest = unpack(HOLDER, mine)
    if bits == 0 then
        call('PEXPIREAT', L, format(TEXT, math.max(till, expiry))) -- also without memory left
        lasts(expiry)
        sooner(expiry)
        enter(token, pack(HOLDER, w, f, expiry, joined, granted, 0, c) .. mine:sub(rest))
        save()
        return f
    end
    if bits >= KEPT then -- left already: a late one of these
        if changed then
            save()
        end
        return { 'b' }
    end
    call('HDEL', L, token, 'r' .. token) -- broken before its owner knew of it: its time may not count anew
    n = n - 1
    sum = sum - w
    changed = true
    admit()
    save()
    return { 'x' }
end
if nw == 0 or not call('HGET', W, token) then
    if n == 0 and nw == 0 then
        kind, cap = my_kind, my_cap
    elseif kind ~= my_kind or cap ~= my_cap then
        if changed then
            save()
        end
        return { 'm', kind, cap }
    end
    if sum + weight <= cap and (nw == 0 or flags:find('b', 1, true)) then
        local number = fence()
        n = n + 1
        sum = sum + weight
        sooner(expiry)
        changed = true
        lasts(expiry)
        enter(token, pack(HOLDER, weight, number, expiry, us, us, 0, ARGV[5]), ARGV[5]:sub(17))
        if nw > 0 then -- past those who wait: this hold may end before the first of them looks
            headed = true
            admit()
        end
        save()
        return number
    end
    if flags:find('t', 1, true) then
        if changed then
            save()
        end
        return { 'b' }
    end
end
local answer = stand()
save()
return answer
