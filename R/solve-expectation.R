# The objective without Monte Carlo, for models that have it: generalised linear
# models by one-dimensional quadrature, quadratics in closed form.

has_exact <- function(model) UseMethod("has_exact")

#' @export
has_exact.elvi_model <- function(model) FALSE

#' @export
has_exact.elvi_model_quadratic <- function(model) TRUE

#' @export
has_exact.elvi_model_glm <- function(model) family_record(model)$convex

#' @export
has_exact.elvi_model_dispersed <- function(model) FALSE

# Does it need no d x d matrix for a scale of this kind, because only products with it are used?
exact_by_products <- function(model, kind) UseMethod("exact_by_products")

#' @export
exact_by_products.elvi_model <- function(model, kind) FALSE

#' @export
exact_by_products.elvi_model_glm <- function(model, kind) {
  is_wide(model) && !scale_of(kind)$full && !is_chunked(model$rows)   # passes over chunks are made for d x d sums
}

# How many numbers the largest thing has that the exact solver makes for a scale of this kind.
exact_size <- function(model, kind) {
  if (exact_by_products(model, kind) || is_factored(model, kind)) model$dim else model$dim^2
}

# And is the exact objective worth its memory to a fit whose scale may be far smaller?
affords_exact <- function(model, kind) {
  has_exact(model) && (scale_of(kind)$full || !is_wide(model) || exact_by_products(model, kind))
}

# A function of (kind, mu, scale) giving objective F, E f, its gradient g_mu in mu
# and the matrix B for which the gradient of E f in the scale is B scale; where there
# is only room for its products with vectors, these: see products.R. With a
# scale of 0 it gives f, its gradient and its Hessian. F is Inf where E f does not
# exist. NULL when the model has no exact objective.
exact_oracle <- function(model, law) {
  if (has_exact(model)) oracle_of(model, law)
}

oracle_of <- function(model, law) UseMethod("oracle_of")

#' @export
oracle_of.elvi_model_glm <- function(model, law) {
  rule <- model_quadrature(model, law)
  if (rule$limit <= 0) no_expectation(model$family, law)
  function(kind, mu, scale, directions = NULL) {
    look <- if (exact_by_products(model, kind)) exact_products_at else exact_at
    out <- look(model, rule, law, kind, mu, scale, directions)
    if (status_name(out$status) != "no_expectation") check_status(out$status)
    out$objective <- if (status_name(out$status) == "ok") out$value - log_det(kind, scale) else Inf
    out
  }
}

#' @export
oracle_of.elvi_model_quadratic <- function(model, law) {
  function(kind, mu, scale, directions = NULL) {
    off <- mu - model$m
    g <- drop(model$A %*% off)
    value <- (sum(off * g) + sum(diag(congruent(scale, model$A)))) / 2
    list(value = value, g_mu = g, B = model$A, widest = 0, objective = value - log_det(kind, scale))
  }
}

no_expectation <- function(family, law, of = "likelihood") {
  elvi_abort("`base`: the expected ", family$family, " log ", of, " is infinite under a ",
             law$kind, " base, whose tails are too heavy for exp(). ",
             "Use a gaussian or uniform base.",
             class = c("elvi_error_no_expectation", "elvi_error_argument"),
             data = list(argument = "base"))
}

# Given the dispersion there is one.
no_joint_expectation <- function(model, law) {
  name <- dispersion_record(model)$natural
  elvi_abort("`method`: the expected ", model$family$family, " log posterior is infinite where the coefficients and log(",
             name, ") have a joint ", law$kind, " distribution, because ", name, " is an exponent. ",
             "Integrate over it: fit a formula with normal() or flat() priors and method = \"nested\". Or use base_uniform().",
             class = c("elvi_error_no_expectation", "elvi_error_argument"),
             data = list(argument = "method"))
}

# The rule of a model: that of its likelihood, and that of student priors.
model_quadrature <- function(model, law) {
  rule <- cached_quadrature(law, model$likelihood)
  rule$prior_levels <- if (has_student_prior(model)) cached_quadrature(law, "tail")$levels else list()
  rule
}

# Rules depend on the base, the dimension and the losses of the likelihood only, and take a
# tenth of a second to make: keep them for the session.
quadrature_cache <- new.env(parent = emptyenv())

# lean: that of corrections
cached_quadrature <- function(law, likelihood, lean = FALSE) {
  tried <- if (lean) lean_rules else fine_rules
  if (is.null(law$key)) return(quadrature_rule(law, likelihood, tried))
  key <- paste(law$key, first_of_same_losses(likelihood), if (lean) "lean")
  if (is.null(quadrature_cache[[key]])) quadrature_cache[[key]] <- quadrature_rule(law, likelihood, tried)
  quadrature_cache[[key]]
}
