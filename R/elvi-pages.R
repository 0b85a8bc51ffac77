# Help pages that belong to no function.

#' Correction of the gaussian approximation
#'
#' The exact solver finds the best gaussian approximation of a posterior. Where data are sparse, for example in a cell with few events,
#' the posterior is skewed and a gaussian is too narrow. elvi then corrects the marginal of each coefficient, and all methods show the
#' corrected posterior. `print()` says by how much means and standard deviations moved.
#'
#' `correct = FALSE` of [elvi()] leaves the gaussian as it is. Its mean and scale are `fit$mu` and `fit$Sigma` in any case.
#'
#' @section How it works:
#' For each of about ten values of a coefficient elvi computes the best gaussian of all other coefficients. The evidence lower bound as a
#' function of the value, the profile, is the log density of the corrected marginal. Coefficients whose third and fourth
#' cumulants are small are not corrected; computing these cumulants takes one more pass over the rows.
#'
#' Importance weights then look at the corrected posterior, in fits with hyperparameters or with up to six coefficients. Where they
#' object and there are at most six parameters, each value of a profile is corrected by weighted points of its own gaussian. Where they
#' still object, means, standard deviations and limits of coefficients and of linear functions are those of many weighted points.
#'
#' Regressions with student priors have no profile. With up to six coefficients they take these from weighted points whose
#' distribution is adapted to the posterior in three rounds.
#'
#' @section When it is available:
#' The correction needs a gaussian `base`, a family with an exact objective given its dispersion, and data in memory. `print()` says why
#' coefficients are left as they are. User-supplied densities are corrected by importance sampling instead, see [verdict].
#' @seealso [elvi()], [pareto_k()]
#' @name correction
NULL

#' Models with a second formula
#'
#' Some families have a second parameter with a linear predictor of its own: the probability of excess zeros (`ziformula`) or the
#' dispersion (`dispformula`). The names of the arguments are those of 'glmmTMB'. A second formula takes what the first one takes: factors,
#' group-level and smooth terms, offsets.
#'
#' | argument of [elvi()] | families | parameter | link |
#' |---|---|---|---|
#' | `ziformula`, `~ 1` by default | [zero-inflated and hurdle families][families] | `zi`, the probability of a zero | logit |
#' | `dispformula` | `gaussian()`, [lognormal()], [student()] | `sigma` | log |
#' | `dispformula` | `Gamma(link = "log")` | `shape` | log |
#' | `dispformula` | [neg_binomial_2()], [Beta()], [beta_binomial()] | `phi` | log |
#'
#' @section Names and priors:
#' Coefficients of the second formula are named `zi_x` and `disp_x`. A prior holds for both formulas;
#' `prior = list(cond = normal(0, 1), zi = normal(0, 2))` gives each its own, and so for `prior_intercept`. In a list for `prior_sd` the
#' groups of a second formula are called `zi_g` and `disp_g`. The default prior of the intercept of `disp` for `gaussian()` is centred at
#' the
#' logarithm of the standard deviation of the response.
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
#' A posterior of any shape need not have a mode: that of a hierarchical model grows without bound as the standard deviation of a group
#' goes to 0. For a user-supplied density that is not known to be convex, [elvi()][elvi_model] therefore searches for a gaussian to start
#' from. No tuning is needed; `starts` is the number of points from which it searches.
#'
#' @section The steps:
#' 1. A quasi-Newton method descends from the origin and from `starts - 1` points drawn uniformly from (-2, 2), in opposite pairs.
#' 2. Laplace approximations at points along these paths are compared by their objective on draws.
#' 3. The best of different places are improved by natural gradient steps, each in coordinates whitened by the approximation so far, and
#'    once more from a wider start, which leads out of the neck of a funnel. An approximation that reaches the place of another one is
#'    dropped.
#' 4. Four more paths begin ten standard deviations away from the best one.
#'
#' The best one starts the run and whitens its coordinates. With a `tol` the coordinates are whitened again, by the fit so far, whenever
#' the budget doubles; theorems hold within the last of these stages.
#'
#' @section What a fit keeps of it:
#' `fit$search` has the number of `evaluations`, the number of points `outside` the domain, the `first_error` of the target, and the
#' `rivals`: the approximations that other starts reached. A point where the target throws an error or is not finite is rejected. An
#' interrupt returns the best approximation so far as a fit, which `elvi(fit)` continues.
#'
#' @section Several modes:
#' With `combine = "stack"` the fit is a mixture of the gaussians that starts ended in at different places, with weights in proportion to
#' `exp(ELBO)`. `coef()`, `vcov()`, draws, [elbo()], [pareto_k()] and the [verdict] are those of the mixture. `fit$stack` has its weights
#' and
#' components.
#' @seealso [elvi_model], [verdict]; `vignette("any-model")`.
#' @name start_search
NULL

