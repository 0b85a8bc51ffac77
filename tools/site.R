# Builds the site of _pkgdown.yml into build/site from the installed elvi. Nothing is fetched.
options(pkgdown.internet = FALSE)
# pkgdown renders in place: a copy keeps the sources clean.
copy <- file.path("build", "site-source")
unlink(c(copy, file.path("build", "site")), recursive = TRUE)
for (file in system2("git", c("ls-files", "--cached", "--others", "--exclude-standard"), stdout = TRUE)) {
  if (!file.exists(file)) next
  to <- file.path(copy, file)
  dir.create(dirname(to), recursive = TRUE, showWarnings = FALSE)
  file.copy(file, to)
}
pkgdown::build_site(copy, override = list(destination = file.path(getwd(), "build", "site")), devel = FALSE,
                    preview = FALSE, install = FALSE, new_process = FALSE)
source(file.path("tools", "site-offline.R"))
make_offline(file.path("build", "site"))
