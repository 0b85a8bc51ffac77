# A cheap stand-in for the density of the hyperparameters in normal scores (solve-scores.R): the logarithm of a normal density plus a
# polynomial in bounded coordinates, fitted to values and gradients at the points that were solved. Bounded, so that it does not run
# away where there are no points.

# list(reference, z, v, weight, ...): the normal distribution v = centre + root z that the polynomial is relative to, and a weighted
# sample of the surrogate in both coordinates. log_mass, of exp(surrogate - |z|^2 / 2), and log_total, of the density in v.
score_surrogate <- function(points, main, sample, rich) {
  reference <- list(centre = main$centre, root = main$root / main$wide)
  for (pass in 1:2) {
    shape <- fitted_surrogate(points, reference, sample, rich)
    moved <- moment_proposal(shape$z, shape$weight, wide = 1)
    if (max(abs(moved$centre), abs(diag(moved$root) - 1)) < 0.3) break
    reference <- list(centre = drop(reference$centre + reference$root %*% moved$centre),
                      root = covariance_root(crossprod(moved$root %*% reference$root)))
  }
  shape
}

# v in coordinates of a normal distribution
score_z <- function(v, reference) sweep(v, 2L, reference$centre) %*% solve(reference$root)

# rich: with products of coordinates where the data require them
fitted_surrogate <- function(points, reference, sample, rich) {
  H <- ncol(points$v)
  z <- score_z(points$v, reference)
  top <- max(points$log_density[points$usable])
  deficit <- pmax(top - points$log_density, 0)
  used <- which(points$usable & deficit < 20 + H & apply(abs(z), 1L, max) < 6)
  root <- exp(-pmax(deficit - H / 2, 0) / 12)[used]   # of the weight: points far out count less
  value <- points$log_density - top + rowSums(z^2) / 2
  y <- c(value[used], (points$slope %*% reference$root + z)[used, ]) * root
  z <- z[used, , drop = FALSE]
  part <- rep(points$part[used], H + 1L)
  shape <- c(list(reference = reference, top = top, log_scale = as.numeric(determinant(reference$root)$modulus), noise = 0.05^2,
                  powers = simple_powers(H)), sample)
  rows <- surrogate_rows(z, shape$powers) * root
  if (rich) {
    more <- product_powers(H)
    room <- min(nrow(more), max(220 - ncol(rows), 60), length(y) / 3 - ncol(rows))
    extra <- surrogate_rows(z, more, constant = FALSE) * root
    if (room < nrow(more)) {   # those that explain most of what the others leave
      sums <- surrogate_sums(rows, y, part)
      rest <- y - rows %*% surrogate_coefficients(shape, sums$all)
      gain <- drop(crossprod(extra, rest))^2 / (colSums(extra^2) + 1e-8)
      kept <- sort(order(gain, decreasing = TRUE)[seq_len(max(room, 0))])
      more <- more[kept, , drop = FALSE]
      extra <- extra[, kept, drop = FALSE]
    }
    shape$powers <- rbind(shape$powers, more)
    rows <- cbind(rows, extra)
  }
  shape$sums <- surrogate_sums(rows, y, part)
  for (again in 1:2) {   # the noise is what the polynomial leaves
    coefficients <- surrogate_coefficients(shape, shape$sums$all)
    shape$noise <- max(sum((y - rows %*% coefficients)^2) / (sum(root^2) * (H + 1)), 1e-6)
  }
  shape$v <- rep(reference$centre, each = nrow(shape$z)) + shape$z %*% reference$root
  shape$columns <- cbind(1, surrogate_features(shape$z, shape$powers))
  with_coefficients(shape, coefficients)
}

# squares and products of regression, of all rows and of each fourth of them
surrogate_sums <- function(rows, y, part) {
  parts <- lapply(-1:3, function(p) list(gram = crossprod(rows[part == p, , drop = FALSE]),
                                         right = crossprod(rows[part == p, , drop = FALSE], y[part == p])))
  total <- function(field) Reduce(`+`, lapply(parts, `[[`, field))
  list(all = list(gram = total("gram"), right = total("right")), parts = parts[-1L])
}

# the same surrogate where a fourth of the points counts by half
refit_shape <- function(shape, part) {
  sums <- Map(function(all, mine) all - mine / 2, shape$sums$all, shape$sums$parts[[part + 1L]])
  with_coefficients(shape, surrogate_coefficients(shape, sums))
}

# ridge regression; terms of a higher degree are expected to be smaller
surrogate_coefficients <- function(shape, sums) {
  scale <- c(100, c(1, 1, 0.3, 0.15)[rowSums(shape$powers)])[seq_len(nrow(sums$gram))]
  solve_symmetric(sums$gram + diag(shape$noise / scale^2), sums$right)
}

with_coefficients <- function(shape, coefficients) {
  shape$coefficients <- coefficients
  log_weight <- pmin(drop(shape$columns %*% coefficients), surrogate_limit(shape$z)) + shape$log_ratio
  shape$weight <- normalised(log_weight)
  shape$log_mass <- log_sum(log_weight) - log(length(log_weight))
  shape$log_total <- shape$top + shape$log_scale + shape$log_mass
  shape
}

surrogate_at <- function(shape, z) pmin(drop(cbind(1, surrogate_features(z, shape$powers)) %*% shape$coefficients), surrogate_limit(z))

