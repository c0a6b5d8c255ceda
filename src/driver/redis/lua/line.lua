-- line.lua: what the scripts share: one line, read, changed and written back as a whole.
--
-- A line is three keys, all with one hash tag, so that they and the mark share a slot:
--   L  hash   '' -> header; token (16 bytes) -> holder and who it is; if that is long, because of a
--             note or of hints, it stands in 'r' token (17 bytes), which no renewal writes again
--   W  hash   token -> waiter and who it is; 'g' client ttl (25 bytes) -> waiting group: till, count
--   Q  zset   token, by number of joining: the queue
--   M  string the last fence of the bucket ("mark")
-- A holder's two fields are written and deleted by one command, so none is ever without the other.
-- A script runs alone, and its effects reach replicas and the append-only file together, so no
-- reader sees a line half changed and a crash leaves it as before or after. A server without
-- memory left refuses the first write of a script or none: where a script must succeed even then
-- (leave, renew) its first write is one that frees or moves an expiry, which is never refused.
--
-- Time is the server's, in ms (us: in µs). A holder's expiry and a group's `till` are changed by
-- requests of their own client only; a grant copies `till` and moves nothing (G1). Whoever comes
-- by drops holders whose time is over and waiters whose group's time is over, and admits the next
-- (admit.lua; G3, G5). All keys of a line expire at the latest `till` that was ever given in it, so
-- nothing is left when everybody has died.
--
-- soonest is a lower bound of the holders' expiries: only when it has passed are the holders
-- walked through, which then sets it anew. The work of a call does not grow with the queue.
--
-- Numbers stay below 2^53, where Lua's are exact. They become text by TEXT only: `..` keeps
-- fourteen digits, and fences would repeat (G2). The clock comes as text and is put together as such.
--
-- A server makes every function of a script anew at each call, at a cost like that of a command:
-- so there are few, and those that only some calls need come late.
local call, pack, unpack, format = redis.call, struct.pack, struct.unpack, string.format
local L, W, Q, M = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local FORMAT, TEXT = 2, '%.0f'
local HEAD = '>BBI8I8I4I4I8I8I8I8'
local HOLDER = '>I8I8I8I8I8Bc16' -- weight, fence, expiry, joined, granted, flags, client
local WAITER = '>I8I8I8I8c16'    -- weight, number, joined, ttl, client
local GROUP = '>I8I4'
local LONG = 100 -- bytes of who it is, from which on it stands apart; join.lua has it, too
local BROKEN, KEPT = 1, 2
local kind, cap, sum, n, nw, seq, soonest, till, followed = 0, 0, 0, 0, 0, 0, 0, 0, 0
local changed = false
local t = call('TIME')
local us = t[1] * 1000000 + t[2]
local now = math.floor(us / 1000)
local _

local function parse(head) -- nil, or the format that is not ours
    if head and head:byte(1) ~= FORMAT then
        return head:byte(1)
    elseif head then
        _, kind, cap, sum, n, nw, seq, soonest, till, followed = unpack(HEAD, head)
    end
end

local function header()
    return pack(HEAD, FORMAT, kind, cap, sum, n, nw, seq, soonest, till, followed)
end

-- Of a line that has just been written, or is about to be: no key of it may expire before `at`.
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
