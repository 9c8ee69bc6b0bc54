# Reads `go test -v`, prints what a person wants of it: each package's closing line, and of a failed test all it said.
function test_of(line) { sub(/^ *(=== [A-Z]+ +|--- [A-Z]+: )/, "", line); sub(/ .*/, "", line); return line }

/^=== (RUN|CONT|NAME|PAUSE)/ { test = test_of($0); next }
/^panic:|^fatal error:|WARNING: DATA RACE/ { loud = 1 }
/^ *--- (PASS|SKIP|FAIL)/ {
  name = test_of($0)
  if ($0 ~ /--- FAIL/) printf "%s%s\n", said[name], $0
  else if ($0 ~ /--- SKIP/) print
  delete said[name]
  fflush()
  next
}
/^(ok|FAIL|\?)[ \t]/ { print; test = ""; loud = 0; delete said; fflush(); next }
/^(PASS|FAIL)$/ { test = ""; next }
loud || test == "" { print; fflush(); next }
{ said[test] = said[test] $0 "\n" }
