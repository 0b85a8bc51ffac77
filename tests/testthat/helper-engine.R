# A second implementation of everything the C core does in a run, in plain R and
# as close to the equations of docs/internals.Rmd as it will go. Scales of all kinds are d x d matrices here;
# nothing below calls the code it checks, except for the draws and the kurtosis.

# the settings of the theory: raw coordinates, plain gradient, weighted average
raw_control <- function(..., estimator = "reparam", average = "theorem") {
  elvi_control(coordinates = "raw", ..., estimator = estimator, average = average)
}

raw_fit <- function(model, base = base_gaussian(), budget = 400, ..., schedule = schedule_fixed(budget), start = NULL) {
  elvi(model, base, schedule, start = start, control = raw_control(...))
}

# ---- targets ------------------------------------------------------------------

# f and its gradient at the columns of x
engine_target <- function(model) {
  if (model$kind == "affine") {
    inner <- engine_target(model$inner)
    A <- engine_full(model$A)
    return(list(
      value = function(w) inner$value(model$m + A %*% w) - determinant(A)$modulus[1L],
      gradient = function(w) crossprod(A, inner$gradient(model$m + A %*% w))
    ))
  }
  if (model$kind == "quadratic") {
    return(list(
      value = function(x) colSums((x - model$m) * (model$A %*% (x - model$m))) / 2,
      gradient = function(x) model$A %*% (x - model$m)
    ))
  }
  stopifnot(model$kind == "glm", model$likelihood == "logit")
  X <- model$rows$X
  list(
    value = function(x) {
      eta <- X %*% x + model$rows$offset
      colSums(model$rows$weight * (log1p(exp(eta)) - model$rows$y * eta)) +
        colSums(model$blocks$coefficients$precision * (x - model$blocks$coefficients$centre)^2) / 2
    },
    gradient = function(x) {
      eta <- X %*% x + model$rows$offset
      crossprod(X, model$rows$weight * (stats::plogis(eta) - model$rows$y)) + model$blocks$coefficients$precision * (x - model$blocks$coefficients$centre)
    }
  )
}

# (phi'/phi)(r) for each base
engine_score <- function(base, d) {
  switch(base$kind,
    gaussian = function(r) -r,
    laplace = function(r) rep(-sqrt(d + 1), length(r)),
    student = function(r) -(base$df + d) * r / (base$df - 2 + r^2),
    power = {
      s <- base$shape
      rate <- exp((lgamma((d + 2) / s) - lgamma(d / s) - log(d)) / 2)
      function(r) -s * rate * (rate * r)^(s - 1)
    })
}

engine_kurtosis <- function(base, d) law_of(base, d)$kurtosis

# ---- schedules ------------------------------------------------------------------

# steps, batches, preconditioner and weights of the theorem's average, from the
# tables of docs/internals.Rmd
engine_schedule <- function(schedule, d, kappa, L, precondition = NULL, kind = "symmetric") {
  plain <- c(mu = 1, Sigma = 1)
  shrunk <- c(mu = 1, Sigma = 1 / (2 * (d - 1 + kappa)))
  E <- schedule$budget
  if (schedule$kind == "tuned") {
    first <- ceiling(0.06 * (d + min(kappa, 9)))
    schedule <- list(kind = "power", budget = E, step = 0.2, step_power = 0, batch = min(first, E), batch_power = 1)
  }
  out <- if (schedule$kind == "fixed") {
    K <- switch(schedule$preset, case1 = max(1, round(sqrt(E / (d + kappa)))),
                case2 = max(1, round(sqrt(E))), E)
    N <- E %/% K
    step <- switch(schedule$preset, psgd = 1 / (2 * L * sqrt(d - 1 + kappa) * sqrt(E)),
                   psgd_scaled = 1 / (2 * L * sqrt(E)), 1 / (2 * L))
    a <- switch(schedule$preset, psgd = 4 * (d + kappa) * L^2, psgd_scaled = 4 * L^2)
    tau <- if (is.null(a)) K / (K + 1) else 1 / (1 + a * step^2)
    list(step = rep(step, K), batch = rep(N, K), weight = tau^seq_len(K),
         lambda = if (schedule$preset %in% c("case1", "psgd")) plain else shrunk)
  } else if (schedule$kind == "power") {
    k <- seq_len(E)   # no batch is below 1
    batch <- ceiling(schedule$batch * k^schedule$batch_power)
    k <- k[cumsum(batch) <= E]
    first <- if (is.null(schedule$step)) 1 / (2 * L) else schedule$step
    list(step = first * k^-schedule$step_power, batch = batch[k], lambda = plain)
  } else {
    list(step = schedule$step, batch = schedule$batch, lambda = plain)
  }
  if (!is.null(precondition)) out$lambda <- precondition
  if (is.null(out$weight)) {
    a <- engine_bg_a(d, kappa, L, out$lambda, kind)
    out$weight <- out$step / cumprod(1 + a * out$step^2 / out$batch)
  }
  out
}

