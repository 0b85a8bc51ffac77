#!/bin/bash
# What needs no taste: no tabs, no spaces at the ends of lines, a newline at the end of every file, C lines of at most
# 132 characters. (.lintr and .clang-format are for editors: they know more, and some of it is taste.)
cd "$(dirname "$0")/.." || exit 1
status=0
complain() {
  [ -z "$2" ] || { echo "$1:"; echo "$2" | head -n 20; status=1; }
}

mapfile -t code < <(git ls-files '*.R' '*.c' '*.h' '*.sh' '*.Rmd' '.ci/run' DESCRIPTION)
mapfile -t c < <(git ls-files '*.c' '*.h')
complain "a tab" "$(grep -nP '\t' "${code[@]}")"
complain "spaces at the end of a line" "$(grep -nP '[ \t]+$' "${code[@]}")"
complain "more than 132 characters" "$(grep -nP '^.{133,}' "${c[@]}")"
complain "no newline at the end" "$(for file in "${code[@]}"; do [ -z "$(tail -c 1 "$file")" ] || echo "$file"; done)"
[ $status = 0 ] && echo "style: fine"
exit $status
