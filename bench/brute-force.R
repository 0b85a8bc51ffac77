# The exact posterior of a regression by importance sampling, in plain R: nothing here is elvi's but the priors and the formulas.
#
# A problem is a list: formula, data, family, and
#   loss      function(y, eta, aux): log likelihood of each row at each draw; eta is a list of matrices (rows x draws), one for each
#             predictor, aux a list of vectors (one number per draw)
#   y         what loss() takes: a vector, or a data frame with a row for each row
#   designs   model matrices, one for each predictor
#   aux       named list of functions of (value): log prior densities of positive parameters, whose logarithms are drawn
#   group     a factor whose effects are part of the first predictor, with an exponential(1) prior of their sd
#   crossed   instead, a list of such factors: their effects over their sds are drawn with the rest
#   offset    of the first predictor
#   prior     function(b), the log prior density of the coefficients of centred columns at the columns of b, where it is not normal
#   extra     further arguments of elvi()

hermite <- function(n) {
  i <- seq_len(n - 1)
  J <- matrix(0, n, n)
  J[cbind(i, i + 1)] <- J[cbind(i + 1, i)] <- sqrt(i)
  e <- eigen(J, symmetric = TRUE)
  list(x = e$values, w = e$vectors[1, ]^2)
}

log_row_sums <- function(m) {
  top <- do.call(pmax, as.data.frame(m))
  top + log(rowSums(exp(m - top)))
}

# ---- the log posterior at the columns of x: coefficients in the user's coordinates, logarithms of aux, logarithm of a group's sd -----

brute_target <- function(fit, p, rule = hermite(41)) {
  prior <- fit$priors$joint
  sizes <- vapply(p$designs, ncol, 0L)
  place <- split(seq_len(sum(sizes)), rep(seq_along(sizes), sizes))
  d <- sum(sizes)
  m <- length(p$aux)
  rows <- if (is.null(p$group)) NULL else split(seq_along(p$group), p$group)
  # the prior is of the intercepts of centred columns
  centred <- function(x) {
    for (k in seq_along(place)) {
      b <- place[[k]]
      x[b[1], ] <- x[b[1], ] + drop(c(0, colMeans(p$designs[[k]])[-1]) %*% x[b, , drop = FALSE])
    }
    x
  }
  # the rows of x that hold the effects of each of the crossed factors, over the sds, whose logarithms come first
  levels <- vapply(p$crossed, nlevels, 0L)
  sds <- d + m + seq_along(levels)
  standard <- split(d + m + length(levels) + seq_len(sum(levels)), rep(seq_along(levels), levels))
  predictors <- function(x) {
    out <- Map(function(X, b) X %*% x[b, , drop = FALSE], p$designs, place)
    if (!is.null(p$offset)) out[[1]] <- out[[1]] + p$offset
    for (k in seq_along(levels)) {
      out[[1]] <- out[[1]] + (rep(exp(x[sds[k], ]), each = levels[k]) * x[standard[[k]], , drop = FALSE])[as.integer(p$crossed[[k]]), ]
    }
    out
  }
  auxiliary <- function(x) stats::setNames(lapply(seq_len(m), function(j) exp(x[d + j, ])), names(p$aux))
  part_of_y <- function(r) if (is.data.frame(p$y)) p$y[r, , drop = FALSE] else p$y[r]
  # draws x values u of the effect, times their density, added over the rows of a group
  group_loss <- function(r, eta, aux, u) {
    vapply(seq_len(ncol(u)), function(i) {
      own <- lapply(eta, function(e) e[r, , drop = FALSE])
      own[[1]] <- own[[1]] + rep(u[, i], each = length(r))
      colSums(p$loss(part_of_y(r), own, aux))
    }, numeric(nrow(u)))
  }
  without_effect <- function(r, eta, aux, sd) {
    if (!length(r)) return(numeric(length(sd)))
    log_row_sums(group_loss(r, eta, aux, outer(sd, rule$x)) + rep(log(rule$w), each = length(sd)))
  }
  log_priors <- function(x) {
    b <- centred(x[seq_len(d), , drop = FALSE])
    out <- if (is.null(p$prior)) colSums(stats::dnorm(b, rep_len(prior$location, d), prior$scale, log = TRUE)) else p$prior(b)
    for (j in seq_len(m)) out <- out + p$aux[[j]](exp(x[d + j, ])) + x[d + j, ]
    for (j in if (is.null(rows)) sds else d + m + 1) out <- out + stats::dexp(exp(x[j, ]), 1, log = TRUE) + x[j, ]
    for (at in standard) out <- out + colSums(stats::dnorm(x[at, , drop = FALSE], log = TRUE))
    out
  }
  density <- function(x) {
    eta <- predictors(x)
    aux <- auxiliary(x)
    loss <- if (is.null(rows)) {
      colSums(p$loss(p$y, eta, aux))
    } else {
      Reduce(`+`, lapply(rows, without_effect, eta, aux, exp(x[d + m + 1, ])))
    }
    out <- log_priors(x) + loss
    replace(out, is.na(out), -Inf)
  }
  # exact draws of effects, draws x groups, given draws of the rest: the inverse of their distribution on a grid
  effects <- function(x, grid = seq(-6, 6, length.out = 121)) {
    sd <- exp(x[d + m + 1, ])
    eta <- predictors(x)
    aux <- auxiliary(x)
    n <- ncol(x)
    vapply(rows, function(r) {
      l <- group_loss(r, eta, aux, outer(sd, grid)) + rep(stats::dnorm(grid, log = TRUE), each = n)
      w <- exp(l - do.call(pmax, as.data.frame(l)))
      for (i in seq_len(ncol(w))[-1]) w[, i] <- w[, i] + w[, i - 1]
      u <- stats::runif(n) * w[, ncol(w)]
      k <- pmax(rowSums(w < u), 1)
      below <- w[cbind(seq_len(n), k)]
      sd * (grid[k] + (grid[2] - grid[1]) * (0.5 + pmin(pmax((u - below) / (w[cbind(seq_len(n), k + 1)] - below), 0), 1)))
    }, numeric(n))
  }
  # log densities of rows given all others, effects integrated out
  held_out <- function(x) {
    sd <- exp(x[d + m + 1, ])
    eta <- predictors(x)
    aux <- auxiliary(x)
    out <- numeric(nrow(p$designs[[1]]))
    for (r in rows) {
      full <- without_effect(r, eta, aux, sd)
      for (i in r) out[i] <- -log(mean(exp(without_effect(setdiff(r, i), eta, aux, sd) - full)))
    }
    out
  }
  list(density = density, effects = effects, held_out = held_out, predictors = predictors, auxiliary = auxiliary, coefficients = d,
       dim = d + m + (!is.null(rows)) + length(levels) + sum(levels))
}

