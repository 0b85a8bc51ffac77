# Help pages that belong to no function.

#' Correction of the gaussian approximation
#'
#' The exact solver finds the best gaussian approximation of a posterior. Where data are sparse, for example in a cell with few
#' events, the posterior is skewed and a gaussian is too narrow. elvi then corrects the marginal distribution of each
#' coefficient, and all methods show the corrected posterior. `print()` says by how much means and standard deviations moved.
#'
#' `elvi(correct = FALSE)` shows the gaussian instead. Its mean and scale are `fit$mu` and `fit$Sigma` with or without the
#' correction.
#'
#' @section How it works:
#' For each of about ten values of a coefficient elvi computes the best gaussian of all other coefficients. The evidence lower bound as a
#' function of the value, the profile, is the log density of the corrected marginal. Coefficients whose third and fourth
#' cumulants are small are not corrected; computing these cumulants takes one more pass over the rows.
#'
#' In fits with hyperparameters or with up to six coefficients, importance sampling then checks the corrected posterior. If it
#' finds a difference and there are at most six parameters, each value of a profile is corrected by weighted points from its own
#' gaussian. If a difference remains, many weighted points give the means, standard deviations and interval limits of
#' coefficients and of linear functions.
#'
#' Regressions with student priors have no profile. With up to six coefficients, weighted points give their moments and limits.
#' The distribution of these points is adapted to the posterior in three rounds.
#'
#' @section When it is available:
#' The correction needs a gaussian `base`, a family with an exact objective given its dispersion, and data in memory. `print()`
#' says why coefficients are not corrected. User-supplied densities are corrected by importance sampling instead, see [verdict].
#' @seealso [elvi()], [pareto_k()]
#' @examples
#' # 32 cars: the posterior of the slope is skewed
#' corrected <- elvi(am ~ wt, data = mtcars, family = binomial())
#' gaussian <- elvi(am ~ wt, data = mtcars, family = binomial(), correct = FALSE)
#' confint(corrected)
#' confint(gaussian)
#' @name correction
NULL

#' Models with a second formula
#'
#' Some families have a second parameter with a linear predictor of its own: the probability of excess zeros (`ziformula`) or
#' the dispersion (`dispformula`). The names of the arguments are those of 'glmmTMB'. A second formula may have everything that
#' the first one may: factors, group-level and smooth terms, offsets.
#'
#' | argument of [elvi()] | families | parameter | link |
#' |---|---|---|---|
#' | `ziformula`, `~ 1` by default | [zero-inflated and hurdle families][families] | `zi`, the probability of a zero | logit |
#' | `dispformula` | `gaussian()`, [lognormal()], [student()] | `sigma` | log |
#' | `dispformula` | `Gamma(link = "log")` | `shape` | log |
#' | `dispformula` | [neg_binomial_2()], [Beta()], [beta_binomial()] | `phi` | log |
#'
#' @section Names and priors:
#' Coefficients of the second formula are named `zi_x` and `disp_x`. A prior is used for both formulas, unless it is a list with
#' one for each: `prior = list(cond = normal(0, 1), zi = normal(0, 2))`. `prior_intercept` takes such a list too. In a list for
#' `prior_sd` the groups of a second formula are called `zi_g` and `disp_g`. For `gaussian()` the default prior of the `disp`
#' intercept is centred at the logarithm of the standard deviation of the response.
#'
#' @section Predictions:
#' `predict()` has more types: `"conditional"` is the mean without excess zeros, `"zprob"` and `"zlink"` are the probability of a zero and
#' its predictor, and `"disp"` is the dispersion.
#'
#' @section Method:
#' Such models are fitted by `method = "nested"` with a gaussian base. Their log likelihoods are not concave: the approximation is a
#' stationary point, and importance sampling checks it, see [families].
#' @seealso [elvi()], `vignette("families")`
#' @examples
#' d <- data.frame(y = c(0, 0, 3, 0, 1, 0, 0, 4, 2, 0, 0, 5), x = rep(0:1, 6))
#' fit <- elvi(y ~ x, data = d, family = zero_inflated_poisson(), ziformula = ~ x)
#' fit
#' predict(fit, data.frame(x = 0:1), type = "zprob")
#' @name second_formulas
NULL

