-- ARGV: id.
return remove(ARGV[3])
