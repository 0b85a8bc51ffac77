# Installs what a make target needs and this machine lacks.
# usage: Rscript tools/setup.R demo|test|check|sanitize|document|site|coverage|style

# The packages that elvi enhances are heavy and optional: tests that need them skip themselves.
tested <- c("testthat", "ggplot2", "MASS", "posterior", "loo", "generics", "numDeriv", "mgcv", "lme4", "reformulas",
            "DBI", "RSQLite")
not_in_debian <- "reformulas"   # in 12, that is: apt-get would refuse the whole list for it
packages_for <- list(
  demo = "ggplot2",
  test = tested,
  check = c(tested, "knitr", "rmarkdown"),
  sanitize = tested,
  document = "roxygen2",
  site = c(tested, "knitr", "rmarkdown", "pkgdown"),
  coverage = c(tested, "covr"),
  style = "lintr"
)
programs_for <- list(site = "pandoc", check = c("qpdf", "pandoc"), sanitize = "valgrind", style = "clang-format")

target <- match.arg(commandArgs(trailingOnly = TRUE), names(packages_for))

missing_packages <- function() {
  Filter(function(p) !nzchar(system.file(package = p)), packages_for[[target]])
}
missing_programs <- function() {
  Filter(function(p) !nzchar(Sys.which(p)), programs_for[[target]])
}
nothing_missing <- function() {
  length(missing_packages()) + length(missing_programs()) == 0
}

# Debian's prebuilt packages take seconds where CRAN's sources take minutes, but they only suit Debian's own R.
can_use_apt <- function() {
  nzchar(Sys.which("apt-get")) && R.home() == "/usr/lib/R" &&
    Sys.info()[["effective_user"]] == "root"
}
install_from_debian <- function() {
  r_packages <- setdiff(missing_packages(), not_in_debian)
  debian_names <- c(
    if (length(r_packages)) paste0("r-cran-", tolower(r_packages)),
    missing_programs()
  )
  if (!length(debian_names)) return(invisible())
  Sys.setenv(DEBIAN_FRONTEND = "noninteractive")
  system2("apt-get", c("update", "-qq"))
  system2("apt-get", c("install", "-y", "-qq", "--no-install-recommends", debian_names))
}
install_from_cran <- function() {
  library_dir <- path.expand(Sys.getenv("R_LIBS_USER"))
  dir.create(library_dir, recursive = TRUE, showWarnings = FALSE)
  .libPaths(c(library_dir, .libPaths()))
  install.packages(missing_packages(), lib = library_dir)
}

if (!nothing_missing() && can_use_apt()) install_from_debian()
if (length(missing_packages())) install_from_cran()
if (!nothing_missing()) {
  stop("please install: ", toString(c(missing_packages(), missing_programs())))
}