# a = max_j lambda_j sum_i lambda_i a_ij of the block formula, i the block of the
# gradient and j that of the distance
engine_bg_a <- function(d, kappa, L, lambda, kind = "symmetric") {
  v <- kappa * (d + 2) / 3 + (kind == "triangular")
  block <- L^2 * rbind(mu = c(2, 2), Sigma = c(2 * d, 2 * v))
  max(lambda * colSums(lambda * block))
}

# the Hessian of f at the mode, in the coordinates of the run
engine_hessian <- function(model, work) {
  A <- engine_full(work$A)
  H <- if (model$kind == "quadratic") model$A else {
    X <- model$rows$X
    eta <- drop(X %*% work$m) + model$rows$offset
    crossprod(X, model$rows$weight * plogis(eta) * plogis(-eta) * X) + diag(model$blocks$coefficients$precision, model$dim)
  }
  crossprod(A, H %*% A)
}

# A bound on the curvature of f in the coordinates of the run.
engine_smoothness <- function(model, work, control) {
  A <- if (work$kind == "affine") engine_full(work$A) else diag(model$dim)
  if (work$kind == "affine" && !is.matrix(work$A)) A <- A %*% engine_root(engine_hessian(model, work))   # mu's own metric
  if (!is.null(control$smoothness)) return(control$smoothness * norm(A, "2")^2)
  H <- if (model$kind == "quadratic") model$A else
    crossprod(model$rows$X, model$rows$weight * model$rows$X) / 4 + diag(model$blocks$coefficients$precision, model$dim)
  max(eigen(crossprod(A, H %*% A), symmetric = TRUE)$values)
}

# ---- projections ------------------------------------------------------------------

# x restricted to the space a scale lives in
engine_restrict <- function(kind, x) {
  switch(kind, symmetric = (x + t(x)) / 2, triangular = x * lower.tri(x, diag = TRUE),
         diagonal = diag(diag(x), nrow(x)))
}

engine_project <- function(kind, M, lower, upper) {
  if (kind == "diagonal") return(diag(pmin(pmax(diag(M), lower), upper), nrow(M)))
  if (kind == "triangular") return(engine_project_triangular(M, lower, upper))
  e <- eigen(M, symmetric = TRUE)
  e$vectors %*% (pmin(pmax(e$values, lower), upper) * t(e$vectors))
}

# Dykstra's algorithm between {lower triangular, diagonal >= lower} and
# {largest singular value <= upper}, with both corrections kept whole
engine_project_triangular <- function(M, lower, upper, tol = 1e-15, sweeps = 1e5) {
  onto_triangle <- function(x) {
    x <- x * lower.tri(x, diag = TRUE)
    diag(x) <- pmax(diag(x), lower)
    x
  }
  onto_ball <- function(x) {
    s <- svd(x)
    s$u %*% (pmin(s$d, upper) * t(s$v))
  }
  x <- onto_triangle(M)
  if (!is.finite(upper) || svd(x)$d[1L] <= upper) return(x)
  p <- M - x
  q <- 0 * M
  for (i in seq_len(sweeps)) {
    y <- onto_ball(x + q)
    q <- x + q - y
    if (sqrt(sum((x - y)^2)) <= tol * sqrt(sum(y^2))) break
    x <- onto_triangle(y + p)
    p <- y + p - x
  }
  x
}

