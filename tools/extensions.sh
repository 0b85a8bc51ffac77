#!/bin/bash
# Applies each worked example of docs/internals.Rmd, inst/extend/*.patch, to a copy of the package, builds that and
# runs the tests the example belongs to: its first line names them, as "tests: run schedule" for test-run-loop.R and
# test-schedule.R. A second line "namespace: export(waiting)" has what `make document` would add to NAMESPACE. As many at a
# time as there are cores. `tools/extensions.sh base` does one of them.
# The package is compiled once: a copy takes its objects, and compiles what the patch has changed.
set -euo pipefail
cd "$(dirname "$0")/.."
export room
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

build() {   # without byte code, which takes longer than all else and than the tests gain from it
  R CMD INSTALL --no-docs --no-test-load --no-byte-compile --library="$2" "$1"
}

# objects older than a file they are made from, headers included, of which R's make knows nothing
remove_stale_objects() {
  local object made_from
  for object in "$1"/*.o; do
    made_from=$(cc -MM -I"$(R RHOME)/include" $(R CMD config --cppflags) "${object%.o}.c" | tr -d '\\\n' | sed 's/^[^:]*://')
    for file in $made_from; do
      if [ "$file" -nt "$object" ]; then rm -f "$object"; break; fi
    done
  done
}

try_example() {
  local example=$1 copy=$room/$1 lib=$room/lib-$1 tests
  tests=$(sed -n '1s/^tests: *//p' "inst/extend/$example.patch")
  [ -n "$tests" ] || { echo "the first line of inst/extend/$example.patch does not name its tests"; return 1; }
  mkdir -p "$lib"
  cp -a "$room/package" "$copy"
  patch --quiet -p1 -d "$copy" < "inst/extend/$example.patch"
  sed -n '2s/^namespace: *//p' "inst/extend/$example.patch" | tr ' ' '\n' >> "$copy/NAMESPACE"
  remove_stale_objects "$copy/src"
  build "$copy" "$lib"
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

export -f build remove_stale_objects try_example report_example
mkdir -p "$room/package" "$room/lib"
git ls-files -z | xargs -0 cp --parents -t "$room/package"
MAKEFLAGS=-j$(nproc) build "$room/package" "$room/lib" > "$room/package.log" 2>&1 || { cat "$room/package.log"; exit 1; }
[ $# -gt 0 ] || set -- $(basename -s .patch inst/extend/*.patch)
printf '%s\n' "$@" | xargs -P "$(nproc)" -I '{}' bash -c 'report_example {}'
