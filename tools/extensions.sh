#!/bin/bash
# Applies each worked example of vignette("internals"), inst/extend/*.patch, to a copy of the package, builds that and
# runs the tests the example belongs to: its first line names them, as "tests: run schedule" for test-run-loop.R and
# test-schedule.R. A second line "namespace: export(waiting)" has what `make document` would add to NAMESPACE. As many at a
# time as there are cores. `tools/extensions.sh base` does one of them.
set -euo pipefail
cd "$(dirname "$0")/.."
export room
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

try_example() {
  local example=$1 copy=$room/$1 lib=$room/lib-$1 tests
  tests=$(sed -n '1s/^tests: *//p' "inst/extend/$example.patch")
  [ -n "$tests" ] || { echo "the first line of inst/extend/$example.patch does not name its tests"; return 1; }
  mkdir -p "$copy" "$lib"
  git ls-files -z | xargs -0 cp --parents -t "$copy"
  patch --quiet -p1 -d "$copy" < "inst/extend/$example.patch"
  sed -n '2s/^namespace: *//p' "inst/extend/$example.patch" | tr ' ' '\n' >> "$copy/NAMESPACE"
  R CMD INSTALL --no-docs --no-test-load --library="$lib" "$copy"
  cd "$copy"
  for file in $tests; do R_LIBS=$lib${R_LIBS:+:$R_LIBS} Rscript tools/test-file.R "$file"; done
}

# a word for an example that works, everything it said for one that does not
report_example() {
  if bash -euo pipefail -c "try_example $1" > "$room/$1.log" 2>&1; then
    echo "$1: applies, builds, passes"
  else
    cat "$room/$1.log"
    echo "$1: FAILED"
    return 1
  fi
}

export -f try_example report_example
[ $# -gt 0 ] || set -- $(basename -s .patch inst/extend/*.patch)
printf '%s\n' "$@" | xargs -P "$(nproc)" -I '{}' bash -c 'report_example {}'
