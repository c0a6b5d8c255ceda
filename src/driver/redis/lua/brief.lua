-- brief.lua: how much of a line is taken: {kind, capacity, weight of those that hold, how many hold,
-- how many wait}, or {'f', format}. Changes nothing. The header says it all, unless somebody's time
-- may be over: then those that hold are counted.
--> line.lua
local other = parse(call('HGET', L, ''))
if other then
    return { 'f', other }
end
if n > 0 and now >= soonest then
    local all = call('HGETALL', L)
    n, sum = 0, 0
    for i = 1, #all, 2 do
        if #all[i] == 16 then
            local weight, _, expiry = unpack('>I8I8I8', all[i + 1])
            if expiry > now then
                n = n + 1
                sum = sum + weight
            end
        end
    end
end
return { kind, cap, sum, n, nw }
