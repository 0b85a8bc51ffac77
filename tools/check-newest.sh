#!/bin/bash
# R CMD check --as-cran with the newest R that can be had: its source from CRAN or, where the mirror has none, from
# Debian unstable; built under build/newest and kept there, with the packages that the check needs. The first time takes
# half an hour or more, so it is no part of CI.
# usage: tools/check-newest.sh [--build-only]     FRESH=1 looks for a newer R than the one that was built
set -euo pipefail
cd "$(dirname "$0")/.."
home=$PWD/build/newest
library=$home/library
mkdir -p "$home" "$library"
cran=$(Rscript -e 'cat(getOption("repos")[["CRAN"]])')

# What R's configure and the packages below need beyond a C compiler.
wanted_by_r='gfortran libblas-dev liblapack-dev libreadline-dev libbz2-dev liblzma-dev libpcre2-dev libcurl4-openssl-dev
  zlib1g-dev libuv1-dev libpng-dev libcairo2-dev libtirpc-dev pkg-config'
# Suggested packages that tests and vignettes use; others are optional.
wanted_by_check='nlme mgcv survival testthat knitr rmarkdown ggplot2 MASS Matrix posterior loo generics numDeriv tibble reformulas'

from_cran() {
  curl --fail --silent --location --output "$home/R.tar.gz" "$cran/src/base/R-latest.tar.gz" || return 1
  tar xzf "$home/R.tar.gz" -C "$home"
}

# By apt, but with an apt configuration of its own: the machine's sources stay what they are. A mirror may list a
# version of unstable that it does not have yet; testing's is a few days older.
from_debian() {
  local lists=$home/apt mirror suite
  mkdir -p "$lists/partial"
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -m 1 '/debian/$')
  for suite in unstable testing; do
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
  done > "$home/sources.list"
  local apt=(apt-get -q -o "Dir::Etc::SourceList=$home/sources.list" -o Dir::Etc::SourceParts=/dev/null
             -o "Dir::State::Lists=$lists" -o "Dir::Cache=$lists" -o APT::Sandbox::User=root)
  "${apt[@]}" update
  for suite in unstable testing; do
    (cd "$home" && "${apt[@]}" source --download-only --tar-only "r-base/$suite") && break
  done
  tar xf "$(ls -t "$home"/r-base_*.orig.tar.* | head -n 1)" -C "$home"
}

build_r() {
  rm -rf "$home"/R-* "$home/R"
  from_cran || from_debian
  local source
  source=$(ls -d "$home"/R-*/ | head -n 1)
  if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $wanted_by_r
  fi
  mkdir -p "$home/objects"
  cd "$home/objects"
  "$source/configure" --prefix="$home/R" --with-x=no --with-blas --with-lapack --without-recommended-packages \
    --disable-java --with-tcltk=no
  make -j"$(nproc)"
  make install
  cd - > /dev/null
  rm -rf "$home/objects" "$source"
}

r=$home/R/bin/R
[ -z "${FRESH:-}" ] || rm -rf "$home/R"
[ -x "$r" ] || build_r
"$r" --version | head -n 1
[ "${1:-}" != --build-only ] || exit 0

export R_LIBS=$library R_LIBS_USER=$library
"$r" --no-echo --vanilla -e "
  wanted <- strsplit(trimws('$wanted_by_check'), '[[:space:]]+')[[1]]
  missing <- wanted[!nzchar(vapply(wanted, function(p) system.file(package = p), ''))]
  install.packages(missing, '$library', '$cran', Ncpus = $(nproc))"
make check R="$r"
