#' Errors, warnings and messages of elvi
#'
#' Every error that elvi raises has class `elvi_error`, every warning
#' `elvi_warning` and every message `elvi_message`, most of them with a more
#' specific class as well. Catch them with [tryCatch()] and [withCallingHandlers()]; their fields have the details. An error inside a
#' function of your own (a target, a gradient, a projection) reaches you unchanged. But a target that throws errors only at some points
#' is treated as undefined there, and these points are counted, see "When a run fails" in [elvi_model].
#'
#' @section Errors:
#' | class | when | fields | what to do |
#' |---|---|---|---|
#' | `elvi_error_argument` | an argument has the wrong type, shape or value, or clashes with another | `argument`, its name (`start$mu` for a part of `start`; the response as the formula has it); `parent`, the error of R behind it, where R could not read a formula's variables | read the message: it says what was expected |
#' | `elvi_error_smoothness` | steps need the smoothness `L`, which is not known and could not be estimated | `argument` | give [elvi_control()] a `smoothness`, or the schedule a `step` |
#' | `elvi_error_kurtosis` | a preset of [schedule_fixed()] with a base of infinite kurtosis | `argument` | a student base with `df > 4`, or [schedule_custom()] |
#' | `elvi_error_no_optimum` | no optimum exists, or no mode was found: separable data or dependent columns under a flat prior | `argument`, where it is shown that none exists | a proper prior such as [normal()] |
#' | `elvi_error_no_expectation` | the target or a prediction has no expectation under the base: `exp()` of heavy tails | `argument` | a gaussian or uniform base; `type = "link"` |
#' | `elvi_error_no_guarantee` | [best_split()] or [budget_for()] of a guarantee without a guarantee | `argument` | `$assumptions` of the guarantee says which one fails |
#' | `elvi_error_nonfinite` | a gradient or an iterate is NaN or infinite | in a run `iteration`, `mu` and `scale`, for [mpsgd()] `iteration` and `theta`, in the search for a mode `x`, where it has them | shorter steps; look at your function at that point; rescale the data |
#' | `elvi_error_native` | the C function of a [model_native()] is gone: the model or fit was read from a file | | make the model again |
#' | `elvi_error_target` | the C function of a [model_native()] says that it has failed | `iteration`, `mu` | look at your function at that point |
#' | `elvi_error_time_limit` | a limit of [setTimeLimit()] was reached during a run | `fit`, the run so far | more time; `elvi(fit)` continues |
#' | `elvi_error_singular` | the scale is no longer positive definite | `iteration`, `mu`, `scale` | shorter steps |
#' | `elvi_error_backtrack` | no step passes the check of `elvi_control(backtrack = )`, however short: `gradient` is not the gradient of `value`; also an `elvi_error_nonfinite` | `iteration`, `mu`, `scale` | look at both functions at that point |
#' | `elvi_error_lapack` | an eigenvalue decomposition did not converge | | report it |
#' | `elvi_error_quadrature` | the marginal of a [base_radial()] is too rough for a quadrature rule | `argument` | a smoother `log_phi`; `method = "mpsgd"` |
#' | `elvi_error_calibration` | no replication of [calibrate()] could be fitted | | the message has the first failure |
#' | `elvi_error_checkpoint` | a `checkpoint` that belongs to another run, is damaged, or cannot be written | `argument`, `file`, `differs`: the difference | the call that the file belongs to, or another file name |
#' | `elvi_error_interrupted` | an interrupt or a time limit ended a fit with group-level terms, or the search for a start before it had found any: there is no fit | | call again |
#' | `elvi_error_term` | a [group-level or smooth term][group_terms] of a formula that is not supported | `argument`, `term` | read the message: it says why |
#' | `elvi_error_rows` | rows of a [source][rows_elsewhere] cannot be read, differ in type from the others, or have changed since the first pass | `parent`, the error behind it; `shard` | read the message: it says where |
#' | `elvi_error_read` | a file or a query failed while rows were read; also an `elvi_error_rows` | `parent`, the error behind it | repair the file or the connection; `retries = ` tries again |
#' | `elvi_error_worker` | all workers of a [cluster][rows_cluster()] are lost, or one cannot answer | `shards` | another cluster |
#' | `elvi_error_package` | a suggested package is missing | | install it |
#'
#' Results that would not fit in memory are refused before they are allocated, with
#' an `elvi_error_argument` that says how much they would take. The limit is
#' `options(elvi.max_gib = 2)`, in GiB for the largest matrix of the result.
#'
#' @section Warnings:
#' | class | when | fields | what to do |
#' |---|---|---|---|
#' | `elvi_warning_diverged` | a run ended clearly worse than it began | | a larger `smoothness`, or none of your own |
#' | `elvi_warning_interrupted` | an interrupt or a time limit ended a run | | the fit so far is returned; [elvi()] or [mpsgd()] on it continues |
#' | `elvi_warning_not_converged` | the budget, or the solver, ended above `tol` | | `elvi(fit, budget = )` continues |
#' | `elvi_warning_gradient` | `gradient` of a [model_density()] is not the gradient of `value` | `x`, `direction`, `by_value`, `by_gradient`: where, along what, and the two derivatives | correct one of the two |
#' | `elvi_warning_nonfinite` | `value` of a [model_density()] is NaN or infinite at draws of the approximation, so that the run cannot be compared with its start | | look at `value`; a base of bounded support |
#' | `elvi_warning_outside` | a user-supplied density failed at points of a run that has no verdict, because the density was declared convex | `outside`, `first_error` | look at its domain |
#' | `elvi_warning_shortened` | the steps of a schedule gave non-finite values or a rising objective on a user-supplied density: the run was repeated with shorter steps | `shorten` | shorter steps |
#' | `elvi_warning_slow_gradient` | a [model_density()] without `gradient` | | give one |
#' | `elvi_warning_evidence` | importance weights are too uneven to correct the log evidence | | use the lower bound |
#' | `elvi_warning_fold` | a fit of `kfold()` without one of the folds did not converge | | more rows a fold, or tighter priors |
#' | `elvi_warning_flat_prior` | a formula with a flat prior: an optimum need not exist | | a proper prior |
#' | `elvi_warning_constant_response` | all responses are equal | | check the data |
#' | `elvi_warning_correction` | the draws that correct the weights of the quadrature points of a fit with [group-level terms][group_terms] leave a standard error of more than 0.05 standard deviations in the mean of a hyperparameter | `noise`, `draws` | more rows per group, or a tighter `prior_sd` |
#' | `elvi_warning_quadrature` | the quadrature error of a fit with [group-level terms][group_terms] is above 0.05 standard deviations (against the next coarser grid) | `change` | a larger `elvi_control(nodes = )`, or a tighter `prior_sd` |
#' | `elvi_warning_checkpoint` | a checkpoint could not be written; the run continues | | free disk space, or check the permissions of the directory |
#' | `elvi_warning_verdict` | the check of a fit of a user-supplied density found a problem: k-hat, importance weights that move means or sds, other starts that ended at a different place, draws outside the domain | `verdict` | another parametrisation (non-centred), base or scale; more `starts` |
#' | `elvi_warning_uncorrected` | draws of the approximation itself (`resample = FALSE`) of a fit that importance weights correct, where the two differ by more than 0.3 standard deviations or a factor of 1.5 | | leave `resample` out |
#' | `elvi_warning_worker` | a worker of a [cluster][rows_cluster()] is lost; other workers have its rows now, and the result is the same | `worker` | |
#' | `elvi_warning_slow` | no worker of a [cluster][rows_cluster()] has answered within its `timeout`; elvi waits once more | | a larger `timeout` |
#' | `elvi_warning_pareto_k` | importance resampling where the approximation misses part of the target | | another base or scale |
#' | `elvi_warning_polish` | the chains of `polish = TRUE` have not mixed | | use the verdict; another parametrisation |
#'
#' @section Messages:
#' | class | when |
#' |---|---|
#' | `elvi_message_adapted` | a mixture adapted to the target corrects what the fit shows, as the approximation alone misses part of it |
#' | `elvi_message_cache` | no copy of data larger than memory can be kept: every pass reads the source |
#' | `elvi_message_collinear` | the columns of a design are dependent: the data do not determine all coefficients, and the prior decides |
#' | `elvi_message_indefinite` | the Hessian at the mode is not positive definite; whitening uses its absolute eigenvalues |
#' | `elvi_message_checkpoint` | a run resumes from its checkpoint, or was complete |
#' | `elvi_message_checkpoint_method` | a `checkpoint` selects the stochastic algorithm where the exact solver would be used |
#' | `elvi_message_response` | a variable of the response is a predictor as well: check the formula |
#' | `elvi_message_mirai` | a mirai cluster gives any task to any worker, so each one will hold all shards: use a list of clusters of one worker each |
#' | `elvi_message_not_nested` | data larger than memory with a dispersion that would be integrated over in memory: a stochastic run is made instead |
#' | `elvi_message_pass` | a pass over [data larger than memory][rows_elsewhere], where progress is shown |
#' | `elvi_message_plot` | smooths that a plot leaves out: they need another kind of picture |
#' | `elvi_message_retry` | rows could not be read, and are read again after a pause (`retries = ` of [rows_files()] and [rows_dbi()]) |
#' | `elvi_message_smooth_rows` | bases of smooths for data larger than memory are made from some of the rows |
#' | `elvi_message_all_rows` | `rows_per_step` is not used, since a solver needs fewer passes |
#' | `elvi_message_start_kept` | a run did not improve on its start, which is returned |
#' | `elvi_message_worker` | a worker of a [cluster][rows_cluster()] that was lost is there again, and gets its shards back |
#'
#' @examples
#' # which argument was wrong?
#' tryCatch(base_student(df = 1), elvi_error_argument = function(e) e$argument)
#'
#' # a prior only where it is needed
#' X <- cbind(1, c(-2, -1, 1, 2))
#' fit_or_shrink <- function(y) {
#'   tryCatch(elvi(model_glm(X, y, prior = flat()), method = "exact"),
#'            elvi_error_no_optimum = function(e) elvi(model_glm(X, y), method = "exact"))
#' }
#' coef(fit_or_shrink(c(0, 0, 1, 1)))   # separable
#'
#' # record warnings and continue
#' noted <- NULL
#' fit <- withCallingHandlers(
#'   elvi(model_glm(X, c(1, 1, 1, 1)), method = "exact"),
#'   elvi_warning = function(w) {
#'     noted <<- c(noted, class(w)[1])
#'     invokeRestart("muffleWarning")
#'   })
#' noted
#'
#' # where did a gradient go wrong?
#' wrong <- model_density(function(x) sum(x^2) / 2, function(x) x / (sum(abs(x)) < 5),
#'                        dim = 2, smoothness = 1)
#' tryCatch(elvi(wrong, schedule = schedule_custom(100, 10, 50),
#'               control = elvi_control(coordinates = "raw")),
#'          elvi_error_nonfinite = function(e) e[c("iteration", "mu")])
#' @name elvi_conditions
#' @aliases elvi_error elvi_warning elvi_message
NULL

# an error of setTimeLimit(), which is about the session and not about a point
is_time_limit <- function(condition) any(startsWith(conditionMessage(condition), time_limit_texts()))

time_limit_texts <- function() {
  texts <- c("reached elapsed time limit", "reached CPU time limit", "reached session elapsed time limit",
             "reached session CPU time limit")
  c(texts, gettext(texts, domain = "R"))
}

# What the user wants to end: a limit, and an interrupt that C has noticed. Either is raised once: who swallows it has ended it for the rest
# of the call.
is_stop <- function(condition) {
  is_time_limit(condition) || inherits(condition, "elvi_error_interrupted") || inherits(condition, "elvi_error_time_limit")
}

# the value to use if expr fails
or_else <- function(expr, otherwise) tryCatch(expr, error = function(e) if (is_stop(e)) stop(e) else otherwise)
or_null <- function(expr) or_else(expr, NULL)

# the same where only elvi's own errors are expected
null_if_refused <- function(expr) tryCatch(expr, elvi_error = function(e) if (is_stop(e)) stop(e))

# does what Ctrl-C does in R, after C has noticed it
raise_interrupt <- function() {
  signalCondition(structure(class = c("interrupt", "condition"), list(message = "", call = NULL)))
  invokeRestart("abort")
}
