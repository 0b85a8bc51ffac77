# Rules of quadrature over hyperparameters, one record each; a fit stores the name of its rule. A record has
#
#   lay(setup, around, control, say)   quadrature points about the mode: list(z, found, log_rule, log_coarse, evaluations, ...)
#   between(hyper, axes, weight, component, noise)   draws of theta, in coordinates of the axes, between the points (posterior-hyper.R)
#   error   what its quadrature error is; by default the change against the next coarser grid
#   error_scale   what the sum of squares of changes against the coarser rules is multiplied by for it, by default 1
#
# `around` has the mode, its axes, the drift of conditional optima with theta, and the widths of each axis on either side. `log_rule` is
# the log weight of each point, `log_coarse` that of the next coarser rule, or of several, in columns, -Inf for points that it does
# not have.

hyper_rules <- list(
  lattice = list(
    lay = function(setup, around, control, say) {
      axes <- around$axes
      axes$sd <- axes$sd * pmax(rowMeans(around$width), 0.5)
      truncated_too(settled_lattice(setup, around$mode, axes, around$drift, lattice_step(setup, control$nodes), control$tol, say = say))
    },
    between = function(...) between_lattice(...)),
  scores = list(
    error = "two jackknife standard errors, and the change by importance sampling",
    error_scale = 4 * 3 / 4 / 0.5^2,   # two standard errors of a jackknife of four parts, each left out by half
    lay = function(setup, around, control, say) score_nodes(setup, around, control, say),
    between = function(...) between_lattice(...)),
  composite = list(
    lay = function(setup, around, control, say) {
      composite_nodes(setup, around$mode, around$axes, around$drift, around$width, control$tol, say = say)
    },
    between = function(hyper, axes, ...) (if (ncol(axes$z) > 2L) between_design else between_lattice)(hyper, axes, ...)),
  sampled = list(
    lay = function(setup, around, control, say) {
      sampled_nodes(setup, around$mode, around$axes, around$drift, around$width, control$tol, sampled_number(setup, control$nodes),
                    say = say)
    },
    between = function(...) between_lattice(...)),
  mode = list(
    lay = function(setup, around, control, say) {
      list(z = matrix(0, 1L, setup$layout$length), found = list(around$mode), log_rule = 0, log_coarse = 0, evaluations = 0L)
    },
    between = function(...) between_lattice(...)),
  # the points are many and those of the prior itself (solve-prior.R)
  prior = list(lay = NULL, between = function(hyper, axes, weight, component, noise) axes$z[component, , drop = FALSE]))

rule_record <- function(name) hyper_rules[[name]]

error_words <- function(rule) {
  words <- if (!is.null(rule)) rule_record(rule)$error
  words %||% "against the next coarser grid"
}

error_scale <- function(rule) rule_record(rule)$error_scale %||% 1

# called when the package is loaded
check_hyper_rules <- function(rules = hyper_rules) {
  for (name in names(rules)) {
    lacks <- setdiff(c("lay", "between"), names(rules[[name]]))
    if (length(lacks)) stop("the rule \"", name, "\" lacks ", toString(lacks), ", see R/rule.R")
  }
}

# A lattice for one or two hyperparameters, normal scores for more. Where a number of points is given: few make a composite
# design, more a lattice of up to four hyperparameters, and importance sampling of more.
choose_rule <- function(setup, nodes) {
  if (identical(as.numeric(nodes), 1)) return("mode")
  if (is.null(nodes) && setup$layout$length > 2L) return("scores")
  if (!is.null(lattice_step(setup, nodes))) return("lattice")
  if (isTRUE(nodes <= 3) || setup$layout$length <= 4L) "composite" else "sampled"
}
