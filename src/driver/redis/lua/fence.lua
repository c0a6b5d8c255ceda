-- fence.lua: the next number of the bucket (G2).
-- The mark is written with every fence: first to the clock, and once more if it was not behind it.
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