engine_ball <- function(mu, centre, radius) {
  away <- sqrt(sum((mu - centre)^2))
  if (away > radius) centre + (mu - centre) * radius / away else mu
}

engine_full <- function(scale) if (is.matrix(scale)) unname(scale) else diag(unname(scale), length(scale))

# ---- the loop -----------------------------------------------------------------------

# one estimate of the gradient, from explicit draws
engine_gradient <- function(model, base, kind, estimator, mu, S, z, entropy = TRUE, memory = c(0, 1)) {
  h <- engine_target(model)$gradient(mu + S %*% z)
  inverse <- t(solve(S))
  if (estimator == "control") {
    learnt <- engine_learn(memory, S, z, h)
    BS <- memory[1L] * S + memory[2L] * inverse
    h <- h - BS %*% z
    outer <- tcrossprod(h, z) / ncol(z) + BS - if (entropy) inverse else 0
    return(list(mu = rowMeans(h), scale = engine_restrict(kind, outer), memory = learnt))
  }
  if (estimator == "fixed") {
    h <- h - memory * (mu + S %*% z)
    outer <- tcrossprod(h, z) / ncol(z) + memory * S - if (entropy) inverse else 0
    return(list(mu = rowMeans(h) + memory * mu, scale = engine_restrict(kind, outer), memory = memory))
  }
  if (estimator == "path") {
    r <- sqrt(colSums(z^2))
    h <- h + inverse %*% (z * rep(engine_score(base, nrow(z))(r) / r, each = nrow(z)))
  }
  outer <- tcrossprod(h, z) / ncol(z)
  if (estimator == "reparam" && entropy) outer <- outer - inverse
  list(mu = rowMeans(h), scale = engine_restrict(kind, outer))
}

# The weights of the control estimator after a batch: least squares of grad f on S z and
# S^-T z, as lm() would have it, with ten more observations, those of the mean draw of
# either regressor on which the old weights are exact; the second stays in [0, 1]
engine_learn <- function(w, S, z, g) {
  d <- nrow(S)
  size2 <- sum(S^2)
  X <- cbind(c(S %*% z), c(t(solve(S)) %*% z))
  X <- rbind(X, sqrt(10 / d) * diag(c(sqrt(size2), d / sqrt(size2))))
  y <- c(g, X[nrow(X) - 1:0, ] %*% w)
  free <- qr.solve(X, y)
  w2 <- min(max(free[2L], 0), 1)
  c(qr.solve(X[, 1L, drop = FALSE], y - w2 * X[, 2L]), w2)
}

