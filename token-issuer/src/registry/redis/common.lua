-- KEYS[1] is the prefix of all keys. ARGV[1] is the id of this run of the store, ARGV[2] the pause after its first use.
local prefix = KEYS[1]
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local run = prefix .. ':run:' .. ARGV[1]
redis.call('SET', run, now, 'NX', 'PX', 86400000)
local is_recovering = now - tonumber(redis.call('GET', run)) < tonumber(ARGV[2])

-- Removes the reservations of a server that have ended.
local function expire(id)
    local reserved, tokens = prefix .. ':r:' .. id, prefix .. ':t:' .. id
    local ended = redis.call('ZRANGEBYSCORE', reserved, '-inf', now, 'LIMIT', 0, 1000)
    while #ended > 0 do
        redis.call('ZREM', reserved, unpack(ended))
        redis.call('HDEL', tokens, unpack(ended))
        ended = redis.call('ZRANGEBYSCORE', reserved, '-inf', now, 'LIMIT', 0, 1000)
    end
end

-- Adds a reservation. The keys of a server expire a minute after the last one.
local function add(id, client, lifetime)
    local reserved, tokens = prefix .. ':r:' .. id, prefix .. ':t:' .. id
    local ends = math.max(now + lifetime, tonumber(redis.call('ZSCORE', reserved, client) or 0))
    redis.call('ZADD', reserved, ends, client)
    local left = math.max(lifetime + 60000, redis.call('PTTL', reserved))
    redis.call('PEXPIRE', reserved, left)
    redis.call('HINCRBY', tokens, client, 1)
    redis.call('PEXPIRE', tokens, left)
end

-- Removes a server, but not its reservations.
local function remove(id)
    redis.call('HDEL', prefix .. ':free', id)
    redis.call('ZREM', prefix .. ':seen', id)
    return redis.call('HDEL', prefix .. ':servers', id)
end
