# Odd arguments for test-arguments.R: a pool of values of every type, shape and
# size that R has, and ways to spoil a value that was right.

# a user's own error: it must reach the user as it is
own_error <- function(...) {
  stop(structure(class = c("own_error", "error", "condition"),
                 list(message = "the user's own", call = NULL)))
}

not_utf8 <- "\xff\xfe"
odd_names <- c("gr\u00f6\u00dfe", "a b", "", "a", "a", NA, "``", "%s%d\\n", "if", "...", not_utf8)

odd_numbers <- c(NA, NaN, Inf, -Inf, 0, -0.5, -1, 0.5, 1.5, 1, 2, 7, 1e-300, -1e-300, 1e-8, 1e16, 1e154,
                 1e300, -1e300, .Machine$double.xmax, 2^31 - 1, 2^31, 2^53, 1e9, 1e10)

odd_values <- function() {
  numbers <- as.list(odd_numbers)
  other <- list(
    NULL, NA, NA_integer_, NA_character_, TRUE, FALSE, 0L, -1L, 3L, .Machine$integer.max, 1i, as.raw(1:2),
    "", "a", "NA", "1", "gr\u00f6\u00dfe", "a b", "``", "%s%d", "y ~ x", "\\", strrep("long", 1e4), letters, not_utf8,
    numeric(), integer(), character(), logical(), list(), complex(),
    c(1, NA), c(1, NaN, 3), c(Inf, 1), c(-1, 1), c(0, 0), 1:2, 1:3, 3:1, c(0.5, 0.5), seq(0, 1, length.out = 7),
    stats::setNames(seq_along(odd_names), odd_names), stats::setNames(c(1, 0.5), c("mu", "Sigma")),
    stats::setNames(1:2, c("mu", NA)), rep(0.5, 1e5), rep(NA, 1e4), 1:1e5,
    matrix(1, 0, 0), matrix(1, 0, 3), matrix(1, 3, 0), matrix("a", 2, 2), matrix(NA, 2, 2), diag(2), -diag(2),
    diag(3), matrix(1:6, 2), matrix(c(1, NaN, 2, Inf), 2), matrix(1e300, 2, 2), matrix(list(1, 2), 1),
    matrix(TRUE, 2, 1), matrix(c(1, 2, 3, 4), 2), array(1, c(2, 2, 2)), array(1:3, 3), array(0, c(2, 0, 2)),
    data.frame(), data.frame(a = 1:3), data.frame(a = c("x", "y")), mtcars, data.frame(x = I(list(1, 2))),
    factor("a"), factor(c("a", "b")), factor(1:3), factor(c(NA, "a")), ordered(c("lo", "hi")),
    as.Date("2026-01-01"), as.POSIXct(0, origin = "1970-01-01", tz = "UTC"),
    structure(1, class = "difftime", units = "days"), as.POSIXlt("2026-01-01", tz = "UTC"),
    list(1), list(1, "a"), list(a = 1, a = 2), list(mu = 1), list(mu = c(0, 0), Sigma = diag(2)),
    list(mu = c(0, 0), Sigma = -diag(2)), list(mu = c(NA, 0), Sigma = c(1, 1)), list(mu = "a", Sigma = "b"),
    list(mu = c(0, 0), Sigm = diag(2)), list(mu = NULL, Sigma = NULL), list(NULL), list(list(list(1))),
    stats::setNames(list(1, 2), c("", NA)), as.pairlist(list(a = 1)),
    function(x) x, function() 1, function(x) NULL, function(x, ...) "a", function(x, ...) NA_real_,
    function(x, ...) NaN, function(x, ...) Inf, function(x, ...) list(), function(x, ...) numeric(),
    function(x, ...) diag(3), function(x, ...) 1:7, function(x, ...) 0, function(x, ...) -1e300,
    function(x, ...) factor("a"), own_error, sum, `[`, `if`, length, c,
    globalenv(), emptyenv(), new.env(), quote(x), quote(x + y), quote(f()), expression(a, b), quote(`a b`),
    y ~ x, ~x, ~1, y ~ ., y ~ 0, a ~ b | c, log(-1) ~ x, y ~ no_such_variable,
    structure(1, class = "no_such_class"), structure(list(), class = c("tbl", "no_such_class")),
    structure(1:2, names = c("a", "b"), junk = "attribute"), .leap.seconds, stats::as.dist(diag(3)),
    stats::binomial(), stats::Gamma(), stats::poisson(), stats::binomial("cauchit"), table(c(1, 1, 2)),
    structure(numeric(2), dim = 2L, dimnames = list(c("a", NA))), stats::ts(1:3), 1:3 + 0i,
    base_gaussian(), base_student(3), normal(), exponential(), c(normal(), flat(), normal()), normal(0, 1:7),
    flat(), elvi_control(), elvi_control(scale = "diagonal", coordinates = "raw"),
    elvi_control(mu_centre = 1:7, coordinates = "raw"), schedule_tuned(100), schedule_fixed(100, "case1"),
    schedule_custom(1e300, 1, 3), schedule_custom(1e-300, 1, 3), model_quadratic(diag(2)),
    arguments_store("model"), arguments_store("glm"), arguments_store("run"), arguments_store("guarantee"),
    arguments_store("optimum"))
  c(numbers, other)
}

