# Many hyperparameters: points, CPU time against lmer and gam, and error against the same rule with ten times the points and against
# another rule. Rscript bench/terms.R [model ...]; all but `twenty` take a few minutes. Rscript bench/terms.R latent: other terms.

suppressMessages(library(elvi))

smooth_data <- function(n, p) {   # as mgcv::gamSim(1) does, with more covariates
  set.seed(1)
  x <- matrix(runif(n * p), n, dimnames = list(NULL, paste0("x", seq_len(p) - 1L)))
  f <- 2 * sin(pi * x[, 1]) + exp(2 * x[, 2]) + 0.2 * x[, 3]^11 * (10 * (1 - x[, 3]))^6 + 10 * (10 * x[, 3])^3 * (1 - x[, 3])^10
  data.frame(y = f + 2 * rnorm(n), x)
}

crossed_data <- function(n, levels, sd, draw) {
  set.seed(1)
  d <- data.frame(lapply(levels, function(k) factor(sample(k, n, TRUE))))
  names(d) <- paste0("g", seq_along(levels))
  d$y <- draw(Reduce(`+`, Map(function(g, k, s) s * rnorm(k)[g], d, levels, sd)))
  d
}

slope_data <- function(groups = 60, size = 20) {
  set.seed(1)
  g <- factor(rep(seq_len(groups), each = size))
  x <- matrix(rnorm(groups * size * 3), ncol = 3, dimnames = list(NULL, c("x1", "x2", "x3")))
  u <- matrix(rnorm(groups * 4), groups) %*% chol(0.3 + 0.5 * diag(4)) * 0.7
  data.frame(y = rowSums(cbind(1, x) * u[g, ]) + x[, 1] + rnorm(groups * size), x, g = g)
}

formula_of <- function(terms) stats::as.formula(paste("y ~ 1 +", paste(terms, collapse = " + ")))
smooths <- function(p) formula_of(paste0("s(x", seq_len(p) - 1L, ")"))
groups <- function(p) formula_of(paste0("(1 | g", seq_len(p), ")"))
lmer <- function(formula, data) suppressMessages(suppressWarnings(lme4::lmer(formula, data)))
gam <- function(formula, data) mgcv::gam(formula, data = data, method = "REML")

models <- list(
  sleepstudy = list(Reaction ~ Days + (Days | Subject), function() lme4::sleepstudy, gaussian(), lmer),
  Oats = list(yield ~ nitro + (1 | Block) + (1 | Block:Variety),
              function() transform(nlme::Oats, Block = factor(Block, ordered = FALSE)), gaussian(), lmer),
  smooths4 = list(smooths(4), function() smooth_data(400, 4), gaussian(), gam),
  smooths8 = list(smooths(8), function() smooth_data(400, 8), gaussian(), gam),
  slopes4 = list(y ~ x1 + x2 + x3 + (x1 + x2 + x3 | g), function() slope_data(), gaussian(), lmer),
  crossed6 = list(groups(6), function() crossed_data(150, rep(8, 6), c(0.5, 0.5, 0.5, 0, 0, 0), function(e) rpois(150, exp(0.5 + e))),
                  poisson(), function(formula, data) suppressMessages(lme4::glmer(formula, data, family = poisson()))),
  cbpp = list(cbind(incidence, size - incidence) ~ period + (1 | herd), function() lme4::cbpp, binomial(),
              function(formula, data) lme4::glmer(formula, data, family = binomial())),
  # models that the rule was not tuned on
  Penicillin = list(diameter ~ 1 + (1 | plate) + (1 | sample), function() lme4::Penicillin, gaussian(), lmer),
  Pastes = list(strength ~ 1 + (1 | batch) + (1 | batch:cask), function() lme4::Pastes, gaussian(), lmer),
  grouseticks = list(TICKS ~ YEAR + cHEIGHT + (1 | BROOD) + (1 | LOCATION) + (1 | INDEX),
                     function() transform(lme4::grouseticks, cHEIGHT = (HEIGHT - mean(HEIGHT)) / 100), poisson(),
                     function(formula, data) suppressWarnings(lme4::glmer(formula, data, family = poisson()))),
  crossed3 = list(groups(3), function() crossed_data(300, c(10, 15, 20), c(0.8, 0.4, 0), function(e) e + rnorm(300)), gaussian(), lmer),
  slopes2 = list(y ~ x1 + x2 + (x1 | g) + (0 + x2 | g), function() slope_data(30, 10), gaussian(), lmer),
  twenty = list(groups(19), function() crossed_data(800, 6 + 1:19, (1:19 %% 4) / 4, function(e) e + rnorm(800)), gaussian(), lmer))

