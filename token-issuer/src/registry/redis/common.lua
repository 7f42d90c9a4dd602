-- KEYS[1] is the prefix of all keys. ARGV[1] is the id of this run of the store, ARGV[2] the pause after its first use.
local prefix = KEYS[1]
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local run = prefix .. ':run:' .. ARGV[1]
redis.call('SET', run, now, 'NX')
-- The key of a store in use never expires: a new one would begin another pause.
redis.call('PEXPIRE', run, 86400000)
local is_recovering = now - tonumber(redis.call('GET', run)) < tonumber(ARGV[2])

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

-- Adds a reservation. The keys of a server expire a minute after the last one.
local function add(id, client, lifetime, made)
    local reserved, tokens, newest = prefix .. ':r:' .. id, prefix .. ':t:' .. id, prefix .. ':m:' .. id
    local ends = math.max(now + lifetime, tonumber(redis.call('ZSCORE', reserved, client) or 0))
    redis.call('ZADD', reserved, ends, client)
    local left = math.max(lifetime + 60000, redis.call('PTTL', reserved))
    redis.call('PEXPIRE', reserved, left)
    redis.call('HINCRBY', tokens, client, 1)
    redis.call('PEXPIRE', tokens, left)
    redis.call('ZADD', newest, made, client)
    redis.call('PEXPIRE', newest, left)
end

-- Removes a server with its reservations.
local function remove(id)
    redis.call('DEL', prefix .. ':r:' .. id, prefix .. ':t:' .. id, prefix .. ':m:' .. id)
    redis.call('HDEL', prefix .. ':started', id)
    redis.call('HDEL', prefix .. ':free', id)
    redis.call('ZREM', prefix .. ':seen', id)
    return redis.call('HDEL', prefix .. ':servers', id)
end
