-- ARGV: id, registration, free slots, maximum number of servers, margin of a restart, time since the server's
-- start or nothing, client ids that got a slot.
local id = ARGV[3]
local servers = prefix .. ':servers'
if redis.call('HEXISTS', servers, id) == 0 and redis.call('HLEN', servers) >= tonumber(ARGV[6]) then
    return 'full'
end
redis.call('HSET', servers, id, ARGV[4])
redis.call('HSET', prefix .. ':free', id, ARGV[5])
redis.call('ZADD', prefix .. ':seen', now, id)
if ARGV[8] ~= '' then
    -- The clock of the start has the jitter of the heartbeats.
    local started, margin = now - tonumber(ARGV[8]), tonumber(ARGV[7])
    local earlier = redis.call('HGET', prefix .. ':started', id)
    if not earlier or started > tonumber(earlier) + margin then
        end_up_to(id, prefix .. ':m:' .. id, started - margin)
        redis.call('HSET', prefix .. ':started', id, started)
    end
end
for index = 9, #ARGV do
    -- Another token of the client may still be used.
    local client = ARGV[index]
    if redis.call('HINCRBY', prefix .. ':t:' .. id, client, -1) <= 0 then
        redis.call('HDEL', prefix .. ':t:' .. id, client)
        redis.call('ZREM', prefix .. ':r:' .. id, client)
        redis.call('ZREM', prefix .. ':m:' .. id, client)
    end
end
return 'ok'
