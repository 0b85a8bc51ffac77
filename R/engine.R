# The engine for user-supplied densities: R functions, C functions and Stan models that only return values and
# gradients. It has two doors:
#
#   search_start()       where a run starts (search-start.R, search-natural.R)
#   judge()              how good the result is, and what corrects it (judge-*.R)
#
# search_start() returns NULL, or a list: the gaussian x = mu + A z, its `objective` and `se`, `rivals` (where other starts
# ended), `account` (points evaluated, points that failed) and `interrupted`. judge() returns the fit with `stack`, `verdict`,
# `posterior` and `converged` in its result. The rest of the package reads these fields, or asks:
#
#   check_combine()      is combine = "stack" possible?
#   needs_check()        does this fit need a verdict before it may be called converged?
#   is_confirmed()       does the verdict allow to call it converged?
#   misses_part()        does a verdict say that the approximation misses part of the target?
#   report_judgement()   messages and warnings about the verdict
#   verdict_lines()      the lines of print() about it
#   run_components()     location, roots and weights of what a run has ended in, a stack or one gaussian
#   stack_words()        what the estimates of a stack describe
#   stack_line()         the line of print() about a stack
#   stacked_objective()  the objective of a stack
#   verdict_points()     the importance-weighted points that correct the posterior
#   with_polish()        the fit with chains of Hamiltonian Monte Carlo, where the verdict requires them
#   polished_points()    what these chains visited
#   adapted_points()     draws of the mixture that was adapted to the target
#   pareto_k()           Pareto k-hat of a fit
#   pareto_shape()       Pareto k-hat of log ratios
#   k_of_verdict()       the k-hat that the verdict has computed already
#   k_verdict()          k-hat in words
#   draws_with_ratios()  draws of the approximation with their log importance ratios
#   first_draws()        how many draws a k-hat or an evidence takes at first
#   effective_draws()    effective sample size of log ratios
#   share_outside()      share of the target outside a bounded support
#
# For densities of many parameters (solve-wide.R, solve-integrated.R):
#
#   solve_path()         the fits by method = "laplace" and "pathfinder"
#   search_wide()        the best gaussian on the pattern of the Hessian
#   wide_move()          one natural gradient step of it
#   repaired_root()      a positive definite root near a given Hessian
#   is_point()           may this vector be a first point?
#   chain_verdict()      what short chains from the approximation say
#   is_by_chains()       is a verdict of that kind?
#   chain_points()       the points that these chains visited
#   loose_logarithms()   logarithms whose sd says little
#   objections()         what a verdict has against a fit
#   warn_of_verdict()    the warning about them
#
# tools/style.sh checks that no other function of these files is called from elsewhere. This file has the engine's constants
# and the numbers of its random streams.

# ---- the search for a start --------------------------------------------------------------------------------

widest_search <- 400            # parameters; a natural gradient step takes too long beyond
default_starts <- 6             # points from which a search descends, if `starts` is not given
loosest_search_tol <- 0.1       # nats; the search is no rougher than this, whatever `tol` is
start_range <- 2                # first points are uniform in (-2, 2), as in Stan
start_halvings <- 8L            # a first point outside the domain is moved half way to the origin so often
start_retries <- 100            # further first points for each start, as in Stan, if all are outside the domain
widest_inward <- 2000           # parameters for which edges of the support are looked for, and room from a point at one
descent_steps <- 150L           # quasi-Newton steps of a descent
path_candidates <- 5L           # points of a descent at which a Laplace approximation is tried
descent_candidates <- 3L        # candidates from all descents that are improved by natural gradient steps
candidate_draws <- 16L          # draws by which candidates are compared
given_draws <- 32L              # draws by which a gaussian that the user gave is evaluated
isotropic_sds <- 10^-(0:4 / 2)  # standard deviations of the round gaussians about first points
distant_sds <- 10               # distance of the last starts from the best end, to find modes that no first point is near
distant_pairs <- 2L             # opposite pairs of them
distinct_sds <- 2               # means so many standard deviations apart belong to different optima
same_optimum_nats <- 0.5        # a divergence below which two ends are at the same optimum
rival_nats <- log(100)          # ends further behind the best would have less than a hundredth of its weight in a mixture
widest_plausible <- 1e8         # a gaussian further away, or wider, is checked for a density that falls without bound
hessian_step <- 1e-5            # relative step of the differences of gradients
flattest_curvature <- 1e-6      # smallest eigenvalue of a Laplace approximation's Hessian, relative to the largest

search_budget <- function(dim) 6000 + 100 * dim               # points for one end
first_share <- 1 / 8                                          # of the budget, for a first improvement of each candidate
rival_share <- 1 / 2                                          # of the budget, for each rival
search_tol <- function(tol, dim) max(tol, 0.01 * dim)         # nats; first improvements are rough, the run does the rest
final_tol <- function(tol) tol / 4                            # nats; the last improvement of an end

# ---- points where the target fails ---------------------------------------------------------------------------