#' The verdict on a fit of a user-supplied density
#'
#' A fit of a [model_density()], [model_stan()] or [model_tmb()] is checked against the density itself, by importance sampling and by
#' comparing starts. `print()` shows the result, the verdict, and a warning of class `elvi_warning_verdict` says what is wrong. Tables,
#' plots
#' and draws of such a fit are corrected by the importance weights, see [elvi_fit].
#'
#' @section What is checked:
#' There is a warning if
#' * Pareto k-hat (see [pareto_k()], blocks of 10,000 draws) is at or above its limit, or the effective sample size is below 400;
#' * importance weights move a mean by 0.3 standard deviations, or change a standard deviation by a factor of 1.5;
#' * another start ended at a different place (more than two standard deviations away) that is nearly as high (less than `log(100)` nats
#'   below), with an R-hat over starts;
#' * the target fails at one draw in a hundred. Where it is `Inf` it has no mass, which is not a failure.
#'
#' * along a parameter that sets the scale of others, the target goes on where the approximation has no draws (below), and no mixture
#'   corrects that.
#'
#' `fit$verdict` has the numbers. Where the support has an edge, as that of a positive parameter, the verdict names the parameter and the
#' place, in at most 2,000 parameters.
#'
#' @section Necks of funnels:
#' Along the logarithm of a group's standard deviation a density may go on where an approximation has no draws, so that its importance
#' weights look good. In at most 150 parameters, up to two that change the curvature of the others most are therefore followed: at
#' values beyond the approximation the others get their conditional mode and curvature, which gives the marginal density by Laplace's
#' method. The conditional gaussians are components of the adapted mixture (below), whose weights decide.
#'
#' @section Thin weights:
#' In tens of dimensions, importance weights leave few draws of good approximations. If they move no mean and no standard deviation by much,
#' starts agree, and no parameter sets the scale of others, 32 short chains of Hamiltonian Monte Carlo from the approximation are compared
#' with what the weights say. If the two agree, the fit is confirmed, and `print()` says so.
#'
#' @section What it cannot see:
#' A mode that no start has reached, and a neck along a parameter that was not followed.
#'
#' @section Without a search:
#' In more than 400 parameters no start is searched. The importance weights of up to 40,000 draws are then the only check, they correct
#' nothing, and other starts are not compared. A fit that they do not confirm counts as not converged.
#'
#' @section Adapted mixtures:
#' If the check finds a problem, or the effective sample size is below a fifth of the draws, and there are at most 150 parameters, a mixture
#' is adapted to the target by population Monte Carlo: up to 15 rounds of 5,000 draws, each fitting the mixture to the weighted draws of
#' earlier rounds. Its components are student distributions, bent along one direction as funnels and bananas are. The three best rounds
#' are used.
#'
#' The mixture replaces the approximation in the verdict and in what the fit shows if its k-hat is at most 0.7, for the variances too, if
#' its effective sample size is a fifth of the draws, and if the variance of the exponential of each logarithm rests on
#' at least 400 draws. A message of class `elvi_message_adapted` and `print()` say so. A warning about other starts stays, since there
#' may be
#' further modes. `fit$mu`, `fit$Sigma`, [elbo()] and draws with `resample = FALSE` remain those of the approximation.
#'
#' Where no mixture is adapted, in more than 150 parameters and for a stack, a k-hat between its limit and 1 is accepted if the effective
#' sample size is above half of the draws.
#'
#' @section Many parameters:
#' A user-supplied density of more than 400 parameters is fitted by natural gradient steps on the pattern of its Hessian, unless a
#' `schedule`, `starts`, a base or a setting of a run is given; `method = "natural"` does so for fewer parameters too. At the best
#' gaussian the precision is the mean of the Hessian, so that a precision with its zeros loses nothing, and its sparse factor is all that
#' is kept. The pattern comes from a `hessian` that returns sparse matrices, from `sparsity`, or from a difference of gradients for
#' each parameter; the values from the Hessian or from few differences. Without zeros the precision is a full matrix for up to 1,000
#' parameters, and the scale low rank plus diagonal beyond.
#'
#' A gaussian of many effects and the logarithm of their standard deviation together is wrong however well it is fitted. Parameters that
#' change the curvature of most others, at most six, are therefore integrated over by quadrature, with the best gaussian of the others at
#' each point (`hyper` of [model_density()] names them, or none). Its log evidence is by draws that are the same at every point, and
#' corrected by importance weights.
#'
#' Importance weights are of no use in many dimensions. The verdict comes from 32 short chains of Hamiltonian Monte Carlo that begin in
#' draws of the approximation: if they move a mean by 0.3 standard deviations or change one by a factor of 1.5, or have not settled, that
#' is a problem; where they differ by more than their noise, but not by twice these limits, their points take the place of the
#' approximation. They are longer where heavy tails leave standard deviations uncertain. With hyperparameters they check the gaussian at the
#' best of them. Without, four descents from far away look for other modes; one that is nearly as high is a problem, and named.
#'
#' @section Polish:
#' With `polish = TRUE`, where importance sampling is not enough and no mixture does better, 16 chains of Hamiltonian Monte Carlo start
#' from the corrected draws. They use coordinates whitened by the covariance of these draws and then of their own, 200 iterations to adapt
#' and 250 that are kept. Their draws replace the weighted draws in all methods; `fit$polish` has the details. The largest split R-hat is
#' printed, with a warning of class `elvi_warning_polish` above 1.05. An R-hat near 1 is necessary, not sufficient: short chains that
#' start at the approximation may all miss the same part of the target.
#' @seealso [elvi_model], [pareto_k()]; `vignette("any-model")`.
#' @name verdict
NULL