# Ways to spoil a right value. Each returns a value that may or may not still be right.
spoilers <- list(
  element = function(v) {
    if (is.numeric(v) && length(v)) v[sample.int(length(v), 1L)] <- sample(odd_numbers, 1L)
    v
  },
  missing_element = function(v) {
    if (is.atomic(v) && length(v)) v[sample.int(length(v), 1L)] <- NA
    v
  },
  shorter = function(v) if (is.vector(v) || is.factor(v)) v[-1L] else v,
  longer = function(v) if (is.vector(v) || is.factor(v)) v[c(seq_along(v), 1L)] else v,
  twice = function(v) if (is.matrix(v)) cbind(v, v) else if (is.vector(v)) rep(v, 2L) else v,
  fewer_rows = function(v) if (length(dim(v)) == 2L) v[-1L, , drop = FALSE] else v,
  no_rows = function(v) if (length(dim(v)) == 2L) v[0L, , drop = FALSE] else v,
  fewer_columns = function(v) if (length(dim(v)) == 2L) v[, -1L, drop = FALSE] else v,
  negative = function(v) if (is.numeric(v)) -v else v,
  huge = function(v) if (is.numeric(v)) v * 1e300 else v,
  tiny = function(v) if (is.numeric(v)) v * 1e-300 else v,
  constant = function(v) if (is.numeric(v) && length(v)) v * 0 + v[1L] else v,
  fraction = function(v) if (is.numeric(v)) v + 0.25 else v,
  integer = function(v) if (is.numeric(v) && isTRUE(all(abs(v) < 1e9))) { storage.mode(v) <- "integer"; v } else v,
  text = function(v) if (is.atomic(v)) as.character(v) else v,
  complex = function(v) if (is.numeric(v)) v + 0i else v,
  factor = function(v) if (is.atomic(v) && length(v) < 1000L) factor(v) else v,
  list = function(v) list(v),
  as_list = function(v) if (is.atomic(v)) as.list(v) else v,
  unnamed = function(v) if (is.vector(v)) unname(v) else v,
  renamed = function(v) {
    if (is.vector(v) && length(v)) names(v) <- rep_len(odd_names, length(v))
    v
  },
  columns_renamed = function(v) {
    if (length(dim(v)) == 2L && ncol(v)) colnames(v) <- rep_len(odd_names, ncol(v))
    v
  },
  frame = function(v) if (is.atomic(v) && length(v) < 1000L) as.data.frame(v) else v,
  matrix = function(v) if (is.atomic(v)) matrix(v, nrow = 1L) else v,
  column = function(v) if (is.atomic(v)) matrix(v) else v,
  transposed = function(v) if (is.matrix(v)) t(v) else v,
  cube = function(v) if (is.atomic(v)) array(v, c(length(v), 1L, 1L)) else v,
  empty = function(v) if (is.vector(v) || is.factor(v)) v[0L] else v,
  classed = function(v) if (is.atomic(v) && !is.object(v)) structure(v, class = "no_such_class") else v,
  upper = function(v) if (is.character(v)) toupper(v) else v,
  typo = function(v) if (is.character(v)) paste0(v, "s") else v,
  quoted = function(v) call("identity", v),
  closure = function(v) function(...) v)

