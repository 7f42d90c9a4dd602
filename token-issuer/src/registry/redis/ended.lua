-- ARGV: id and client id of each reservation. Returns the positions of those that have ended, from 0 on.
local ended = {}
for index = 4, #ARGV, 2 do
    if not redis.call('ZSCORE', prefix .. ':r:' .. ARGV[index], ARGV[index + 1]) then
        ended[#ended + 1] = (index - 4) / 2
    end
end
return ended
