-- peek.lua: what a key has: {type, value or '', ms until it expires or -1}.
local kind = redis.call('TYPE', KEYS[1]).ok
return { kind, kind == 'string' and redis.call('GET', KEYS[1]) or '', redis.call('PTTL', KEYS[1]) }