# What fit should be, from its settings and its seed alone, in the coordinates of
# the run.
engine_replay <- function(fit) {
  control <- fit$control
  kind <- control$scale
  d <- fit$model$dim
  model <- if (is.null(fit$work)) fit$model else fit$work
  L <- engine_smoothness(fit$model, model, control)
  law <- law_of(fit$base, d)
  plan <- engine_schedule(fit$schedule, d, law$kurtosis, L, control$precondition, control$scale)
  lambda <- plan$lambda
  K <- fit$state$k
  centre <- if (is.null(control$mu_centre)) numeric(d) else control$mu_centre
  lower <- if (is.null(control$scale_min)) 1 / sqrt(L) else control$scale_min
  mu <- fit$start$mu
  S <- engine_full(fit$start$scale)
  mus <- list(mu)
  scales <- list(S)
  map <- numeric(K)
  moved <- c(mu = 0, scale = 0)
  memory <- if (control$estimator == "fixed") relative_weight(control) * L else c(0, 1)
  # a mean field in whitened coordinates moves mu in the metric of the Hessian at the mode
  metric <- if (kind == "diagonal" && !is.null(fit$work)) engine_hessian(fit$model, model) else diag(d)
  for (k in seq_len(K)) {
    step <- plan$step[k]
    z <- draw_base(law, fit$seed, plan$batch[k], iteration = k - 1)
    g <- engine_gradient(model, fit$base, kind, control$estimator, mu, S, z,
                         entropy = control$update == "project", memory = memory)
    memory <- g$memory
    new_mu <- mu - step * lambda[["mu"]] * drop(solve(metric, g$mu))
    new_S <- S - step * lambda[["Sigma"]] * g$scale
    mu_in <- engine_ball(new_mu, centre, control$mu_radius)
    S_in <- if (control$update == "prox") {
      c0 <- diag(new_S)
      new_S - diag(c0, d) + diag((c0 + sqrt(c0^2 + 4 * step * lambda[["Sigma"]])) / 2, d)
    } else {
      engine_project(kind, new_S, lower, control$scale_max)
    }
    moved <- moved + c(max(abs(mu_in - new_mu)) > 1e-8, max(abs(S_in - new_S)) > 1e-8)
    map[k] <- sqrt(sum((mu - mu_in) * (metric %*% (mu - mu_in))) / lambda[["mu"]] + sum((S - S_in)^2) / lambda[["Sigma"]]) / step
    mu <- mu_in
    S <- S_in
    mus[[k + 1L]] <- mu
    scales[[k + 1L]] <- S
  }
  # iterates 0, ..., K and the weight of each in the average
  horizon <- length(plan$step)
  weight <- switch(control$average,
    theorem = c(plan$weight[seq_len(K)], 0),
    tail = as.numeric(seq(0, K) >= max(1, horizon - floor(control$tail * horizon) + 1)),
    last = c(rep(0, K), 1))
  if (control$average == "tail" && !any(weight > 0)) weight[K + 1L] <- 1
  weight <- weight / sum(weight)
  mix <- function(items) Reduce(`+`, Map(`*`, items, weight))
  list(mu = mu, scale = S, average_mu = mix(mus), average_scale = mix(scales), mus = mus,
       scales = scales, map = map, moved = moved, weight = weight, plan = plan)
}

# largest difference between a run and its replay, over the last iterate and the average
engine_distance <- function(fit, replay = engine_replay(fit)) {
  state <- fit$state
  max(abs(state$mu - replay$mu), abs(engine_full(state$scale) - replay$scale),
      abs(state$average_mu - replay$average_mu), abs(engine_full(state$average_scale) - replay$average_scale))
}

# ---- one gradient estimate from C ------------------------------------------------------

# state and settings as elvi() would make them, at any mu and scale
engine_probe <- function(model, base, control = raw_control(average = "last")) {
  schedule <- schedule_custom(0.1, 1, iterations = 1)
  d <- model$dim
  law <- law_of(base, d)
  plan <- plan_schedule(schedule, d, law$kurtosis, model$smoothness, control)
  feasible <- feasible_set(control, model, model$smoothness)
  fit <- list(given = c(list(model = model, base = base, schedule = schedule), split_control(control)),
              plan = c(plan, list(seed = c(7, 11), feasible = feasible)), result = list(cpu = 0))
  settings <- run_settings(fit, 1)
  settings$block <- 256
  function(mu, scale, batch = 1, k = 0, memory = numeric()) {
    state <- list(mu = as.double(mu), scale = scale, average_mu = as.double(mu), average_scale = scale,
                  k = as.double(k), evals = 0, alpha = 1, weight = 0, memory = as.double(memory),
                  shorten = 1, steepest = 1, checks = 0)
    .Call(elvi_r_gradient, model, law, settings, state, as.double(batch))
  }
}

# ---- small targets -----------------------------------------------------------------------

# condition number 9, off the axes, centre off the origin
engine_quadratic <- function(d, spread = c(0.5, 4.5)) {
  Q <- qr.Q(qr(matrix(sin(seq_len(d * d)^1.5), d)))
  A <- Q %*% (seq(spread[1L], spread[2L], length.out = d) * t(Q))
  model_quadratic((A + t(A)) / 2, m = cos(seq_len(d)))
}

