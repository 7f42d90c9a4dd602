-- ARGV: client id, lifetime, number of servers, age of a dead server's heartbeat, candidates in order.
if pause > 0 then
    return { pause, {} }
end
local client, lifetime, count, dead_after = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local chosen = {}
for index = 8, #ARGV do
    if #chosen == count then
        break
    end
    local id = ARGV[index]
    local seen = redis.call('ZSCORE', prefix .. ':seen', id)
    if seen and now - tonumber(seen) < dead_after then
        expire(id)
        local reserved = redis.call('ZCARD', prefix .. ':r:' .. id)
        if redis.call('ZSCORE', prefix .. ':r:' .. id, client) then
            -- The tokens of one client share a slot.
            reserved = reserved - 1
        end
        if tonumber(redis.call('HGET', prefix .. ':free', id) or 0) > reserved then
            add(id, client, lifetime, now)
            chosen[#chosen + 1] = id
        end
    end
end
return { 0, chosen }
