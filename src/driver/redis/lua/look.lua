-- look.lua: a line as it is: {time in µs, header and holders, waiters and groups}. Changes nothing,
-- but for ARGV 2 > 0: for so many ms every change of the line is published on a channel named like
-- its key L, also when nobody is in it any more.
--> line.lua
local ms = tonumber(ARGV[2])
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
return { us, call('HGETALL', L), call('HGETALL', W) }
