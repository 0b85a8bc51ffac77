#!/bin/bash
# Runs the tests with the C code under the address and undefined-behaviour sanitizers.
# usage: tools/sanitize.sh elvi_<version>.tar.gz
set -euo pipefail

tarball=$1
library=$PWD/build/asan-lib
makevars=$PWD/build/asan-Makevars
log=$PWD/build/asan.log

rm -rf "$library"
mkdir -p "$library"
cat > "$makevars" <<'MAKEVARS'
CC = gcc -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
CFLAGS = -g -O1
MAKEVARS
# No test load: the shared object only loads where libasan is preloaded, as below.
R_MAKEVARS_USER=$makevars R CMD INSTALL --no-docs --no-test-load --library="$library" "$tarball"

# Leaks are not looked for: R never frees all of its own memory.
LD_PRELOAD=$(gcc -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 \
  R_LIBS="$library${R_LIBS:+:$R_LIBS}" Rscript tools/run-tests.R 2>&1 | tee "$log"

# A report in a forked child ends only the child, and the tests may pass without it.
! grep -E 'ERROR: AddressSanitizer|: runtime error: ' "$log"
