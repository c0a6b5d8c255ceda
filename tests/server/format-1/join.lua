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
call('HSET', KEYS[1], '', head .. pack('>I8I8I8', expiry, expiry, 0), ARGV[2],
pack('>c8I8I8I8I8B', head:sub(11), number, expiry, us, us, 0) .. ARGV[5])
call('PEXPIREAT', KEYS[1], string.format('%.0f', expiry))
return number
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
local token, ttl, expiry, flags = ARGV[2], tonumber(ARGV[4]), now + ARGV[4], ARGV[6] or ''
local pair = call('HMGET', L, '', token)
local mine, other = pair[2], parse(pair[1])
local _, my_kind, my_cap, weight = unpack('>BBI8I8', ARGV[3])
if other then
return { 'f', other }
end
local function stand()
local group = 'g' .. ARGV[5]:sub(1, 16) .. pack('>I8', ttl)
local both = nw > 0 and call('HMGET', W, token, group) or {}
local count, number, rank = 0, nil, 0
if both[2] then
_, count = unpack(GROUP, both[2])
end
if both[1] then
_, number = unpack(WAITER, both[1])
lasts(expiry, true)
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
purge()
if changed or (not mine and nw > 0 and sum + weight <= cap) then
admit()
mine = holder(token)
end
if mine then
local w, f, _, joined, granted, bits, c, rest = unpack(HOLDER, mine)
if bits == 0 then
call('PEXPIREAT', L, format(TEXT, math.max(till, expiry)))
lasts(expiry)
sooner(expiry)
enter(token, pack(HOLDER, w, f, expiry, joined, granted, 0, c) .. mine:sub(rest))
save()
return f
end
if bits >= KEPT then
if changed then
save()
end
return { 'b' }
end
call('HDEL', L, token)
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
enter(token, pack('>I8I8I8I8I8B', weight, number, expiry, us, us, 0) .. ARGV[5])
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
