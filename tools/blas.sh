#!/bin/bash
# Runs a command with another BLAS, whatever the system's is: usage tools/blas.sh <kind> command ...
# where <kind> is openblas-pthread, openblas-serial, blis-pthread or atlas, as Debian calls them. What is not installed
# is unpacked into build/blas, so that the system keeps its own. Without a library it says so and returns 77.
set -u
kind=$1
shift

declare -A packages=([openblas-pthread]=libopenblas0-pthread [openblas-serial]=libopenblas0-serial
                     [blis-pthread]=libblis4-pthread [atlas]=libatlas3-base)
package=${packages[$kind]:?"no such BLAS: $kind"}
room=$(cd "$(dirname "$0")/.." && pwd)/build/blas

unpack() {
  mkdir -p "$room" && cd "$room" || return 1
  { apt-get download -qq "$package" || { apt-get update -qq && apt-get download -qq "$package"; }; } &&
    for file in "$package"_*.deb; do dpkg-deb -x "$file" "$room" || return 1; done
}

find_folder() {
  find /usr/lib "$room" -type d -path "*/$kind" -exec test -e {}/libblas.so.3 \; -print 2> /dev/null | head -n 1
}

folder=$(find_folder)
if [ -z "$folder" ] && command -v apt-get > /dev/null && command -v dpkg-deb > /dev/null; then
  (unpack) > /dev/null 2>&1
  folder=$(find_folder)
fi
# ATLAS keeps libatlas.so.3 in the folder above
libraries=$folder:$(dirname "$folder")
preload=$folder/libblas.so.3
[ -e "$folder/liblapack.so.3" ] && preload=$preload:$folder/liblapack.so.3
used=$([ -n "$folder" ] && LD_LIBRARY_PATH=$libraries LD_PRELOAD=$preload Rscript -e 'cat(extSoftVersion()[["BLAS"]])' 2> /dev/null)
case $used in
  */"$kind"/*) echo "BLAS: $used" ;;
  *)
    echo "SKIPPED: $kind could not be had for '$*' (R would use ${used:-its own BLAS})"
    exit 77
    ;;
esac
LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} LD_PRELOAD=$preload exec "$@"