cpu <- function(code) sum(system.time(code)[c("user.self", "sys.self")])

# the same rule with so many points
with_more_points <- function(points, code) {
  number <- elvi:::score_number
  rounds <- 2 * ceiling(points * c(0.05, 0.5))
  utils::assignInNamespace("score_number", function(setup, long) list(first = points, rounds = rounds, enough = 0), "elvi")
  on.exit(utils::assignInNamespace("score_number", number, "elvi"))
  code
}

# Another rule with more points: a lattice of up to four hyperparameters, a weighted sample of more
other_rule <- function(H) elvi_control(nodes = if (H <= 2L) 60 else if (H == 3L) 13 else if (H == 4L) 8 else 40)

difference <- function(fit, other) {
  here <- elvi:::posterior_moments(fit$posterior)
  there <- elvi:::posterior_moments(other$posterior)
  at <- elvi:::hyper_moments(fit$posterior$hyper, fit$posterior$weight)
  to <- elvi:::hyper_moments(other$posterior$hyper, other$posterior$weight)
  c(max(abs(here$mean - there$mean) / there$sd, abs(at$mean - to$mean) / to$sd),
    100 * max(abs(here$sd / there$sd - 1), abs(at$sd / to$sd - 1)))
}

row_of <- function(name) {
  model <- models[[name]]
  data <- model[[2L]]()
  fit <- function(...) suppressWarnings(elvi(model[[1L]], data, family = model[[3L]], ...))
  small <- fit()
  theirs <- model[[4L]](model[[1L]], data)
  times <- replicate(if (name == "twenty") 1L else 5L, c(cpu(fit()), cpu(model[[4L]](model[[1L]], data))))
  K <- length(small$posterior$weight)
  H <- ncol(small$posterior$hyper$theta)
  change <- unlist(small$nested$change) * c(1, 100)
  cat(sprintf("%-11s %2d hyperparameters %4d points %5.2f s CPU, %4.1f x; error reported %.3f sd, %.1f %%\n", name, H, K,
              stats::median(times[1L, ]), stats::median(times[1L, ]) / stats::median(times[2L, ]), change[1L], change[2L]))
  if (small$posterior$hyper$rule == "scores") {
    large <- with_more_points(10 * K, fit())
    off <- difference(small, large)
    own <- unlist(large$nested$change) * c(1, 100)
    cat(sprintf("            against %5d points of the same rule: means %.3f sd, sds %.1f %% (its own error %.3f sd, %.1f %%)\n",
                length(large$posterior$weight), off[1L], off[2L], own[1L], own[2L]))
  }
  if (name == "twenty") return(invisible())
  other <- fit(control = other_rule(H))
  off <- difference(small, other)
  own <- unlist(other$nested$change) * c(1, 100)
  cat(sprintf("            against %5d points of the %s rule: means %.3f sd, sds %.1f %% (its own error %.3f sd, %.1f %%)\n",
              length(other$posterior$weight), other$posterior$hyper$rule, off[1L], off[2L], own[1L], own[2L]))
}

# ---- latent terms: accuracy and time --------------------------------------------------------------------------------
# Rscript bench/terms.R latent: against a brute-force grid over the hyperparameters, against glmmTMB and mgcv, and at scale.