# Products of coordinates can make a polynomial large where there are no points. In coordinates of its own moments a density is at most
# about as high as at its top, and falls off at least like a normal one of twice the sd.
surrogate_limit <- function(z, above = 0.5) above + 3 / 8 * rowSums(z^2)

# Points of the surrogate's quadrature, with the logarithm of exp(-|z|^2 / 2) by their density, and half of them that are a rule of
# their own. Up to six coordinates: a lattice, whose error falls with its step like exp(-20 / step^2) for densities near normal, cut
# where these have less than 0.1 percent of their variance. More: quasi-random points of a wider normal distribution, in pairs on
# either side.
surrogate_sample <- function(H, pairs = 4000L, wide = 1.15) {
  if (H > 6L) {
    half <- stats::qnorm(quasi_random(pairs, H))
    z <- wide * rbind(half, -half)
    return(list(z = z, log_ratio = H * (log(2 * pi) / 2 + log(wide)) - rowSums(z^2) / 2 * (1 - 1 / wide^2),
                half = rep_len(c(TRUE, FALSE), nrow(z))))
  }
  step <- c(0.8, 1, 1.1, 1.15, 1.25, 1.4)[H]
  place <- unname(as.matrix(expand.grid(rep(list(seq(-floor(4.7 / step), floor(4.7 / step))), H))))
  place <- place[rowSums(place^2) <= (4.7 / step)^2, , drop = FALSE]
  z <- step * place
  list(z = z, log_ratio = H * log(step) + log(nrow(z)) - rowSums(z^2) / 2, half = rowSums(place) %% 2 == 0)
}

# Quasi-random points of a normal distribution in the surrogate's coordinates, in pairs, with their weights under it.
surrogate_spread <- function(shape, pairs = 1000L) {
  half <- stats::qnorm(quasi_random(pairs, ncol(shape$z)))
  z <- rbind(half, -half)
  list(z = z, weight = normalised(surrogate_at(shape, z)))
}

# ---- the polynomial --------------------------------------------------------------------------------------------------

# Degrees of its terms in each coordinate, one term a row: all of degree 1 and 2, and powers up to 4
simple_powers <- function(H) {
  unit <- diag(H)
  pair <- which(lower.tri(unit), arr.ind = TRUE)
  rbind(unit, 2 * unit, unit[pair[, 1L], , drop = FALSE] + unit[pair[, 2L], , drop = FALSE], 3 * unit, 4 * unit)
}

# the other products, those of degree 3 first, of two coordinates before those of three; of degree 4 those of two
product_powers <- function(H, most = 800L) {
  unit <- diag(H)
  pair <- which(lower.tri(unit), arr.ind = TRUE)
  first <- unit[pair[, 1L], , drop = FALSE]
  second <- unit[pair[, 2L], , drop = FALSE]
  triple <- if (H > 2L) t(utils::combn(H, 3L, tabulate, nbins = H))
  out <- rbind(2 * first + second, first + 2 * second, triple, 2 * (first + second), 3 * first + second, first + 3 * second)
  utils::head(out, most)
}

# values of all terms at each point, then derivatives in each coordinate
surrogate_rows <- function(z, powers, constant = TRUE) {
  n <- nrow(z)
  H <- ncol(z)
  flat <- flat_scores(z)
  basis <- hermite_basis(flat)
  slopes <- hermite_slopes(basis) * rep(1 - (as.vector(flat) / 3)^2, 4L)
  factors <- term_factors(powers)
  out <- matrix(0, n * (H + 1L), nrow(powers) + constant)
  if (constant) out[seq_len(n), 1L] <- 1
  out[seq_len(n), constant + seq_len(nrow(powers))] <- term_products(basis, factors)
  for (j in seq_len(H)) {
    mine <- which(powers[, j] > 0)
    own <- 1L + (0:3) * H + j
    changed <- replace_columns(basis, own, slopes[, own - 1L])
    out[n * j + seq_len(n), constant + mine] <- term_products(changed, factors[mine, , drop = FALSE])
  }
  out
}

flat_scores <- function(z) 3 * tanh(z / 3)

# terms (columns) at z (rows)
surrogate_features <- function(z, powers) term_products(hermite_basis(flat_scores(z)), term_factors(powers))

# Hermite's polynomials of degree 1 to 4, of variance 1 under a normal distribution: 1, those of degree 1 of each coordinate, those of
# degree 2, and so on
hermite_basis <- function(t) {
  square <- t^2
  cbind(1, t, (square - 1) / sqrt(2), (square - 3) * t / sqrt(6), ((square - 6) * square + 3) / sqrt(24))
}

# the derivatives of all but the first column in their own coordinates
hermite_slopes <- function(basis) {
  H <- (ncol(basis) - 1L) / 4L
  cbind(matrix(1, nrow(basis), H), basis[, 1L + seq_len(3L * H), drop = FALSE]) * rep(sqrt(1:4), each = nrow(basis) * H)
}

# The columns of the basis whose products are the terms: at most three, the first column where there are fewer
term_factors <- function(powers) {
  out <- matrix(1L, nrow(powers), 3L)
  at <- which(t(powers) > 0, arr.ind = TRUE)   # by terms
  nth <- sequence(tabulate(at[, 2L], nrow(powers)))
  out[cbind(at[, 2L], nth)] <- as.integer(1L + (powers[at[, 2:1, drop = FALSE]] - 1) * ncol(powers) + at[, 1L])
  out
}

term_products <- function(basis, factors) .Call(elvi_r_column_products, basis, factors)

replace_columns <- function(x, which, by) {
  x[, which] <- by
  x
}
