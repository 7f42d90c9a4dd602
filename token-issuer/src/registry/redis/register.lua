-- ARGV: id, the group in which the server may be registered, its group, registration, free slots, maximum number of
-- servers, margin of a restart, time since the server's start or nothing, run of the server or nothing, age of a dead
-- server's heartbeat, maximum number of replaced runs, number of the heartbeat or nothing, maximum number of runs whose
-- last numbers are remembered, client ids that got a slot.
local id, group = ARGV[4], ARGV[6]
local servers, groups = prefix .. ':servers', prefix .. ':groups'
local old = redis.call('HGET', groups, id)
if old and old ~= ARGV[5] then
    return { 'other group', old }
end
local instance, sequence = ARGV[12], ARGV[15]
local last = instance ~= '' and sequence ~= '' and last_of(id, instance)
if last and sequence <= last then
    return { sequence == last and 'repeated' or 'late', '' }
end
if not old and redis.call('HLEN', servers) >= tonumber(ARGV[9]) then
    return { 'full', '' }
end
if instance ~= '' then
    local current = redis.call('HGET', prefix .. ':instances', id)
    if current ~= instance then
        local replaced, seen = prefix .. ':i:' .. id, redis.call('ZSCORE', prefix .. ':seen', id)
        local is_alive = seen and now - tonumber(seen) < tonumber(ARGV[13])
        if is_alive and redis.call('ZSCORE', replaced, instance) then
            return { 'replaced', redis.call('HGET', servers, id) or '' }
        end
        redis.call('ZREM', replaced, instance)
        if current then
            redis.call('ZADD', replaced, now, current)
            redis.call('ZREMRANGEBYRANK', replaced, 0, -1 - tonumber(ARGV[14]))
        end
        redis.call('HSET', prefix .. ':instances', id, instance)
    end
end
if instance ~= '' and sequence ~= '' then
    record(id, instance, sequence, tonumber(ARGV[16]))
end
if old ~= group then
    redis.call('HSET', groups, id, group)
end
redis.call('HSET', servers, id, ARGV[7])
redis.call('HSET', prefix .. ':free', id, ARGV[8])
redis.call('ZADD', prefix .. ':seen', now, id)
if ARGV[11] ~= '' then
    -- The clock of the start has the jitter of the heartbeats.
    local started, margin = now - tonumber(ARGV[11]), tonumber(ARGV[10])
    local earlier = redis.call('HGET', prefix .. ':started', id)
    if not earlier or started > tonumber(earlier) + margin then
        end_up_to(id, prefix .. ':m:' .. id, started - margin)
        redis.call('HSET', prefix .. ':started', id, started)
    end
end
for index = 17, #ARGV do
    -- Another token of the client may still be used.
    local client = ARGV[index]
    if redis.call('HINCRBY', prefix .. ':t:' .. id, client, -1) <= 0 then
        redis.call('HDEL', prefix .. ':t:' .. id, client)
        redis.call('ZREM', prefix .. ':r:' .. id, client)
        redis.call('ZREM', prefix .. ':m:' .. id, client)
    end
end
return { 'ok', '' }