grid_moments <- function(fit, low, high, points) {
  setup <- elvi:::nested_setup(fit$problem, base_gaussian())
  grid <- as.matrix(expand.grid(Map(function(a, b) seq(a, b, length.out = points), low, high)))
  found <- elvi:::evidence_at(setup, lapply(seq_len(nrow(grid)), function(i) grid[i, ]))
  w <- elvi:::normalised(vapply(found, `[[`, 0, "value"))
  nodes <- lapply(found, elvi:::conditional_node, setup)
  each <- function(field) vapply(nodes, `[[`, nodes[[1L]]$mu, field)
  mean <- drop(each("mu") %*% w)
  list(mean = mean, sd = sqrt(drop((each("sd")^2 + each("mu")^2) %*% w) - mean^2))
}

# all but the intercept, which is shown for predictors that are not centred
against_grid <- function(name, fit, low, high, points = 40) {
  exact <- grid_moments(fit, low, high, points)
  here <- elvi:::posterior_moments(fit$posterior)
  at <- seq_along(exact$mean)[-1L]
  cat(sprintf("%-22s means within %.3f sd, sds within %.1f %% of a grid of %d points\n", name,
              max(abs(here$mean[at] - exact$mean[at]) / exact$sd[at]), 100 * max(abs(here$sd[at] / exact$sd[at] - 1)), points^length(low)))
}

lattice <- function(rows, columns) {
  n <- rows * columns
  i <- seq_len(n)
  down <- i[i %% rows != 0L]
  right <- i[i <= n - rows]
  Matrix::sparseMatrix(i = c(down, down + 1L, right, right + rows), j = c(down + 1L, down, right + rows, right), x = 1, dims = c(n, n))
}

series <- function(n) {
  set.seed(1)
  u <- as.numeric(stats::arima.sim(list(ar = 0.9), n)) * 0.3
  data.frame(t = seq_len(n), ft = factor(seq_len(n)), one = factor(1), y = 1 + u + rnorm(n, 0, 0.5))
}

map <- function(rows, columns) {
  set.seed(1)
  n <- rows * columns
  at <- expand.grid(i = seq_len(rows), j = seq_len(columns))
  d <- data.frame(area = factor(seq_len(n)), i = at$i, j = at$j, expected = runif(n, 2, 20))
  d$cases <- rpois(n, d$expected * exp(0.3 * sin(at$i / 3) * cos(at$j / 3) + rnorm(n, 0, 0.1)))
  d
}

herd <- function(generations, size, sires, dams) {
  set.seed(1)
  n <- generations * size
  mother <- father <- rep(NA_integer_, n)
  value <- rnorm(n)
  for (g in seq_len(generations)[-1L]) {
    before <- (g - 2L) * size + seq_len(size)
    males <- sample(before, sires)
    now <- (g - 1L) * size + seq_len(size)
    mother[now] <- sample(sample(setdiff(before, males), dams), size, TRUE)
    father[now] <- sample(males, size, TRUE)
    value[now] <- (value[mother[now]] + value[father[now]]) / 2 + rnorm(size, 0, sqrt(0.5))
  }
  d <- data.frame(id = seq_len(n), mother, father, x = rnorm(n))
  d$y <- 1 + 0.3 * d$x + 0.7 * value + rnorm(n)
  d
}

megabytes <- function(code) {
  gc(reset = TRUE)
  seconds <- cpu(code)
  c(seconds, sum(gc()[, 6L]))
}

say_scale <- function(name, used) cat(sprintf("%-22s %6.1f s CPU, %5.0f MB at most\n", name, used[1L], used[2L]))

