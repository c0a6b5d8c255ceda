-- list.lua: how much of each of several lines is taken. KEYS: L and W of each. Answers for each, in
-- order: {kind, capacity, how many hold, how many wait, ms since the oldest grant or -1}, {} nobody
-- is there, {'f', format} of another version, {'e', text} no line. Changes nothing. Whose time is
-- over is not counted; but of more than MUCH waiters the header's number is given. After that much
-- work the script ends, so that others are served; the rest is to be asked for again.
--> line.lua
local MUCH, work, rows = 1000, 0, {}

local function count_waiters(all)
    local tills, count = {}, 0
    for i = 1, #all, 2 do
        if #all[i] == 25 then
            tills[all[i]] = unpack(GROUP, all[i + 1])
        end
    end
    for i = 1, #all, 2 do
        if #all[i] == 16 then
            local till = tills['g' .. all[i + 1]:sub(33, 48) .. all[i + 1]:sub(25, 32)]
            if till and till > now then
                count = count + 1
            end
        end
    end
    return count
end

local function row(head, l, w)
    local oldest, all = us, {}
    if not head then
        return {}
    elseif type(head) == 'table' then
        return { 'e', head.err }
    elseif parse(head) then
        return { 'f', head:byte(1) }
    end
    work = work + n + nw
    if n > 0 then
        all = call('HGETALL', l)
    end
    n = 0
    for i = 1, #all, 2 do
        if #all[i] == 16 then
            local _, _, expiry, _, granted = unpack(HOLDER, all[i + 1])
            if expiry > now then
                n = n + 1
                oldest = math.min(oldest, granted)
            end
        end
    end
    if nw > 0 and nw <= MUCH then
        nw = count_waiters(call('HGETALL', w))
    end
    if n + nw == 0 then
        return {}
    end
    return { kind, cap, n, nw, n > 0 and math.floor((us - oldest) / 1000) or -1 }
end

for i = 1, #KEYS, 2 do
    if work > MUCH then
        break
    end
    local good, made = pcall(row, redis.pcall('HGET', KEYS[i], ''), KEYS[i], KEYS[i + 1])
    rows[#rows + 1] = good and made or { 'e', 'a damaged line' }
end
return rows