# ---- importance sampling with a mixture of student distributions, fitted in rounds -----------------------------------------------------

brute_force <- function(target, mean, V, enough = 1e5, df = 5, parts = 8, rounds = 4, block = 2e4, most = 3e6) {
  d <- length(mean)
  proposal <- list(list(mean = mean, L = t(chol(1.5 * V)), weight = 1))
  log_density <- function(x, q) {
    each <- vapply(q, function(one) {
      r2 <- colSums(forwardsolve(one$L, x - one$mean)^2)
      log(one$weight) - sum(log(diag(one$L))) - (df + d) / 2 * log1p(r2 / df)
    }, numeric(ncol(x)))
    log_row_sums(matrix(each, ncol(x)))
  }
  sample_block <- function(n, q) {
    of <- sample.int(length(q), n, TRUE, vapply(q, `[[`, 0, "weight"))
    x <- matrix(0, d, n)
    for (k in unique(of)) {
      at <- which(of == k)
      z <- matrix(stats::rnorm(d * length(at)), d) * rep(sqrt(df / stats::rchisq(length(at), df)), each = d)
      x[, at] <- q[[k]]$mean + q[[k]]$L %*% z
    }
    list(x = x, log_w = target(x) - log_density(x, q))
  }
  for (round in seq_len(rounds)) {
    drawn <- list()
    repeat {
      drawn <- c(drawn, list(sample_block(if (round < rounds) 4000 * (1 + (round > 1)) else block, proposal)))
      log_w <- unlist(lapply(drawn, `[[`, "log_w"))
      w <- exp(log_w - max(log_w))
      w <- w / sum(w)
      if (round < rounds || 1 / sum(w^2) > enough || length(w) >= most) break
    }
    x <- do.call(cbind, lapply(drawn, `[[`, "x"))
    if (round == rounds) break
    chosen <- x[, sample.int(ncol(x), 4000, TRUE, w), drop = FALSE]
    V <- stats::cov(t(chosen)) + diag(1e-8, d)
    L <- t(chol(V))
    of <- stats::kmeans(t(forwardsolve(L, chosen)), min(parts, length(unique(chosen[1, ]))), iter.max = 30, nstart = 2)$cluster
    proposal <- lapply(unique(of), function(k) {
      at <- which(of == k)
      own <- if (length(at) > 4 * d) stats::cov(t(chosen[, at, drop = FALSE])) else 0
      list(mean = rowMeans(chosen[, at, drop = FALSE]), L = t(chol(1.2 * own + 0.15 * V)), weight = length(at) / ncol(chosen))
    })
  }
  list(x = x, w = w, effective = 1 / sum(w^2))
}

# means, sds and 95 % limits of the rows of x
weighted_truth <- function(x, w) {
  mean <- drop(x %*% w)
  limits <- apply(x, 1, function(v) {
    o <- order(v)
    stats::approx(cumsum(w[o]), v[o], c(0.025, 0.975), rule = 2, ties = "ordered")$y
  })
  list(mean = mean, sd = sqrt(drop((x - mean)^2 %*% w)), limits = t(limits))
}

# of a table with columns mean, sd and two limits: the largest error in sds, and ratios of sds
errors <- function(mean, sd, limits, truth) {
  c(mean = max(abs(mean - truth$mean) / truth$sd), sd_low = min(sd / truth$sd), sd_high = max(sd / truth$sd),
    limit = max(abs(limits - truth$limits) / truth$sd))
}
