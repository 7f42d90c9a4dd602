-- ARGV: id, the group in which the server may be registered, the run that ends or nothing.
local group = redis.call('HGET', prefix .. ':groups', ARGV[4])
if group and group ~= ARGV[5] then
    return { 'other group', group }
end
local instance = redis.call('HGET', prefix .. ':instances', ARGV[4])
if ARGV[6] ~= '' and instance and instance ~= ARGV[6] then
    return { 'replaced', '' }
end
return { remove(ARGV[4]) == 1 and 'removed' or 'unknown', '' }
