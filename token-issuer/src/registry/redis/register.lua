-- ARGV: id, registration, free slots, maximum number of servers, client ids that got a slot.
local id = ARGV[3]
local servers = prefix .. ':servers'
if redis.call('HEXISTS', servers, id) == 0 and redis.call('HLEN', servers) >= tonumber(ARGV[6]) then
    return 'full'
end
redis.call('HSET', servers, id, ARGV[4])
redis.call('HSET', prefix .. ':free', id, ARGV[5])
redis.call('ZADD', prefix .. ':seen', now, id)
for index = 7, #ARGV do
    -- Another token of the client may still be used.
    local client = ARGV[index]
    if redis.call('HINCRBY', prefix .. ':t:' .. id, client, -1) <= 0 then
        redis.call('HDEL', prefix .. ':t:' .. id, client)
        redis.call('ZREM', prefix .. ':r:' .. id, client)
    end
end
return 'ok'
