#!/bin/bash
# The style: .editorconfig (no tabs, no spaces at the ends of lines, a newline at the end of every file), .lintr for R/,
# .clang-format for src/, C lines of at most 132 characters; and the walls: what a scale, base, family, link, prior, row
# source, estimator, update, schedule, term or theorem is called is asked in its own file only, everyone else asks its record.
cd "$(dirname "$0")/.." || exit 1
status=0
complain() {
  [ -z "$2" ] || { echo "$1:"; echo "$2" | head -n 20; status=1; }
}

mapfile -t code < <(git ls-files '*.R' '*.c' '*.h' '*.sh' '*.Rmd' '.ci/*' DESCRIPTION)
mapfile -t c < <(git ls-files '*.c' '*.h')
complain "a tab" "$(grep -nP '\t' "${code[@]}")"
complain "spaces at the end of a line" "$(grep -nP '[ \t]+$' "${code[@]}")"
complain "more than 132 characters" "$(grep -nP '^.{133,}' "${c[@]}")"
complain "no newline at the end" "$(for file in "${code[@]}"; do [ -z "$(tail -c 1 "$file")" ] || echo "$file"; done)"

# Versions differ in trifles, so it has to be the one that the code was formatted by.
if clang-format --version 2> /dev/null | grep -q 'version 14[.]'; then
  complain "not as clang-format has it" "$(clang-format --dry-run -Werror src/*.[ch] 2>&1 | grep 'error:')"
else
  echo "style: no clang-format 14 here, src/ not compared with it"
fi
if Rscript -e 'quit(status = !requireNamespace("lintr", quietly = TRUE))'; then
  complain "lint" "$(Rscript -e 'found <- as.data.frame(lintr::lint_dir("R")); found$file <- file.path("R", found$filename)' \
    -e 'cat(sprintf("%s:%d: %s\n", found$file, found$line_number, found$message), sep = "")')"
else
  echo "style: no lintr here, R/ not compared with .lintr"
fi

# Kinds of knowledge, not of things: how an optimum and a certificate are known. `kind` of insight's tables is theirs.
known='(spread|found|s)\$kind|(certificate|optimum)_kind|other-packages'
names='(kind|source|family|link|likelihood|estimator|update|preset|dist|natural)'
own='R/(base|scale|rows|family(-[a-z]+)?|prior|control|schedule|design-groups|design-smooths|theory-bounds)\.R:'
mapfile -t r < <(git ls-files 'R/*.R')
complain "a name asked for outside its own file" "$(
  grep -nP "\b$names(\[1L\]|\]\])?\)? *(==|!=|%in%) *[\"c]|switch\([^,]*\b$names\b|identical\([^\"]*[$]${names}, \"" "${r[@]}" |
    grep -vP ":\d+: *#|$known|$own")"
# What depends on the class of a model, a fit, a scale or rows is a method of that class. Of conditions, priors and sources
# it is asked whether something is one at all; that of others' objects is theirs.
# A predicate of a model is the one place that asks for its class.
complain "a class asked for instead of a method" "$(
  grep -nP 'inherits\([^,]*, "elvi_(?!(error|warning|message|prior|source|fit|reply)[_a-z]*")|is\([^,()]*, "elvi' "${r[@]}" |
    grep -vP ':is_[a-z_]+ <- function\(model\)')"
complain "two things of one name" "$(grep -hoP '^[A-Za-z_.0-9]+(?= <- )' "${r[@]}" | sort | uniq -d)"
# The engine for user-supplied densities has the doors that the head of R/engine.R names.
complain "a function of the engine that is not one of its doors" "$(
  mapfile -t engine < <(git ls-files 'R/search-*.R' 'R/judge-*.R' | grep -vE "judge-(objective|evidence|error)")
  mapfile -t others < <(git ls-files 'R/*.R' | grep -vxF -f <(printf '%s\n' "${engine[@]}"))
  grep -hoP '^[a-z_0-9]+(?= <- function)' "${engine[@]}" |
    grep -vxF -f <(grep -oP '^#   \K[a-z_0-9]+(?=\(\))' R/engine.R) | sort -u |
    while read -r name; do
      own=$(grep -lP "\b$name <- function" "${others[@]}")   # a local function of the same name
      grep -nP "^[^#]*(?<![\w.$])$name\(" "${others[@]}" | grep -vF -f <(printf '%s\n' "${own:-//}")
    done)"
complain "a tag compared in C" "$(grep -nP '(kind|family|estimator|base|model|rows|prior|update|mgf|ops) *(==|!=) *&?(ELVI|elvi)_' "${c[@]}")"
complain "CONTRIBUTING.md has other files for it than its worked example touches" "$(
  for patch in inst/extend/*.patch; do
    touched=$(sed -n 's|^+++ b/||p' "$patch" | grep -v '^tests/' | sed 's/.*/`&`/' | paste -sd, | sed 's/,/, /g')
    row="| $(basename -s .patch "$patch") | $(grep -o ', ' <<< "$touched," | wc -l | xargs expr 1 +) | $touched |"
    grep -qxF "$row" CONTRIBUTING.md || echo "$row"
  done)"
# `name()` in the pages for maintainers: a function of R, of C or of a test, or a field of a record.
complain "a function that is gone is named in docs/internals.Rmd or CONTRIBUTING.md" "$(
  grep -ohP '`(elvi:::?)?\K[A-Za-z_.]+(?=\(\)`)' docs/internals.Rmd CONTRIBUTING.md | sort -u |
    while read -r name; do
      grep -qrP "\b\Q$name\E( <-| =|\(|\)\()" R src inst/include tests/testthat inst/experiments || echo "$name"
    done)"
complain "vignette(\"trust\") has other results than bench/README.md" "$(Rscript tools/trust.R check)"
[ $status = 0 ] && echo "style: fine"
exit $status