fallback_nats <- 10             # the gaussian that replaces the target there is raised by this

# ---- natural gradient steps ----------------------------------------------------------------------------------

first_batch <- function(dim) 2 * ceiling(max(16, dim + 10) / 2)   # draws, an even number
largest_batch <- 4096           # draws
batches_left <- 8               # a batch grows to at most this fraction of the remaining budget
outside_nats <- 10              # a pair of draws outside the domain counts as the worst of the batch plus so much
moment_ridge <- 0.1             # keeps directions as they are that a batch does not determine
gap_parts <- 8L                 # parts of a batch whose products estimate the gap without bias
least_trust <- 0.05             # smallest share of signal that a step assumes in its batch
first_step_size <- 0.5          # of a full natural gradient step
step_growth <- 1.5              # after a step that was kept; a rejected one is halved
least_precision <- 0.5          # a step doubles a variance at most ...
most_precision <- 10            # ... and divides it by ten at most
longest_sds <- 2                # a step moves the mean by at most so many standard deviations in any direction
most_rejected <- 6              # rejected steps in a row end a descent
steps_before_leap <- 3          # steps that are kept before their map is tried again as a whole
overtime <- 4                   # budgets that a descent may use while it still improves
progress_steps <- 5L            # steps over which improvement is measured
progress_nats <- 1              # improvement in them that counts
hopeless_nats <- 1000           # behind the best by more, a descent gets no overtime
catch_up_rounds <- 3            # behind the best by less, it must be able to catch up in so many times these steps
no_worse_nats <- 0.01           # differences of objectives below this do not count
noisy_factor <- 3               # a standard error so many times the last one's (and above 1 nat) says nothing

# ---- escape from the neck of a funnel

funnel_widening <- 8            # an end is widened by this factor and improved again
funnel_rounds <- 10L            # at most so often
funnel_moved_sds <- 1           # it went elsewhere if its mean moved by more
funnel_in_vain <- 2             # rounds without improvement that end it
funnel_parts <- 3               # a round gets the budget divided by this
funnel_budgets <- 3             # budgets for all rounds

# ---- many dimensions -----------------------------------------------------------------------------------------

widest_full <- 1000             # parameters; beyond, a full precision takes too many gradients
widest_detected <- 20000        # parameters; finding the pattern of the Hessian takes a gradient for each
most_pattern_entries <- 2e7     # entries of a pattern
wide_batch <- 16                # draws of a batch
hessians_per_step <- 16         # gradients, at most, for each opposite pair of Hessians in a step
averaged_steps <- 25            # steps of size 1/k, again with larger batches while the gap is too large
wide_parts <- 8L                # independent batches that estimate the gap
gap_probes <- 4L                # random directions for its part in the precision
path_memory <- 10L              # moves that a quasi-Newton path remembers
cheap_colours <- 9              # gradients for a Hessian by differences, up to which these are preferred to the Hessian itself
most_curvature_change <- 0.4    # of the logarithm of others' curvature over two units of a parameter, from which it is a hyperparameter
most_hyper <- 12                # hyperparameters of a target that is a function
integrated_draws <- 16          # stratified draws of the best gaussian given hyperparameters
wide_tol <- function(dim) max(0.01, 5e-4 * dim)   # nats, if no `tol` is given: means within some 0.03 standard deviations
wide_chains <- 32L              # chains that check a fit in many dimensions, in blocks of as many points
chain_warmup <- 12L             # iterations that adapt their step and leave the approximation
chain_kept <- 64L               # iterations that are looked at, every second one
chain_kept_most <- 256L         # iterations that are looked at where these leave standard deviations uncertain ...
most_leaps <- 64L               # leapfrog steps of an iteration, for chains whose moves are all rejected
most_sd_noise <- 0.12           # ... by more than this, relative: heavy tails
wide_distinct_sds <- 4          # means so many standard deviations apart are different places in many dimensions
chain_errors <- 2               # discrepancies beyond so many times their noise show the chains in place of the approximation
chain_reach <- 2                # a discrepancy so many times as large as a verdict allows is too far for short chains to correct
most_drift <- 0.4               # standard deviations by which the second half of the chains may be away from the first

# ---- the verdict ---------------------------------------------------------------------------------------------