#' The search for a starting point
#'
#' For a user-supplied density that is not known to be convex, [elvi()][elvi_model] searches for a gaussian to start from. The
#' mode alone would not do: a posterior may have several modes or none. The density of a hierarchical model, for example, grows
#' without bound as the standard deviation of a group goes to 0. No tuning is needed; `starts` is the number of points from
#' which the search begins.
#'
#' @section The steps:
#' 1. A quasi-Newton method descends from the origin and from `starts - 1` other points, which are drawn uniformly from (-2, 2)
#'    in opposite pairs.
#' 2. Laplace approximations at points along these paths are compared by their objective on draws.
#' 3. Natural gradient steps improve the best approximation of each region, in coordinates whitened by the current
#'    approximation. They are repeated from a wider start, which escapes from the neck of a funnel. An approximation that
#'    reaches the region of another one is dropped.
#' 4. Four more paths begin ten standard deviations away from the best one.
#'
#' The best approximation starts the run and whitens its coordinates. With a `tol` the coordinates are whitened again by the
#' current fit whenever the budget doubles. Theorems hold within the last of these stages.
#'
#' @section Results of the search:
#' `fit$search$account` has the number of `evaluations`, the number of points `outside` the domain and the `first_error` of the target.
#' `fit$search$rivals` has the approximations that other starts reached. A point where the target throws an error or is not finite is
#' rejected. If you interrupt the search, the best approximation so far is returned as a fit, which `elvi(fit)` continues.
#'
#' @section Several modes:
#' Different starts may end at different gaussians. With `combine = "stack"` the fit is a mixture of these, with weights in
#' proportion to `exp(ELBO)`. `coef()`, `vcov()`, draws, [elbo()], [pareto_k()] and the [verdict] are those of the mixture.
#' `fit$stack` has its weights and components.
#' @seealso [elvi_model], [verdict]; `vignette("any-model")`.
#' @examples
#' # two modes, at 3 and -3
#' model <- model_density(
#'   value = function(x) -log(exp(-(x - 3)^2 / 2) + exp(-(x + 3)^2 / 2)),
#'   gradient = function(x) x - 3 * tanh(3 * x),
#'   dim = 1)
#' set.seed(1)
#' fit <- elvi(model, combine = "stack")
#' fit
#' fit$stack$weights
#' fit$search$account$evaluations
#' @name start_search
NULL

