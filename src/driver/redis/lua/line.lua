-- line.lua: what the scripts share: one line, read, changed and written back as a whole.
--
-- A line is three keys, all with one hash tag, so that they and the mark share a slot:
--   L  hash   '' -> header; token (16 bytes) -> holder
--   W  hash   token -> waiter; 'g' client ttl (25 bytes) -> waiting group: till, count
--   Q  zset   token, by number of joining: the queue
--   M  string the last fence of the bucket ("mark")
-- A script runs alone, and its effects reach replicas and the append-only file together, so no
-- reader sees a line half changed and a crash leaves it as before or after. A server without
-- memory left refuses the first write of a script or none: where a script must succeed even then
-- (leave, renew) its first write is one that frees or moves an expiry, which is never refused.
--
-- Time is the server's, in ms (us: in µs). A holder's expiry and a group's `till` are changed by
-- requests of their own client only; a grant copies `till` and moves nothing (G1). Whoever comes
-- by drops holders whose time is over and waiters whose group's time is over, and admits the next
-- (G3, G5). All keys of a line expire at the latest `till` that was ever given in it, so nothing
-- is left when everybody has died.
--
-- soonest is a lower bound of the holders' expiries: only when it has passed are the holders
-- walked through, which then sets it anew. The work of a call does not grow with the queue.
--
-- Numbers stay below 2^53, where Lua's are exact. They become text by text() only: `..` keeps
-- fourteen digits, and fences would repeat (G2).
local call, pack, unpack = redis.call, struct.pack, struct.unpack
local L, W, Q, M = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local PUB, WAKE = ARGV[1], ARGV[2]
local FORMAT = 1
local HEAD = '>BBI8I8I4I4I8I8I8I8'
local HOLDER = '>I8I8I8I8I8Bc16' -- weight, fence, expiry, joined, granted, flags, client
local WAITER = '>I8I8I8I8c16'    -- weight, number, joined, ttl, client
local GROUP = '>I8I4'
local BROKEN, KEPT = 1, 2
local _

local us, now
local function clock()
    if not us then
        local t = call('TIME')
        us = t[1] * 1000000 + t[2]
        now = math.floor(us / 1000)
    end
    return now
end

local function text(number)
    return string.format('%.0f', number)
end

local kind, cap, sum, n, nw, seq, soonest, till, followed = 0, 0, 0, 0, 0, 0, 0, 0, 0
local changed = false

local function parse(head) -- nil, or the format that is not ours
    local format
    if not head then
        return nil
    end
    format = head:byte(1)
    if format ~= FORMAT then
        return format
    end
    format, kind, cap, sum, n, nw, seq, soonest, till, followed = unpack(HEAD, head)
    return nil
end

local function header()
    return pack(HEAD, FORMAT, kind, cap, sum, n, nw, seq, soonest, till, followed)
end

-- Of a line that has just been written, or is about to be: no key of it may expire before `at`.
local function lasts(at, waiters)
    if at > till then
        till = at
        call('PEXPIREAT', L, text(till))
    end
    if waiters then
        call('PEXPIREAT', W, text(till))
        call('PEXPIREAT', Q, text(till))
    end
end

local function sooner(at)
    if soonest == 0 or at < soonest then
        soonest = at
    end
end

-- The mark is written with every fence: first to the clock, and once more if it was not behind it.
local mark
local function fence()
    if not mark then
        local old
        clock()
        old = call('SET', M, text(us), 'GET')
        mark = us
        if not old or tonumber(old) < us then
            return us
        end
        mark = tonumber(old)
    end
    mark = mark + 1
    call('SET', M, text(mark))
    return mark
end

-- One message for each client that has something to learn. A user who may not publish must not make
-- the script fail after it has written: then those who wait find it by looking.
local news = {}
local function tell(client, what, token, number, at)
    news[client] = (news[client] or '') .. pack('>c1c16I8I8', what, token, number, at)
end

local function send_news()
    for client, message in pairs(news) do
        redis.pcall(PUB, WAKE .. client, message)
    end
    if changed and followed > 0 and followed > clock() then
        redis.pcall(PUB, L, '')
    end
end

local function group_of(client, ttl)
    return 'g' .. client .. pack('>I8', ttl)
end

-- Takes a waiter out of the queue. Returns what it was: weight, joined, client, rest of the
-- record, and until when its group lives.
local headed = false
local function dequeue(token, record)
    local weight, _, joined, ttl, client, rest = unpack(WAITER, record)
    local group = group_of(client, ttl)
    local g = call('HGET', W, group)
    local group_till, count = 0, 0
    call('ZREM', Q, token)
    call('HDEL', W, token)
    nw = nw - 1
    changed = true
    headed = true
    if g then
        group_till, count = unpack(GROUP, g)
        if count > 1 then
            call('HSET', W, group, pack(GROUP, group_till, count - 1))
        else
            call('HDEL', W, group)
        end
    end
    return weight, joined, client, record:sub(rest), group_till
end

local function purge()
    local all
    if n == 0 or clock() < soonest then
        return
    end
    all = call('HGETALL', L)
    soonest = 0
    for i = 1, #all, 2 do
        if #all[i] == 16 then
            local weight, _, expiry = unpack('>I8I8I8', all[i + 1])
            if expiry <= now then
                call('HDEL', L, all[i])
                n = n - 1
                sum = sum - weight
                changed = true
            else
                sooner(expiry)
            end
        end
    end
end

local function head_of_queue()
    local token = call('ZRANGE', Q, 0, 0)[1]
    local record = token and call('HGET', W, token)
    while token and not record do -- nobody's: it must not stand in the way
        call('ZREM', Q, token)
        nw = nw - 1
        token = call('ZRANGE', Q, 0, 0)[1]
        record = token and call('HGET', W, token)
    end
    if not token then
        nw = 0
    end
    return token, record
end

-- The one rule of a line: the head of the queue goes in while it fits.
local function admit()
    while nw > 0 do
        local token, record = head_of_queue()
        local weight, ttl, client, group
        if not token then
            return
        end
        weight, _, _, ttl, client = unpack(WAITER, record)
        group = call('HGET', W, group_of(client, ttl))
        if group and unpack(GROUP, group) > clock() then
            local joined, rest, expiry, number
            if sum + weight > cap then
                -- perhaps it has just become the first: a hold may end before its next look
                if headed and n > 0 and soonest < unpack(GROUP, group) - ttl * 2 / 3 then
                    tell(client, 'l', token, 0, 0)
                end
                return
            end
            weight, joined, client, rest, expiry = dequeue(token, record)
            number = fence()
            call('HSET', L, token, pack(HOLDER, weight, number, expiry, joined, us, 0, client) .. rest)
            n = n + 1
            sum = sum + weight
            sooner(expiry)
            tell(client, 'g', token, number, expiry)
        else
            dequeue(token, record)
        end
    end
end

-- Nobody was admitted and the first in the queue has changed: the new one must learn when to look.
local function tell_first()
    local token, record = nil, nil
    if nw > 0 then
        token, record = head_of_queue()
    end
    if token then
        local _, _, _, _, client = unpack(WAITER, record)
        tell(client, 'l', token, 0, 0)
    end
end

local function save()
    if n == 0 and nw == 0 and (followed == 0 or followed <= clock()) then
        call('DEL', L)
    else
        call('HSET', L, '', header())
    end
    send_news()
end

-- When the first in the queue should look again: ms from now, or -1.
local function recheck(rank)
    if rank ~= 0 or n == 0 then
        return -1
    end
    return soonest > clock() and soonest - now or 0
end
