# Added to the copy of the package that tools/coverage.R counts. covr counts in the functions of the namespace, from when it
# is loaded. Records of functions (families, scales, schedules), and methods that other functions make, are values made when
# the package is installed, and .onLoad() has run by then: here they are made, and run, once more.
# nocov start
on_load_of_elvi <- .onLoad
.onLoad <- function(libname, pkgname) {
  on_load_of_elvi(libname, pkgname)
  setHook(packageEvent(pkgname, "onLoad"), function(...) {
    records_made_again(asNamespace(pkgname), "SOURCES")
    on_load_of_elvi(libname, pkgname)
  })
}

records_made_again <- function(namespace, sources) {
  for (file in list.files(sources, "[.]R$", full.names = TRUE)) {
    for (expr in as.list(parse(file, keep.source = TRUE))) if (makes_functions(expr, namespace)) {
      name <- as.character(expr[[2L]])
      made <- eval(expr[[3L]], namespace)
      if (is.function(made)) next   # covr has found it in the namespace
      unlockBinding(name, namespace)
      assign(name, counted(made, name), namespace)
      lockBinding(name, namespace)
    }
  }
}

# name <- ..., but no function as it is written, whose value is or has functions
makes_functions <- function(expr, namespace) {
  if (!is.call(expr) || !identical(expr[[1L]], as.name("<-")) || !is.name(expr[[2L]])) return(FALSE)
  if (is.name(expr[[3L]]) || is.call(expr[[3L]]) && identical(expr[[3L]][[1L]], as.name("function"))) return(FALSE)
  name <- as.character(expr[[2L]])
  name != ".onLoad" && exists(name, namespace, inherits = FALSE) && has_functions(get(name, namespace))
}

has_functions <- function(x) is.function(x) || is.list(x) && any(vapply(x, has_functions, NA))

counted <- function(x, name) {
  if (is.list(x)) {
    x[] <- lapply(x, counted, name)
    return(x)
  }
  elsewhere <- !is.function(x) || is.primitive(x) || !identical(topenv(environment(x)), asNamespace("elvi"))
  if (elsewhere || any(all.names(body(x)) == "covr")) x else covr:::trace_calls(x, name)
}
# nocov end
