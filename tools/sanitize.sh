#!/bin/bash
# The C code under tools that see what a test does not: the address and undefined-behaviour sanitizers (ASAN, UBSAN),
# a garbage collection at every allocation (gctorture) and, for uninitialised memory, valgrind.
# usage: tools/sanitize.sh quick|all elvi_<version>.tar.gz
#   quick: ASAN, UBSAN and gctorture on every .Call routine; a minute or two
#   all:   also ASAN and UBSAN on all tests, and valgrind on every .Call routine
set -euo pipefail

extent=$1
tarball=$2
plain=$PWD/build/lib
sanitized=$PWD/build/asan-lib
makevars=$PWD/build/asan-Makevars
log=$PWD/build/sanitize.log

# One thread: the tools serialise threads anyway, and BLAS is not what is watched.
export OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1

install_sanitized() {
  rm -rf "$sanitized"
  mkdir -p "$sanitized"
  cat > "$makevars" <<'MAKEVARS'
CC = gcc -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
CFLAGS = -g -O1
MAKEVARS
  # No test load: the shared object only loads where libasan is preloaded, as below.
  MAKEFLAGS=-j$(nproc) R_MAKEVARS_USER=$makevars R CMD INSTALL --no-docs --no-test-load --no-byte-compile --library="$sanitized" "$tarball"
}

# R code with elvi from a library; fails as the code does, or if it leaves a report: one in a forked child ends only the
# child, and the rest may pass without it.
watch() {
  local library=$1
  shift
  R_LIBS="$library${R_LIBS:+:$R_LIBS}" "$@" 2>&1 | tee "$log"
  ! grep -E 'ERROR: AddressSanitizer|: runtime error: |^==[0-9]+== ' "$log"
}

# Leaks are not looked for: R never frees all of its own memory.
under_asan() {
  LD_PRELOAD=$(gcc -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 watch "$sanitized" Rscript "$1"
}

install_sanitized
under_asan tools/valgrind-list.R
watch "$plain" Rscript --vanilla tools/gctorture.R
if [ "$extent" = all ]; then
  watch "$plain" R -d 'valgrind -q --error-exitcode=77' --vanilla --no-echo -f tools/valgrind-list.R
  unset OPENBLAS_NUM_THREADS OMP_NUM_THREADS
  under_asan tools/run-tests.R
fi
echo "sanitize ($extent): clean"