most_shift <- 0.3               # standard deviations by which importance weights may move a mean
most_ratio <- 1.5               # factor by which they may change a standard deviation
fewest_effective <- 400         # effective draws, as many as R-hat and quantiles need (Vehtari et al. 2021)
fewest_adapted <- 0.2           # share of effective draws from which weights confirm an approximation or a mixture
nearly_equal <- 0.5             # share of effective draws from which weights count as nearly equal
clear_shift <- most_shift / 3   # shifts and ratios below these need no more draws
clear_ratio <- 1.2
clear_errors <- 0.5             # standard errors by which k-hat must then be below its limit
fewest_confirmed <- 5           # parameters from which chains may confirm what thin weights say
most_spread <- 1.2              # R-hat over starts above which they are not asked
edge_reach <- 2.5               # standard deviations from the mean at which an edge of the support is looked for
most_missing <- 0.01            # share of the target, or of the draws, that may be outside the support or the domain
loose_log_sd <- 1               # a logarithm with a larger standard deviation may go to minus infinity
k_block <- 10000                # draws for one k-hat, which depends on their number
k_blocks <- 4L                  # blocks of them at most
k_good <- 0.5                   # below: importance sampling has finite variance
k_usable <- 0.7                 # above: importance sampling fails (Vehtari et al. 2024); a banana with half its sd unseen has 0.75
k_useless <- 1                  # above: the weights have no mean
fewest_k_draws <- 500           # draws for a k-hat in many dimensions ...
wide_k_draws <- 2000            # ... of any model that is wide, and at least if there are very many rows
k_row_values <- 1e9             # values of single rows in a block
check_numbers <- 4e6            # numbers in a block of draws, 32 MB
check_numbers_all <- 2e7        # and in all blocks, if there was no search

# ---- profiles along parameters that set the scale of others -------------------------------------------------------

most_necks    <- 2L             # parameters that are followed
neck_reach    <- 1.5            # standard deviations between which the change of curvature is looked at
least_scale_change <- 1         # of the logarithm of the curvature's trace, from which a parameter sets the scale of others
neck_step    <- 0.8             # standard deviations to the first value, ...
neck_growth    <- 1.15          # ... by which factor the next steps grow, ...
neck_nodes    <- 12L            # ... and how many there are at most, in each direction
neck_nats    <- 10              # below the top of the marginal density, where following it ends
neck_others <- 6                # standard deviations by which the modes of the others may move meanwhile
unseen_share <- 0.6             # of the limits of a verdict: a profile that disagrees by so much asks for a mixture

# ---- the mixture adapted to the target -------------------------------------------------------------------------

widest_adapted <- 150           # parameters; the covariances of several components need too many draws beyond
most_rounds <- 15L              # rounds of population Monte Carlo at most ...
fewest_rounds <- 8              # ... and at least, whatever the fit has cost
rounds_together <- 3L           # good rounds that end it, and whose mixtures are joined
rounds_pooled <- 4L             # last rounds to whose draws a mixture is fitted
rounds_to_settle <- 3L          # more rounds than these before a mixture counts
settled_share <- 0.4            # share of effective draws of a good round
stalled_rounds <- 5L            # more rounds than these before it can be given up
stalled_growth <- 1.1           # growth of the share over the last three rounds below which it is
most_parts <- 6L                # components of a mixture
wide_share <- 0.1               # weight of the wide component, for what the others have missed
ends_share <- 0.1               # weight of the ends of other starts, so that no round forgets them
adapted_df <- function(dim) max(7, dim / 2)         # heavier tails than the target's bound the weights
draws_to_adapt <- function(dim) max(5000, 40 * dim) # of one round
enough_to_adapt <- function(x) min(ncol(x) / 4, max(1000, 20 * nrow(x)))   # effective draws that a mixture is fitted to
wide_by <- function(dim) min(4, max(1.5, 20^(1 / dim)))   # leaves a twentieth of the wide draws where the others are
fitted_points <- function(dim) 2000 + 20 * dim      # points that a mixture is fitted to
points_per_part <- 10           # effective draws per parameter that a component needs
mixture_steps <- 4L             # of expectation maximisation
fewest_to_bend <- 100           # effective draws below which a component is an ellipse
significant_errors <- 3         # standard errors below which a coefficient is set to 0
bend_tail <- 0.005              # probability on either side beyond which a bend has no points to follow
bend_margin <- 0.25             # of the range between them, over which it continues
spread_step <- 0.5              # largest Newton step of the logarithm of a scale
most_explained <- 0.99          # share of variance that a bend may explain when directions are compared

# ---- random streams ------------------------------------------------------------------------------------------

# A draw depends on its key, the number of its iteration and its place in the batch (src/rng.c). A run and the search before
# it count iterations from 0; whatever must not see the same draws begins at a number of its own. Streams are 2^40 apart or
# more, which no count reaches.
streams <- c(
  gap = 2^40,         # gradients that estimate the remaining gap: 16 for each iteration that was judged
  support = 2^41,     # draws of a wider law that estimate the share outside a bounded support
  verdict = 2^42,     # draws of the verdict, one iteration per block
  component = 2^43,   # added to another iteration: to which component of a mixture each of its draws belongs
  adapt = 2^44,       # rounds of population Monte Carlo
  distant = 2^45,     # directions of the distant candidates
  chains = 2^46)      # chains that check a fit in many dimensions

# Other keys made from the key of a run: for draws that compare two of its iterates, for the draws that users see, and for chains.
key_offsets <- c(compare = 1, posterior = 2, polish = 3)

derived_key <- function(key, use) (key + key_offsets[[use]]) %% 2^32