# One case: a template with one argument replaced, sometimes two; or one left out;
# or one more than the function has, if it takes `...` to refuse it.
generate_case <- function(templates, weight, pool) {
  template <- templates[[sample.int(length(templates), 1L, prob = weight)]]
  args <- template$args()
  open <- setdiff(names(args), template$fixed)
  what <- sample(c("one", "two", "extra", "none"), 1L, prob = c(70, 15, 10, 5))
  if (what == "extra" && "..." %in% names(formals(args(template$fun)))) {
    extra <- setdiff(c(odd_names[!is.na(odd_names)], "bugdet", "familly"), c("a", names(args)))
    name <- sample(extra, 1L)   # "" takes the place of the next argument, if there is one
    return(list(template = template, args = c(args, stats::setNames(list(1), name)), changed = name,
                extra = nzchar(name)))
  }
  if (!length(open)) return(list(template = template, args = args, changed = character()))
  changed <- open[sample.int(length(open), if (what == "two") min(2L, length(open)) else 1L)]
  right <- args[changed]
  for (name in changed) args[name] <- if (what != "none") list(odd_argument(args[[name]], pool))
  list(template = template, args = args, changed = changed, dropped = if (what == "none") changed,
       same = what != "none" && identical(args[changed], right))
}

# functions of many arguments get more cases
case_weight <- function(template) 0.2 + length(template$open)

odd_argument <- function(right, pool) {
  if (is.null(right) || stats::runif(1) < 0.6) return(pool[[sample.int(length(pool), 1L)]])
  spoilers[[sample.int(length(spoilers), 1L)]](right)
}

# What a call did: list(verdict =, why =). A verdict is "right", "refused", "own"
# (an error that is the user's, see `own_errors`), "long" (legal, but not run
# here), "same" (the template itself, which is judged once) or, with a reason why it
# is none of these, "wrong".
judge_call <- function(case, seconds = 20) {
  if (isTRUE(case$same)) return(list(verdict = "same"))
  if (any(unlist(Map(function(legal, name) legal(case$args[[name]]), case$template$long,
                     names(case$template$long))))) return(list(verdict = "long"))
  stray <- NULL
  note <- function(condition, class, muffle) {
    fine <- inherits(condition, class) || (class == "elvi_warning" && own_warning(condition, case))
    if (!fine || inherits(condition, "elvi_warning_interrupted")) {
      stray <<- c(stray, paste(class(condition)[1L], conditionMessage(condition)))
    }
    invokeRestart(muffle)
  }
  setTimeLimit(cpu = seconds, transient = TRUE)
  on.exit(setTimeLimit())
  result <- tryCatch(
    withCallingHandlers(list(value = do.call(case$template$fun, case$args, quote = TRUE)),
                        warning = function(w) note(w, "elvi_warning", "muffleWarning"),
                        message = function(m) note(m, "elvi_message", "muffleMessage")),
    error = identity)
  setTimeLimit()
  if (length(stray)) return(list(verdict = "wrong", why = paste("stray", stray[1L])))
  if (inherits(result, "error")) return(judge_error(result, case))
  if (isTRUE(case$extra)) return(list(verdict = "wrong", why = "took an argument that it does not have"))
  if (length(case$dropped)) return(list(verdict = "right"))   # it has a default
  fine <- tryCatch(suppressWarnings(isTRUE(case$template$right(result$value, case$args))), error = function(e) FALSE)
  if (fine) list(verdict = "right") else list(verdict = "wrong", why = paste("accepted, and returned", brief(result$value)))
}

