-- kept.lua: a part of scripts, after line.lua and admit.lua: the holder `mine` of `token`, whose flags
-- become `bits`, ends by itself `keep` ms from now, and by nothing its owner does.
local w, f, e, joined, granted, _, c, rest = unpack(HOLDER, mine)
e = now + keep
sooner(e)
till = math.max(till, e)
changed = true
call('PEXPIREAT', L, format(TEXT, till)) -- first: also without memory left
enter(token, pack(HOLDER, w, f, e, joined, granted, bits, c) .. mine:sub(rest))
headed = true -- the first that waits must learn when to look
admit()
save()
