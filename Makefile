# Everything made here goes to build/, and demo.png; nothing is installed in the system's R library but what setup adds.

# another R to build and check with, as tools/check-newest.sh does
R ?= R
VERSION := $(shell sed -n 's/^Version: //p' DESCRIPTION)
TARBALL := build/elvi_$(VERSION).tar.gz
INSTALLED := build/lib/elvi/DESCRIPTION
# Directories are listed along with their files, so that deleting a file triggers a rebuild.
SOURCES := $(shell find DESCRIPTION NAMESPACE LICENSE .Rbuildignore R src inst man data 2>/dev/null)

WITH_ELVI := R_LIBS="$(CURDIR)/build/lib$${R_LIBS:+:$$R_LIBS}"
# The clock and CRAN-incoming checks need the network; suggested and enhanced packages beyond what setup adds are
# optional;
# in an ASCII locale R CMD check warns about the locale itself. Byte code of 3,000 functions (3.4 MB), thirteen vignettes (2 MB)
# and the symbols of a debug build (1.5 MB) take more than the 5 MB that R asks about.
CHECK_ENV := LC_ALL=C.UTF-8 _R_CHECK_SYSTEM_CLOCK_=0 _R_CHECK_CRAN_INCOMING_=false _R_CHECK_FORCE_SUGGESTS_=false \
  _R_CHECK_PACKAGE_DEPENDS_IGNORE_MISSING_ENHANCES_=true _R_CHECK_PKG_SIZES_THRESHOLD_=9

.PHONY: help setup setup-demo setup-test setup-check setup-sanitize setup-document setup-site \
  setup-coverage setup-style install demo test style extensions check sanitize sanitize-quick document site coverage without vignettes bench clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 16

setup: setup-check ## install what demo, test and check need and this machine lacks

setup-demo setup-test setup-check setup-sanitize setup-document setup-site setup-coverage setup-style: setup-%:
	@Rscript tools/setup.R $*

install: $(INSTALLED) ## build the package and install it in build/lib

$(TARBALL): $(SOURCES)
	@mkdir -p build
	cd build && $(R) CMD build --no-build-vignettes ..

$(INSTALLED): $(TARBALL)
	@mkdir -p build/lib
	MAKEFLAGS=-j$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1) $(R) CMD INSTALL --no-test-load --library=build/lib $(TARBALL)
	@touch $@

demo: setup-demo install ## run inst/examples/demo.R and draw demo.png
	$(WITH_ELVI) Rscript inst/examples/demo.R demo.png

test: setup-test install ## run the tests against the installed package; FILTER=model: those of test-model.R; LONG=true: the long ones too
	ELVI_LONG_TESTS=$(LONG) $(WITH_ELVI) Rscript tools/run-tests.R '$(FILTER)'

style: setup-style ## compare the code with .editorconfig, .lintr, .clang-format and the walls
	tools/style.sh

extensions: setup-test ## apply, build and test the worked examples of inst/extend
	tools/extensions.sh

check: setup-check ## R CMD check --as-cran; anything but 'Status: OK' fails
	rm -rf build/check && mkdir -p build/check
	cd build/check && $(R) CMD build ../..
	cd build/check && $(CHECK_ENV) $(R) CMD check --as-cran --no-manual $(CHECK_ARGS) elvi_$(VERSION).tar.gz
	@grep -qx 'Status: OK' build/check/elvi.Rcheck/00check.log

sanitize: setup-sanitize install ## run the tests under ASAN and UBSAN, every C routine under gctorture and valgrind
	tools/sanitize.sh all $(TARBALL)

sanitize-quick: install ## run every C routine under ASAN, UBSAN and gctorture
	tools/sanitize.sh quick $(TARBALL)

document: setup-document ## write NAMESPACE and man/ from the roxygen comments
	Rscript tools/document.R

site: setup-site install ## build the site into build/site
	$(WITH_ELVI) Rscript tools/site.R

coverage: setup-coverage $(TARBALL) ## run the tests with coverage counted, by file of R/ and src/; takes long
	Rscript tools/coverage.R $(TARBALL) '$(FILTER)'

without: setup-check install ## examples, tests and vignettes with each suggested package missing in turn
	$(WITH_ELVI) Rscript tools/without.R

vignettes: install ## compute what the vignettes show into inst/extdata/experiments; takes half an hour or more, and goes on where it was cut
	$(WITH_ELVI) tools/blas.sh openblas-pthread Rscript tools/vignettes.R

bench: install ## run the benchmarks; results are added to bench/README.md
	for question in floor small plain large ticks growth numpy advi groups; do $(WITH_ELVI) Rscript bench/$$question.R || exit 1; done

clean: ## remove what the other targets made
	rm -rf build demo.png
