-- keep.lua: a place that its owner has left (leave.lua with `keep`) lasts for so long from now instead.
-- ARGV 2 token 3 keep, ms 4 '1': also of one that is held, which becomes a kept one.
-- Answers 1, 0: no such ticket, or not one of those, {'f', format}.
-- One whose time is over is not revived: another may have been told that the place is free.
--> line.lua
--> admit.lua
local token, keep = ARGV[2], tonumber(ARGV[3])
local pair = call('HMGET', L, '', token)
local mine, other = pair[2], parse(pair[1])
local bits = KEPT
if other then
    return { 'f', other }
end
if not mine then
    return 0
end
local _, _, expiry, _, _, flags = unpack(HOLDER, mine)
if expiry <= now or flags ~= KEPT and (flags ~= 0 or ARGV[4] ~= '1') then
    return 0
end
--> kept.lua
return 1
