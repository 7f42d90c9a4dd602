-- ARGV: the age of the last heartbeat from which on a server is removed.
for _, id in ipairs(redis.call('ZRANGEBYSCORE', prefix .. ':seen', '-inf', now - tonumber(ARGV[3]))) do
    remove(id)
end
local rows = {}
local seen = redis.call('ZRANGE', prefix .. ':seen', 0, -1, 'WITHSCORES')
for index = 1, #seen, 2 do
    local id = seen[index]
    local registration = redis.call('HGET', prefix .. ':servers', id)
    if registration then
        local reserved = redis.call('ZCOUNT', prefix .. ':r:' .. id, '(' .. now, '+inf')
        rows[#rows + 1] = { registration, tonumber(seen[index + 1]), reserved }
    end
end
return { now, rows }
