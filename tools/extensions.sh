#!/bin/sh
# Applies each worked example of vignette("internals"), inst/extend/*.patch, to a copy of the
# package, builds that and runs the tests the example belongs to. Run it after changing what an
# example touches; `tools/extensions.sh base` does one of them.
set -eu
cd "$(dirname "$0")/.."
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT

tests_of() {
  case $1 in
    base) echo base ;;
    model) echo model ;;
    projection) echo run ;;
    schedule) echo schedule ;;
  esac
}

for example in ${*:-base model projection schedule}; do
  copy=$room/$example
  mkdir -p "$copy" "$room/lib"
  git ls-files -z | xargs -0 cp --parents -t "$copy"
  patch --quiet -p1 -d "$copy" < "inst/extend/$example.patch"
  R CMD INSTALL --no-docs --library="$room/lib" "$copy" > "$room/log" 2>&1 || { cat "$room/log"; exit 1; }
  (cd "$copy" && R_LIBS="$room/lib" NOT_CRAN=true Rscript -e 'library(testthat)' -e \
    "test_dir('tests/testthat', filter = '^$(tests_of "$example")\$', package = 'elvi', load_package = 'installed', reporter = 'check')")
  echo "$example: applies, builds, passes"
done
