-- ARGV: the age of the last heartbeat from which on a server is removed, and the age of the last number from which on a
-- run is forgotten.
for _, id in ipairs(redis.call('ZRANGEBYSCORE', prefix .. ':seen', '-inf', now - tonumber(ARGV[4]))) do
    remove(id)
end
-- All reservations of these have ended. A time to live of their keys would depend on the store's clock.
for _, id in ipairs(redis.call('ZRANGEBYSCORE', prefix .. ':ends', '-inf', now, 'LIMIT', 0, 1000)) do
    redis.call('DEL', prefix .. ':r:' .. id, prefix .. ':t:' .. id, prefix .. ':m:' .. id)
    redis.call('ZREM', prefix .. ':ends', id)
end
local forgotten = now - tonumber(ARGV[5])
for _, run in ipairs(redis.call('ZRANGEBYSCORE', prefix .. ':run-times', '-inf', forgotten, 'LIMIT', 0, 1000)) do
    redis.call('HDEL', prefix .. ':runs', run)
    redis.call('ZREM', prefix .. ':run-times', run)
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
return { now, pause, rows }