#' The verdict on a fit of a user-supplied density
#'
#' A fit of a [model_density()], [model_stan()] or [model_tmb()] is checked against the density itself, by importance sampling
#' and by comparing starts. The result of these checks is the verdict. `print()` shows it. If there is a problem, a warning of
#' class `elvi_warning_verdict` says which. Tables, plots and draws of such a fit are corrected by the importance weights, see
#' [elvi_fit].
#'
#' @section What is checked:
#' There is a warning if
#' * Pareto k-hat (see [pareto_k()], blocks of 10,000 draws) is at or above its limit, or the effective sample size is below 400;
#' * importance weights move a mean by 0.3 standard deviations, or change a standard deviation by a factor of 1.5;
#' * another start ended at a different place (more than two standard deviations away) that is nearly as high (less than
#'   `log(100)` nats below); the warning has an R-hat over starts;
#' * the target fails at one draw in a hundred (a value of `Inf` means no mass, and is not a failure);
#'
#' * the target has mass in the neck of a funnel where the approximation has no draws (see the next section), and no mixture
#'   corrects that.
#'
#' `fit$verdict` has the numbers. If the support has an edge, as for a parameter that must be positive, the verdict names the
#' parameter and the position of the edge. Edges are looked for in at most 2,000 parameters.
#'
#' @section Necks of funnels:
#' The density of a hierarchical model is often a funnel: when the standard deviation of a group is small, its effects have
#' little room. An approximation may have no draws in this narrow neck, and then its importance weights look good although mass
#' is missing. elvi therefore follows up to two parameters that change the curvature of the others most, if there are at most
#' 150 parameters. At values beyond the approximation it computes the conditional mode and curvature of the other parameters,
#' which give the marginal density by Laplace's method. These conditional gaussians become components of the adapted mixture
#' (below), and the weights of the mixture decide how much they count.
#'
#' @section Thin weights:
#' In tens of dimensions the effective sample size is small even for a good approximation. The fit then gets a second check, if
#' the weights move no mean and no standard deviation by much, starts agree, and no parameter sets the scale of others: 32 short
#' chains of Hamiltonian Monte Carlo start from the approximation. If they agree with the weights, the fit is confirmed, and
#' `print()` says so.
#'
#' @section What it cannot see:
#' The verdict misses a mode that no start has reached, and the neck of a funnel along a parameter that was not followed.
#'
#' @section Without a search:
#' This section is about stochastic runs with more than 400 parameters; for the default see the section on many parameters below.
#' No start is searched, and other starts are not compared. The only check is by importance
#' weights of up to 40,000 draws, which correct nothing. A fit that they do not confirm counts as not converged.
#'
#' @section Adapted mixtures:
#' If the check finds a problem, or the effective sample size is below a fifth of the draws, and there are at most 150 parameters, a mixture
#' is adapted to the target by population Monte Carlo: up to 15 rounds of 5,000 draws, each fitting the mixture to the weighted draws of
#' earlier rounds. Its components are student distributions, bent along one direction as funnels and bananas are. The three best rounds
#' are used.
#'
#' The mixture replaces the approximation, in the verdict and in what the fit shows, if all of these hold:
#' * its k-hat is at most 0.7, for the variances too;
#' * its effective sample size is at least a fifth of the draws;
#' * the variance of the exponential of each logarithm rests on at least 400 draws.
#'
#' A message of class `elvi_message_adapted` and `print()` then say so. A warning about other starts stays, since there may be
#' further modes. `fit$mu`, `fit$Sigma`, [elbo()] and draws with `resample = FALSE` remain those of the approximation.
#'
#' No mixture is adapted with more than 150 parameters, or for a stack. A k-hat between its limit and 1 is then accepted if the
#' effective sample size is above half of the draws.
#'
#' @section Many parameters:
#' A user-supplied density of more than 400 parameters is fitted by natural gradient steps on the pattern of its Hessian, unless
#' a `schedule`, `starts`, a base or a setting of a run is given; `method = "natural"` does so for fewer parameters too. The
#' precision of the best gaussian is the mean of the Hessian. It has the same zeros, so elvi stores only its sparse factor. The
#' pattern comes from a `hessian` that returns sparse matrices, from `sparsity`, or from one difference of gradients per
#' parameter. The values come from the Hessian or from a few differences. If the Hessian has no zeros, the precision is a full
#' matrix for up to 1,000 parameters; beyond that the scale is low rank plus diagonal.
#'
#' No gaussian describes many effects and the logarithm of their standard deviation together. Up to six parameters that change
#' the curvature of most others are therefore integrated over by quadrature, with the best gaussian of the others at each point.
#' The argument `hyper` of [model_density()] names them, or says that there are none. The log evidence at each point uses the
#' same draws, and is corrected by importance weights.
#'
#' Importance weights are of no use in many dimensions. The verdict comes from 32 short chains of Hamiltonian Monte Carlo that
#' start at draws of the approximation. There is a problem if they move a mean by 0.3 standard deviations, change a standard
#' deviation by a factor of 1.5, or have not settled. If they differ from the approximation by more than their noise, but by
#' less than twice these limits, their points replace it. Chains are longer where heavy tails leave standard deviations
#' uncertain. With hyperparameters, the chains check the gaussian at the best quadrature point. Without, four descents from far
#' away look for other modes; the verdict names one that is nearly as high.
#'
#' @section Polish:
#' With `polish = TRUE`, if importance sampling is not enough and no mixture does better, 16 chains of Hamiltonian Monte Carlo
#' start from the corrected draws. Each has 200 iterations to adapt and 250 that are kept. Coordinates are whitened by the
#' covariance of the corrected draws, and later by that of the chains. The draws of the chains replace the weighted draws in all
#' methods; `fit$polish` has the details. The largest split R-hat is printed, with a warning of class `elvi_warning_polish`
#' above 1.05. An R-hat near 1 is necessary, not sufficient: short chains that start at the approximation may all miss the same
#' part of the target.
#' @seealso [elvi_model], [pareto_k()]; `vignette("any-model")`.
#' @examples
#' # a banana, which no gaussian fits: the verdict is in the last lines, and estimates are corrected
#' banana <- model_density(
#'   value = function(x) x[1]^2 / 2 + (x[2] - 0.2 * x[1]^2)^2 / 2,
#'   gradient = function(x) c(x[1] - 0.4 * x[1] * (x[2] - 0.2 * x[1]^2), x[2] - 0.2 * x[1]^2),
#'   dim = 2)
#' set.seed(1)
#' fit <- elvi(banana)
#' fit
#' fit$verdict$k
#' @name verdict
NULL
