-- ARGV: id, the group in which the server may be registered, the run that ends or nothing, number of the removal,
-- maximum number of runs whose last numbers are remembered.
local group = redis.call('HGET', prefix .. ':groups', ARGV[4])
if group and group ~= ARGV[5] then
    return { 'other group', group }
end
if ARGV[6] ~= '' then
    local last = last_of(ARGV[4], ARGV[6])
    if last and ARGV[7] < last then
        return { 'late', '' }
    end
    -- Removals of other runs leave nothing: their ids and names can be made up at will.
    if last then
        record(ARGV[4], ARGV[6], ARGV[7], tonumber(ARGV[8]))
    end
end
local instance = redis.call('HGET', prefix .. ':instances', ARGV[4])
if ARGV[6] ~= '' and instance and instance ~= ARGV[6] then
    return { 'replaced', '' }
end
return { remove(ARGV[4]) == 1 and 'removed' or 'unknown', '' }
