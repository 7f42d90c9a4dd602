-- ARGV: id, client id and remaining lifetime of each reservation. Slots are not counted: these were given out.
for index = 3, #ARGV, 3 do
    local id, client = ARGV[index], ARGV[index + 1]
    if not redis.call('ZSCORE', prefix .. ':r:' .. id, client) then
        add(id, client, tonumber(ARGV[index + 2]))
    end
end
return 1
