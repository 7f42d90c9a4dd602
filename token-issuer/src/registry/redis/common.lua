-- KEYS[1] is the prefix of all keys. ARGV[1] is the id of this run of the store, ARGV[2] the pause after a loss of its
-- data, ARGV[3] the epoch of the data that has this issuer's reservations.
local prefix = KEYS[1]
local clock = prefix .. ':clock'
local time = redis.call('TIME')
local wall = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local state = redis.call('HMGET', clock, 'wall', 'now', 'run', 'epoch', 'since')
-- The registry's time is the sum of the times between scripts, so that no step of the store's clock ends reservations
-- or keeps them. A step forward counts for 5 s: reservations outlive their tokens by 8 s.
local now = wall
if state[1] then
    now = tonumber(state[2]) + math.max(0, math.min(wall - tonumber(state[1]), 5000))
end
redis.call('HSET', clock, 'wall', wall, 'now', now)
local epoch, since = state[4], tonumber(state[5] or now)
-- Another run may have older data. Without an epoch, the data was lost or deleted.
if state[3] ~= ARGV[1] then
    epoch, since = ARGV[1] .. '/' .. time[1] .. '.' .. time[2], now
    redis.call('HSET', clock, 'run', ARGV[1], 'epoch', epoch, 'since', since)
end
if epoch ~= ARGV[3] then
    return redis.error_reply('NEWEPOCH ' .. epoch)
end
-- How much of the pause is left.
local pause = math.max(0, since + tonumber(ARGV[2]) - now)

-- Removes the reservations of a server with a time of at most `max` in the sorted set `times`.
local function end_up_to(id, times, max)
    local ended = redis.call('ZRANGEBYSCORE', times, '-inf', max, 'LIMIT', 0, 1000)
    while #ended > 0 do
        redis.call('ZREM', prefix .. ':r:' .. id, unpack(ended))
        redis.call('ZREM', prefix .. ':m:' .. id, unpack(ended))
        redis.call('HDEL', prefix .. ':t:' .. id, unpack(ended))
        ended = redis.call('ZRANGEBYSCORE', times, '-inf', max, 'LIMIT', 0, 1000)
    end
end

-- Removes the reservations of a server that have ended.
local function expire(id)
    end_up_to(id, prefix .. ':r:' .. id, now)
end

-- Adds a reservation.
local function add(id, client, lifetime, made)
    local reserved, last = prefix .. ':r:' .. id, prefix .. ':ends'
    local ends = math.max(now + lifetime, tonumber(redis.call('ZSCORE', reserved, client) or 0))
    redis.call('ZADD', reserved, ends, client)
    redis.call('HINCRBY', prefix .. ':t:' .. id, client, 1)
    redis.call('ZADD', prefix .. ':m:' .. id, made, client)
    if ends > tonumber(redis.call('ZSCORE', last, id) or 0) then
        redis.call('ZADD', last, ends, id)
    end
end

-- Returns the number of the last heartbeat or removal of a run, or false. Numbers are texts of 20 digits.
local function last_of(id, instance)
    return redis.call('HGET', prefix .. ':runs', id .. '/' .. instance)
end

-- Records the number of the last heartbeat or removal of a run. Beyond `max` runs, the one with the earliest one is
-- forgotten.
local function record(id, instance, sequence, max)
    local runs, times, run = prefix .. ':runs', prefix .. ':run-times', id .. '/' .. instance
    redis.call('HSET', runs, run, sequence)
    redis.call('ZADD', times, now, run)
    if redis.call('ZCARD', times) > max then
        redis.call('HDEL', runs, redis.call('ZPOPMIN', times)[1])
    end
end

-- Removes a server. Its reservations stay until they end: a restarted server may accept their tokens.
local function remove(id)
    redis.call('HDEL', prefix .. ':started', id)
    redis.call('HDEL', prefix .. ':free', id)
    redis.call('HDEL', prefix .. ':groups', id)
    redis.call('HDEL', prefix .. ':instances', id)
    redis.call('DEL', prefix .. ':i:' .. id)
    redis.call('ZREM', prefix .. ':seen', id)
    return redis.call('HDEL', prefix .. ':servers', id)
end