judge_error <- function(e, case) {
  if (inherits(e, "elvi_error_argument") && !names_argument(e, case)) {
    return(list(verdict = "wrong", why = paste("names the argument", brief(e$argument), ":", conditionMessage(e))))
  }
  if (inherits(e, "elvi_error")) return(list(verdict = "refused", error = e))
  for (own in own_errors) if (isTRUE(own(e, case))) return(list(verdict = "own", error = e))
  list(verdict = "wrong", why = paste0("error in ", brief(conditionCall(e)), ": ", conditionMessage(e)))
}

# `start$mu` is part of `start`; a setting of elvi_control() may only clash with
# the rest of a call, and is then named itself
names_argument <- function(e, case) {
  is.character(e$argument) && length(e$argument) == 1L &&
    whole_argument(e$argument) %in% c(known_arguments(), names(case$args), enc2native(names(case$args)))
}

# what is no valid string has no part either: R's own functions refuse to look for one
whole_argument <- function(name) if (validEnc(name)) sub("\\$.*", "", name) else name

known_arguments <- function() {
  if (is.null(formula_store$arguments)) {
    ns <- asNamespace("elvi")
    methods <- getNamespaceInfo("elvi", "S3methods")[, 3L]
    functions <- mget(unique(c(getNamespaceExports("elvi"), methods)), ns, mode = "function",
                      ifnotfound = list(NULL))
    formula_store$arguments <- unique(unlist(lapply(functions, function(f) names(formals(f)))))
  }
  formula_store$arguments
}

brief <- function(x) {
  shown <- tryCatch(deparse(x, width.cutoff = 100L, nlines = 2L)[1L], error = function(e) class(x)[1L])
  substr(shown, 1L, 100L)
}

describe_case <- function(case, seed) {
  replaced <- vapply(case$changed, function(n) {
    paste(n, "=", if (n %in% case$dropped) "<left out>" else brief(case$args[[n]]))
  }, "")
  paste0(case$template$name, "(", paste(replaced, collapse = ", "), ") [seed ", seed, "]")
}

# Runs cases 1, ..., n; each has a seed of its own, so that one can be had again.
run_cases <- function(templates, n, first = 1L) {
  pool <- odd_values()
  weight <- vapply(templates, case_weight, 0)
  seeds <- seq.int(first, length.out = n)
  withr_seed(1, {
    out <- vapply(seeds, function(seed) {
      set.seed(seed)
      case <- generate_case(templates, weight, pool)
      verdict <- judge_call(case)
      c(template = case$template$name, verdict = verdict$verdict,
        case = if (verdict$verdict == "wrong") describe_case(case, seed) else "",
        why = verdict$why %||% "")
    }, character(4L))
    data.frame(seed = seeds, t(out))
  })
}

# w[1] N((at[1], at[1]), sd[1]^2) + w[2] N((at[2], at[2]), sd[2]^2) in two dimensions, up to the factor 1 / (2 pi)
two_normals <- function(w, at, sd) {
  part <- function(x, j) log(w[j]) - 2 * log(sd[j]) - colSums((x - at[j])^2) / (2 * sd[j]^2)
  value <- function(x) {
    l <- cbind(part(x, 1), part(x, 2))
    m <- pmax(l[, 1], l[, 2])
    -(m + log(rowSums(exp(l - m))))
  }
  gradient <- function(x) {
    first <- rep(1 / (1 + exp(part(x, 2) - part(x, 1))), each = 2)
    (x - at[1]) / sd[1]^2 * first + (x - at[2]) / sd[2]^2 * (1 - first)
  }
  model_density(value, gradient, dim = 2, vectorized = TRUE)
}
