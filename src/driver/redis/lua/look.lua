-- look.lua: a line as it is: {time in µs, header and holders, waiters and groups}. Changes nothing,
-- but for ARGV 2 > 0: for so many ms every change of the line is published on a channel named like
-- its key L, also when nobody is in it any more. With ARGV 3 it is read for a deadlock walk: without
-- notes, and if that is a waiting ticket's token, of the queue only that ticket and those in front of it.
local spread = unpack
--> line.lua
local ms, front = tonumber(ARGV[2]), ARGV[3]
if ms > 0 then
    if parse(call('HGET', L, '')) == nil then
        local at = now + ms
        if at > followed then
            followed = at
        end
        call('HSET', L, '', header())
        lasts(followed)
        call('HSET', L, '', header())
    end
end
local holders, waiters = call('HGETALL', L), nil
if not front then
    return { us, holders, call('HGETALL', W) }
end

-- Who it is, is 25 bytes, host (1 byte of length), note (2), hints (2); `fixed` bytes before it.
local function without_notes(pairs, field, fixed)
    for i = 1, #pairs, 2 do
        local record = pairs[i + 1]
        if #pairs[i] == field and #record >= fixed + 28 then
            local at = fixed + 26 + record:byte(fixed + 26)
            local high, low = record:byte(at + 1, at + 2)
            if low and high + low > 0 then
                pairs[i + 1] = record:sub(1, at) .. '\0\0' .. record:sub(at + 3 + high * 256 + low)
            end
        end
    end
end

local rank = front ~= '' and call('ZRANK', Q, front)
if rank then
    local groups = {}
    waiters = {}
    for from = 0, rank, 1000 do
        local tokens = call('ZRANGE', Q, from, math.min(from + 999, rank))
        local records = call('HMGET', W, spread(tokens))
        for i, token in ipairs(tokens) do
            if records[i] and #records[i] >= 48 then
                local group = 'g' .. records[i]:sub(33, 48) .. records[i]:sub(25, 32)
                waiters[#waiters + 1] = token
                waiters[#waiters + 1] = records[i]
                if groups[group] == nil then
                    groups[group] = call('HGET', W, group)
                    if groups[group] then
                        waiters[#waiters + 1] = group
                        waiters[#waiters + 1] = groups[group]
                    end
                end
            end
        end
    end
else
    waiters = call('HGETALL', W)
end
without_notes(holders, 17, 0)
without_notes(waiters, 16, 48)
return { us, holders, waiters }
