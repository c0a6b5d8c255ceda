-- admit.lua: whose time is over goes out, the head of the queue goes in while it fits, and those
-- whom it concerns are told. ARGV 1: p or s (SPUBLISH), then what channels of clients begin with.
--
-- What enters is written with the next one or, the last of a script, with the header by save().
--> fence.lua
local news, headed, last_in, last_record, last_whose = {}, false, nil, nil, nil

local function sooner(at)
    if soonest == 0 or at < soonest then
        soonest = at
    end
end

-- One message for each client that has something to learn.
local function tell(client, what, token, number, at)
    news[client] = (news[client] or '') .. pack('>c1c16I8I8', what, token, number, at)
end

-- A waiter by its record: weight, joined, ttl, client, where the owner's part begins; its group:
-- key, until when it lives (0: it does not), how many are in it.
local function read(record)
    local weight, _, joined, ttl, client, rest = unpack(WAITER, record)
    local group = 'g' .. client .. pack('>I8', ttl)
    local its = call('HGET', W, group)
    local group_till, count = 0, 0
    if its then
        group_till, count = unpack(GROUP, its)
    end
    return weight, joined, ttl, client, rest, group, group_till, count
end

local function dequeue(token, group, group_till, count)
    nw = nw - 1
    changed = true
    headed = true
    if nw == 0 then
        call('DEL', W, Q)
        return
    end
    call('ZREM', Q, token)
    if count > 1 then
        call('HDEL', W, token)
        call('HSET', W, group, pack(GROUP, group_till, count - 1))
    else
        call('HDEL', W, token, group)
    end
end

-- Those that hold are counted anew: a script that failed half-way, for want of rights or at a key
-- of another type, may have left a header that counts one who has gone. Whoever has entered before
-- this stands in L already.
local function purge()
    local all, before
    if n == 0 or now < soonest then
        return
    end
    all, before = call('HGETALL', L), n
    n, sum, soonest = 0, 0, 0
    for i = 1, #all, 2 do
        if #all[i] == 16 then
            local record = all[i] == last_in and last_record or all[i + 1]
            local weight, _, expiry = unpack('>I8I8I8', record)
            if expiry <= now then
                call('HDEL', L, all[i], 'r' .. all[i])
            else
                n = n + 1
                sum = sum + weight
                sooner(expiry)
            end
        end
    end
    changed = changed or n ~= before
end

local function first()
    while nw > 0 do
        local token = call('ZRANGE', Q, 0, 0)[1]
        local record = token and call('HGET', W, token)
        if record then
            return token, record
        elseif token then -- nobody's: it must not stand in the way
            call('ZREM', Q, token)
            nw = nw - 1
        else
            nw = 0
        end
    end
end

-- whose: who it is, of one that has not held before, or changes that; else it is in the record, or
-- stays apart.
local function enter(token, record, whose)
    if whose and #whose <= LONG then
        record, whose = record .. whose, nil
    end
    if last_in and last_in ~= token then
        if last_whose then
            call('HSET', L, last_in, last_record, 'r' .. last_in, last_whose)
        else
            call('HSET', L, last_in, last_record)
        end
        last_whose = nil
    end
    last_in, last_record, last_whose = token, record, whose or last_whose
end

-- A holder's record, or false.
local function holder(token)
    return token == last_in and last_record or call('HGET', L, token)
end

local function admit()
    local token, record = first()
    while token do
        local weight, joined, ttl, client, rest, group, expiry, count = read(record)
        if expiry <= now then
            dequeue(token, group, expiry, count)
        elseif sum + weight > cap then
            -- it has just become the first, or a hold ends sooner: perhaps before its next look
            if headed and n > 0 and soonest < expiry - ttl * (RENEWALS - 1) / RENEWALS then
                tell(client, 'l', token, 0, 0)
            end
            return
        else
            local number
            dequeue(token, group, expiry, count)
            number = fence()
            enter(token, pack(HOLDER, weight, number, expiry, joined, us, 0, client),
                record:sub(rest))
            n = n + 1
            sum = sum + weight
            sooner(expiry)
            tell(client, 'g', token, number, expiry)
        end
        token, record = first()
    end
end

-- A user who may not publish must not make the script fail after it has written: then those who
-- wait find it by looking.
local function save()
    local publish = ARGV[1]:sub(1, 1) == 's' and 'SPUBLISH' or 'PUBLISH'
    if n == 0 and nw == 0 and followed <= now then
        call('DEL', L)
    elseif last_whose then
        call('HSET', L, '', header(), last_in, last_record, 'r' .. last_in, last_whose)
    elseif last_in then
        call('HSET', L, '', header(), last_in, last_record)
    else
        call('HSET', L, '', header())
    end
    for client, message in pairs(news) do
        redis.pcall(publish, ARGV[1]:sub(2) .. client, message)
    end
    if changed and followed > now then
        redis.pcall(publish, L, '')
    end
end