latent <- function() {
  d <- series(150)
  against_grid("ar1, known sigma", elvi(y ~ ar1(t), d, dispersion = 0.25), c(-5, -2), c(1, 5))
  W <- lattice(12, 10)
  m <- map(12, 10)
  icar <- elvi(cases ~ icar(area, W) + offset(log(expected)), m, family = poisson(), correct = FALSE)
  against_grid("icar, poisson", icar, -5, 1, 60)
  bym2 <- elvi(cases ~ bym2(area, W) + offset(log(expected)), m, family = poisson(), correct = FALSE)
  against_grid("bym2, poisson", bym2, c(-5, -6), c(1, 7), 25)
  if (requireNamespace("glmmTMB", quietly = TRUE)) {
    d <- series(1000)
    ours <- cpu(elvi(y ~ ar1(t), d))
    theirs <- cpu(suppressWarnings(glmmTMB::glmmTMB(y ~ 1 + ar1(0 + ft | one), d)))
    cat(sprintf("%-22s %.1f s CPU, %.2f x glmmTMB\n", "ar1, 1,000 times", ours, ours / theirs))
  }
  neighbours <- stats::setNames(lapply(seq_len(120), function(i) which(W[i, ] > 0)), seq_len(120))
  theirs <- cpu(mgcv::gam(cases ~ s(area, bs = "mrf", xt = list(nb = neighbours)) + offset(log(expected)), poisson, m, method = "REML"))
  ours <- cpu(elvi(cases ~ icar(area, W) + offset(log(expected)), m, family = poisson()))
  cat(sprintf("%-22s %.1f s CPU, %.2f x mgcv's mrf\n", "icar, 120 areas", ours, ours / theirs))
  theirs <- cpu(mgcv::gam(cases ~ s(i, j, bs = "gp", k = 100) + offset(log(expected)), poisson, m, method = "REML"))
  ours <- cpu(elvi(cases ~ hsgp(i, j, k = 10) + offset(log(expected)), m, family = poisson()))
  cat(sprintf("%-22s %.1f s CPU, %.2f x mgcv's gp\n", "hsgp, 100 functions", ours, ours / theirs))
  set.seed(2)
  s <- data.frame(x = runif(1000), z = 10 * runif(1000))
  s$y <- sin(4 * s$x) * s$z / 5 + rnorm(1000)
  theirs <- cpu(gam(y ~ te(x, z), s))
  ours <- cpu(elvi(y ~ te(x, z), s))
  cat(sprintf("%-22s %.1f s CPU, %.2f x mgcv's te\n", "te, 1,000 rows", ours, ours / theirs))
  if (requireNamespace("sf", quietly = TRUE) && requireNamespace("spdep", quietly = TRUE)) {   # deaths by county, North Carolina
    counties <- sf::st_read(system.file("shape/nc.shp", package = "sf"), quiet = TRUE)
    sids <- data.frame(NAME = counties$NAME, cases = counties$SID74, births = counties$BIR74)
    say_scale("bym2, 100 counties", megabytes(elvi(cases ~ bym2(NAME, counties) + offset(log(births)), sids, family = poisson())))
    if (requireNamespace("spaMM", quietly = TRUE)) {
      graph <- as.matrix(spdep::nb2mat(spdep::poly2nb(counties), style = "B"))
      dimnames(graph) <- list(counties$NAME, counties$NAME)
      theirs <- cpu(spaMM::fitme(cases ~ 1 + adjacency(1 | NAME) + offset(log(births)), sids, poisson(), adjMatrix = graph))
      ours <- cpu(elvi(cases ~ icar(NAME, counties) + offset(log(births)), sids, family = poisson()))
      cat(sprintf("%-22s %.1f s CPU, %.2f x spaMM's adjacency\n", "icar, 100 counties", ours, ours / theirs))
    }
  }
  long <- series(1e5)
  say_scale("ar1, 1e5 times, whole", megabytes(fit <- elvi(y ~ ar1(t), long)))
  say_scale("its predict(), with se", megabytes(predict(fit, long, se.fit = TRUE)))
  say_scale("ar1, 1e5 times, mode", megabytes(elvi(y ~ ar1(t), series(1e5), control = elvi_control(nodes = 1))))
  W <- lattice(50, 40)
  m <- map(50, 40)
  say_scale("icar, 2,000 areas", megabytes(elvi(cases ~ icar(area, W) + offset(log(expected)), m, family = poisson())))
  say_scale("bym2, 2,000 areas", megabytes(elvi(cases ~ bym2(area, W) + offset(log(expected)), m, family = poisson())))
  h <- herd(10, 500, 20, 200)
  say_scale("pedigree_precision()", megabytes(Q <- pedigree_precision(h$id, h$mother, h$father)))
  say_scale("gr, pedigree of 5,000", megabytes(elvi(y ~ x + (1 | gr(id, precision = Q)), h)))
}

asked <- commandArgs(TRUE)
for (name in if (length(asked)) asked else setdiff(names(models), "twenty")) if (name == "latent") latent() else row_of(name)
