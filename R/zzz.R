# The process whose OpenMP may have threads (R/util-threads.R). Loaded in a forked one, elvi
# cannot know whether the parent's has had any, for which the child's would wait for ever:
# no process then.
.onLoad <- function(libname, pkgname) {
  child <- .Platform$OS.type != "windows" &&
    isTRUE(tryCatch(utils::getFromNamespace("isChild", "parallel")(), error = function(e) FALSE))
  options(elvi.process = if (child) 0L else Sys.getpid())
  check_scale_kinds()
  check_hyper_rules()
  check_term_kinds()
  check_coordinates()
  check_family_twins()
  check_joint_twins()
  admit_to_marginaleffects()
}

# Run when the package is installed, after all other files. What settings are by default, to tell those that were given:
default_control <- elvi_control(tail = 0.5)   # without arguments this is what it returns

# functions that may occur on the right of a formula with latent terms
names_of_terms <- c("|", "||", "mo", names(latent_calls()))

# The rules that most first fits of a session would otherwise wait for; C is not there yet.
for (what in c(names(family_records), "tail")) {
  if (!any(vapply(losses_of(what), function(loss) isTRUE(loss$in_C), NA))) {
    for (lean in c(FALSE, TRUE)) cached_quadrature(law_of(base_gaussian(), 2), what, lean)
  }
}
rm(what, lean)