engine_logistic <- function(d = 3, rows = 40) {
  X <- matrix(sin(seq_len(rows * d)^1.3), rows)
  y <- as.numeric(X %*% cos(seq_len(d)) + sin(7 * seq_len(rows)) > 0)
  model_glm(X, y, prior = normal(0.2, 1.5))
}

engine_root <- function(A) {
  e <- eigen(A, symmetric = TRUE)
  e$vectors %*% (1 / sqrt(e$values) * t(e$vectors))   # A^(-1/2)
}

# ---- other processes -----------------------------------------------------------------------

# Waits for a condition, and says whether it came to be within so many seconds.
wait_until <- function(condition, timeout = 60) {
  met <- substitute(condition)
  frame <- parent.frame()
  deadline <- Sys.time() + timeout
  while (!isTRUE(eval(met, frame))) {
    if (Sys.time() > deadline) return(FALSE)
    Sys.sleep(0.002)
  }
  TRUE
}

# Runs code in a new R with the elvi under test; returns what it saves as `out`.
# `env` is a character vector "NAME=value". `during` is called, while the process
# runs, with the process id, as soon as the code calls ready(); of a process that it
# kills (`killed`) nothing comes back.
in_new_r <- function(code, env = character(), during = NULL, killed = FALSE, timeout = 60) {
  dir <- tempfile("elvi-engine-")
  dir.create(dir)
  on.exit(unlink(dir, recursive = TRUE))
  file <- function(name) normalizePath(file.path(dir, name), winslash = "/", mustWork = FALSE)
  script <- c(
    sprintf(".libPaths(c(%s, .libPaths()))", deparse1(dirname(find.package("elvi")))),
    "library(elvi)",
    sprintf("ready <- function() { writeLines(format(Sys.getpid()), %s); file.rename(%s, %s) }",
            deparse(file("pid.new")), deparse(file("pid.new")), deparse(file("pid"))),
    code,
    sprintf("saveRDS(out, %s); file.create(%s)", deparse(file("out.rds")), deparse(file("done"))))
  writeLines(enc2utf8(script), file("script.R"), useBytes = TRUE)
  rscript <- file.path(R.home("bin"), "Rscript")
  set <- sub("=.*", "", env)
  keep <- Sys.getenv(c("R_TESTS", set), NA, names = TRUE)
  do.call(Sys.setenv, as.list(c(R_TESTS = "", setNames(sub("^[^=]*=", "", env), set))))
  on.exit({
    was_set <- keep[!is.na(keep)]
    if (length(was_set)) do.call(Sys.setenv, as.list(was_set))
    Sys.unsetenv(names(keep)[is.na(keep)])
  }, add = TRUE)
  system2(rscript, c("--vanilla", shQuote(file("script.R"))), stdout = file("log"),
          stderr = file("log"), wait = is.null(during))
  wait_for <- function(name) {
    if (!wait_until(file.exists(file(name)), timeout)) {
      stop("no '", name, "' from the other R:\n", paste(readLines(file("log")), collapse = "\n"))
    }
  }
  if (!is.null(during)) {
    wait_for("pid")
    pid <- as.integer(readLines(file("pid")))
    # a process that does not end by itself must not outlive the test
    on.exit(if (!file.exists(file("done"))) tools::pskill(pid, tools::SIGKILL), add = TRUE, after = FALSE)
    during(pid)
    if (killed) return(NULL)
    wait_for("done")
  } else if (!file.exists(file("done"))) {
    stop("the other R failed:\n", paste(readLines(file("log")), collapse = "\n"))
  }
  structure(list(out = readRDS(file("out.rds")), log = readLines(file("log"))))
}

# a fit without what depends on the clock and on how it was called
engine_bare <- function(fit) {
  fit$trace$cpu <- NULL
  fit$cpu <- NULL
  fit$call <- NULL
  fit
}
