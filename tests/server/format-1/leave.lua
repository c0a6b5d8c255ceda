local pair = redis.call('HMGET', KEYS[1], '', ARGV[2])
if pair[2] and pair[1] and not ARGV[3] and pair[1]:byte(1) == 1 and
pair[1]:sub(19, 26) == '\0\0\0\1\0\0\0\0' and pair[1]:sub(51) == '\0\0\0\0\0\0\0\0' then
redis.call('DEL', KEYS[1])
return 1
end
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
local mark
local function fence()
if not mark then
local old = call('SET', M, t[1] .. ('00000' .. t[2]):sub(-6), 'GET')
mark = us
if not old or tonumber(old) < us then
return us
end
mark = tonumber(old)
end
mark = mark + 1
call('SET', M, format(TEXT, mark))
return mark
end
local news, headed, last_in, last_record = {}, false, nil, nil
local function sooner(at)
if soonest == 0 or at < soonest then
soonest = at
end
end
local function tell(client, what, token, number, at)
news[client] = (news[client] or '') .. pack('>c1c16I8I8', what, token, number, at)
end
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
call('HDEL', L, all[i])
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
elseif token then
call('ZREM', Q, token)
nw = nw - 1
else
nw = 0
end
end
end
local function enter(token, record)
if last_in and last_in ~= token then
call('HSET', L, last_in, last_record)
end
last_in, last_record = token, record
end
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
if headed and n > 0 and soonest < expiry - ttl * (3 - 1) / 3 then
tell(client, 'l', token, 0, 0)
end
return
else
local number
dequeue(token, group, expiry, count)
number = fence()
enter(token, pack(HOLDER, weight, number, expiry, joined, us, 0, client) ..
record:sub(rest))
n = n + 1
sum = sum + weight
sooner(expiry)
tell(client, 'g', token, number, expiry)
end
token, record = first()
end
end
local function save()
local publish = ARGV[1]:sub(1, 1) == 's' and 'SPUBLISH' or 'PUBLISH'
if n == 0 and nw == 0 and followed <= now then
call('DEL', L)
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
local w, f, e, joined, granted, _, c, rest = unpack(HOLDER, mine)
local head, record
e = now + keep
sooner(e)
till = math.max(till, e)
changed = true
call('PEXPIREAT', L, format(TEXT, till))
enter(token, pack(HOLDER, w, f, e, joined, granted, bits, c) .. mine:sub(rest))
head, record = first()
if head then
local _, _, _, _, client = unpack(WAITER, record)
tell(client, 'l', head, 0, 0)
end
save()
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
local was_first = nw == 1 or call('ZRANK', Q, token) == 0
local holders = n
dequeue(token, select(6, read(waiter)))
purge()
if was_first or n < holders then
admit()
end
save()
return 1
