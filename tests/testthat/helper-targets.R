# Objects with the functions of those of other packages, for tests where these are not installed.

# what a fit by 'cmdstanr' has after $init_model_methods(): x ~ N(1, 2), log s ~ N(0, 1), as (x, s)
cmdstan_double <- function() {
  log_prob <- function(u) -(u[1] - 1)^2 / 8 - u[2]^2 / 2
  structure(list(
    draws = function(...) c(x = 0, s = 1),
    unconstrain_draws = function(draws, ...) list(list(c(draws[["x"]], log(draws[["s"]])))),
    log_prob = function(unconstrained_variables, jacobian = TRUE) log_prob(unconstrained_variables),
    grad_log_prob = function(unconstrained_variables, jacobian = TRUE) {
      u <- unconstrained_variables
      structure(c(-(u[1] - 1) / 4, -u[2]), log_prob = log_prob(u))
    },
    constrain_variables = function(unconstrained_variables, ...) {
      x <- unconstrained_variables[1]
      list(x = x, s = exp(unconstrained_variables[2]), log_lik = dnorm(c(0.5, 1, 2), x, 1, log = TRUE))
    }), class = c("CmdStanMCMC", "CmdStanFit", "R6"))
}

# what TMB::MakeADFun() returns: y ~ N(b, sigma), b ~ N(0, 10), sigma ~ exponential, as (b, log_sigma)
tmb_double <- function(y = c(2.1, 3.4, 1.7, 4.0, 2.8)) {
  env <- new.env()
  remember <- function(x) {
    env$last.par <- x
    x
  }
  list(
    par = c(b = 0, log_sigma = 0), env = env,
    fn = function(x) {
      x <- remember(x)
      sum((y - x[[1]])^2) / (2 * exp(2 * x[[2]])) + length(y) * x[[2]] + x[[1]]^2 / 200 + exp(x[[2]]) - x[[2]]
    },
    gr = function(x) {
      x <- remember(x)
      r <- y - x[[1]]
      v <- exp(2 * x[[2]])
      c(x[[1]] / 100 - sum(r) / v, length(y) - sum(r^2) / v + exp(x[[2]]) - 1)
    },
    he = function(x) {
      x <- remember(x)
      r <- y - x[[1]]
      v <- exp(2 * x[[2]])
      matrix(c(length(y) / v + 1 / 100, 2 * sum(r) / v, 2 * sum(r) / v, 2 * sum(r^2) / v + exp(x[[2]])), 2)
    },
    report = function(x) list(sigma = exp(x[[2]])))
}
