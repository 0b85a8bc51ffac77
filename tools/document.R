# Writes NAMESPACE and man/ from the roxygen comments. roxygen attaches the packages that elvi imports while it reads the
# code; Matrix has S4 generics of its own for print(), summary() and others, and S3 methods for them would be taken
# for plain functions.
load_without_masks <- function(path) {
  code <- roxygen2::load_source(path)
  if ("package:Matrix" %in% search()) detach("package:Matrix")
  code
}
roxygen2::roxygenise(load_code = load_without_masks)
