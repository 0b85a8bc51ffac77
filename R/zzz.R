# Loaded in a forked process, elvi cannot know whether the parent's OpenMP has had
# threads, for which the child's would wait for ever.
.onLoad <- function(libname, pkgname) {
  child <- .Platform$OS.type != "windows" &&
    isTRUE(tryCatch(utils::getFromNamespace("isChild", "parallel")(), error = function(e) FALSE))
  if (child) options(elvi.threads = 1)
}

# Run when the package is installed, after all other files: the rules that most
# first fits of a session would otherwise wait for.
for (likelihood in names(losses)) cached_rule(bind_base(base_gaussian(), 2), likelihood)
rm(likelihood)
