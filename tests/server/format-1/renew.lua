local call, pack, unpack, format = redis.call, struct.pack, struct.unpack, string.format
local L, W, Q, M = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local FORMAT, TEXT = 1, '%.0f'
local HEAD = '>BBI8I8I4I4I8I8I8I8'
local HOLDER = '>I8I8I8I8I8Bc16'
local WAITER = '>I8I8I8I8c16'
local GROUP = '>I8I4'
local BROKEN, KEPT = 1, 2
local kind, cap, sum, n, nw, seq, soonest, till, followed = 0, 0, 0, 0, 0, 0, 0, 0, 0
local changed = false
local t = call('TIME')
local us = t[1] * 1000000 + t[2]
local now = math.floor(us / 1000)
local _
local function parse(head)
if head and head:byte(1) ~= FORMAT then
return head:byte(1)
elseif head then
_, kind, cap, sum, n, nw, seq, soonest, till, followed = unpack(HEAD, head)
end
end
local function header()
return pack(HEAD, FORMAT, kind, cap, sum, n, nw, seq, soonest, till, followed)
end
local function lasts(at, waiters)
if at > till then
till = at
call('PEXPIREAT', L, format(TEXT, till))
end
if waiters then
call('PEXPIREAT', W, format(TEXT, till))
call('PEXPIREAT', Q, format(TEXT, till))
end
end
local answers = {}
for i = 1, #KEYS do
local token, ttl = ARGV[2 * i - 1], tonumber(ARGV[2 * i])
local pair = redis.pcall('HMGET', KEYS[i], '', token)
local answer = 0
L = KEYS[i]
if not pair.err and pair[1] and pair[2] and #pair[1] == 58 and #pair[2] >= 57 and
parse(pair[1]) == nil then
local w, f, e, joined, granted, bits, c, rest = unpack(HOLDER, pair[2])
if e > now and bits == 0 and ttl == 0 then
answer = 3
elseif e > now and bits == 0 then
local expiry = now + ttl
answer = 1
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
