-- renew.lua: many holds of one client are alive (G1, G8).
-- KEYS: a line for each; ARGV: a token and a ttl for each.
-- Answers for each: 1 renewed, 0 gone or over: never revived, because another may have been told
-- that the place is free; 2 marked: it ends at its expiry; 3 it holds (ttl 0: only asked); 4 renewed,
-- and somebody waits who should look sooner than it knows, because this hold was made shorter.
--> line.lua
local answers = {}
for i = 1, #KEYS do
    local token, ttl = ARGV[2 * i - 1], tonumber(ARGV[2 * i])
    local pair = redis.pcall('HMGET', KEYS[i], '', token) -- one that is damaged harms no other
    local answer = 0
    L = KEYS[i]
    if not pair.err and pair[1] and pair[2] and #pair[1] == 58 and #pair[2] >= 57 and
        parse(pair[1]) == nil then
        local w, f, e, joined, granted, bits, c, rest = unpack(HOLDER, pair[2])
        if e > now and bits == 0 and ttl == 0 then
            answer = 3
        elseif e > now and bits == 0 then
            local expiry = now + ttl
            answer = nw > 0 and expiry < soonest and 4 or 1
            soonest = n == 1 and expiry or math.min(soonest, expiry)
            till = math.max(till, expiry)
            call('PEXPIREAT', L, format(TEXT, till))
            call('HSET', L, '', header(), token,
                pack(HOLDER, w, f, expiry, joined, granted, bits, c) .. pair[2]:sub(rest))
        elseif e > now then
            answer = bits == BROKEN and 2 or 0
        end
    end
    answers[i] = answer
end
return answers
