#!/bin/bash
# Compiles the branches of src/ for platforms that are not here, with their macros (src/platform.h) forced, and runs
# tools/platforms.R with what can be linked: OpenMP missing, as on macOS; no dlsym(), sched_yield() and signal mask, as on
# Windows. _commit() in place of fsync() is compiled only.
set -euo pipefail
cd "$(dirname "$0")/.."
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

# usage: try_platform name 'lines of a Makevars'
try_platform() {
  local copy=$room/$1 lib=$room/lib-$1
  mkdir "$copy" "$lib"
  printf '%b\n' "$2" > "$room/$1.mk"
  git ls-files -z | xargs -0 cp --parents -t "$copy"
  MAKEFLAGS=-j$(nproc) R_MAKEVARS_USER=$room/$1.mk R CMD INSTALL --no-docs --no-byte-compile --library="$lib" "$copy" > "$room/log" 2>&1 ||
    { cat "$room/log"; echo "$1: FAILED"; return 1; }
  R_LIBS=$lib${R_LIBS:+:$R_LIBS} Rscript tools/platforms.R "$1"
}

try_platform no-openmp 'SHLIB_OPENMP_CFLAGS =\nCFLAGS = -O0 -Wall -Werror'
try_platform no-dlsym-yield-mask 'CPPFLAGS = -DELVI_NO_DLSYM -DELVI_NO_YIELD -DELVI_NO_SIGNAL_MASK\nCFLAGS = -O0 -Wall -Werror'

printf 'int _open(const char *, int); int _commit(int); int _close(int);\n' > "$room/io.h"
gcc -std=gnu99 -Wall -Werror -fsyntax-only -DELVI_COMMIT -D_O_RDWR=2 -I"$room" -I"$(R RHOME)/include" \
  $(R CMD config --cppflags) src/r_file.c
echo "commit: compiles"
