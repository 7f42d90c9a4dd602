-- ARGV: margin of a restart; id, client id, remaining lifetime and age of each reservation. Slots are not counted:
-- these were given out.
for index = 5, #ARGV, 4 do
    local id, client, made = ARGV[index], ARGV[index + 1], now - tonumber(ARGV[index + 3])
    local started = redis.call('HGET', prefix .. ':started', id)
    local is_refused = started and made <= tonumber(started) - tonumber(ARGV[4])
    if not is_refused and not redis.call('ZSCORE', prefix .. ':r:' .. id, client) then
        add(id, client, tonumber(ARGV[index + 2]), made)
    end
end
return 1
