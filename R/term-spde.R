# spde(x, y, mesh): a Matern field of smoothness 1 over a plane, by piecewise linear functions on triangles (Lindgren, Rue and Lindstrom,
# 2011). With kappa = sqrt(8) / range its precision at the vertices is (kappa^2 C0 + 2 G1 + kappa^-2 G1 C0^-1 G1) / (4 pi sd^2), which is
# K C0^-1 K / (4 pi sd^2 kappa^2) with K = kappa^2 C0 + G1. theta: log sd, and the log range in units of half the extent of the data.

spde_kind <- function() structured_kind(
  calls = "spde",
  variables = function(call) spde_arguments(call)$variables,
  make = function(x, frame, counting, contrasts) list(spde_term(x, frame)),
  columns = function(term, frame, smooths) spde_columns(term, frame),
  grid = function(term, frame, n, n_2d) {
    grid <- variables_grid(term$variable_names, frame, n, n_2d)
    rows_of_frame(grid, which(!outside_mesh(term$projector(spde_places(term, frame = grid)))))
  },
  entries = function(term) c(term$fem[c("row", "column")], list(source = seq_along(term$fem$row))),
  precision = function(term, theta) {
    fem <- term$fem
    n <- length(fem$mass)
    square <- spde_kappa(term, theta)^2
    unit <- exp(-2 * theta[1L]) / (4 * pi)
    value <- unit * (square * fem$c0 + 2 * fem$g1 + fem$g2 / square)
    K <- inverse_diagonal(fem$plan, (square * fem$c0 + fem$g1)[fem$near])
    trace <- square * sum(fem$mass * K$diagonal)   # of K^-1 kappa^2 C0
    list(value = value, inverse = NULL, log_det = n * log(unit / square) + 2 * K$log_det - sum(log(fem$mass)),
         slope = function(S) {
           by_range <- unit * (2 * fem$g2 / square - 2 * square * fem$c0)   # of the precision
           c(entries_product(fem, value, S) - n, n - 2 * trace - entries_product(fem, by_range, S) / 2)
         })
  },
  # the range is about half of the extent of the data, within a factor of four or so: as hsgp(), whose length is half as long
  log_prior = function(term, theta) {
    sd <- log_prior_positive(term$prior_sd, theta[1L])
    list(value = sd$value + stats::dnorm(theta[2L], 0, 0.75, log = TRUE), slope = c(sd$slope, -theta[2L] / 0.75^2))
  },
  theta_names = function(term) paste0(c("log sd(", "log range("), term$label, ")"),
  start = function(term, Z, unit) c(log(0.5 * unit), 0),
  curvature = function(term) c(10, 5),
  natural = function(term, theta) stats::setNames(list(exp(theta[, 1L]), term$half * exp(theta[, 2L])), natural_names(term)),
  natural_names = function(term) c(sd_names(term), paste0("range[", term$label, "]")),
  tidy_names = function(term) c("sd__Observation", "range__spde"))

spde_kappa <- function(term, theta) sqrt(8) / (term$half * exp(theta[2L]))

spde_arguments <- function(call) {
  arguments <- as.list(call)[-1L]
  given <- names(arguments) %||% rep("", length(arguments))
  unknown <- setdiff(given, c("", "mesh"))
  if (length(unknown)) refuse_term(call, paste0("it has no argument `", unknown[1L], "`"))
  free <- which(given == "")
  if (!"mesh" %in% given && length(free) == 3L) given[free[3L]] <- "mesh"
  if (sum(given == "") != 2L || sum(given == "mesh") != 1L) refuse_term(call, "it needs two variables and a mesh: spde(x, y, mesh)")
  list(variables = unname(arguments[given == ""]), others = list(mesh = arguments[[which(given == "mesh")]]))
}

spde_term <- function(call, frame) {
  arguments <- spde_arguments(call)
  names <- vapply(arguments$variables, deparse_one, "")
  loc <- vapply(names, function(name) numeric_variable(frame, name, call), numeric(nrow(frame)))
  loc <- matrix(loc, ncol = 2L)
  extent <- apply(loc, 2L, function(x) diff(range(x)))
  if (!(max(extent) > 0)) refuse_term(call, "its variables are constant")
  mesh <- read_mesh(argument_value(arguments, "mesh", call, frame), call)
  out <- which(outside_mesh(mesh$projector(loc)))
  if (length(out)) refuse_term(call, sprintf("%d of %d rows of the data are outside of its mesh", length(out), nrow(loc)))
  new_structured(paste0("spde(", names[1L], ", ", names[2L], ")"), "spde", as.character(seq_along(mesh$fem$mass)),
                 variable_names = names, half = max(extent) / 2, fem = mesh$fem, projector = mesh$projector)
}

spde_places <- function(term, frame) vapply(term$variable_names, function(name) as.double(frame[[name]]), numeric(nrow(frame)))

# vertices' functions at the places of a frame; rows with missing coordinates have none
spde_columns <- function(term, frame) {
  loc <- matrix(spde_places(term, frame), ncol = 2L)
  known <- which(is.finite(rowSums(loc)))
  Z <- term$projector(loc[known, , drop = FALSE])
  if (any(outside_mesh(Z))) {
    refuse_argument("newdata", "`newdata` has places outside the mesh of the term `", term$label, "`.")
  }
  if (length(known) < nrow(loc)) Z <- spread_rows(known, nrow(loc)) %*% Z
  methods::as(Z, "CsparseMatrix")
}

outside_mesh <- function(Z) abs(Matrix::rowSums(Z) - 1) > 1e-6

# ---- meshes ----------------------------------------------------------------------------------------------------------

# list(fem, projector) of a mesh of 'fmesher', of vertices and triangles, or of matrices and a function.
read_mesh <- function(mesh, call) {
  loadNamespace("Matrix")   # its methods, not only its functions
  if (inherits(mesh, c("fm_mesh_2d", "inla.mesh")) && !is.null(mesh$graph$tv)) {
    mesh <- list(loc = mesh$loc, triangles = mesh$graph$tv)
  }
  if (is.list(mesh) && all(c("C0", "G1", "projector") %in% names(mesh))) return(matrix_mesh(mesh, call))
  if (is.list(mesh) && all(c("loc", "triangles") %in% names(mesh))) return(triangle_mesh(mesh, call))
  refuse_term(call, paste0("its mesh must be a mesh of package 'fmesher', a list with `loc` and `triangles`, or one with `C0`, `G1` and ",
                           "`projector`, not ", describe(mesh)))
}

matrix_mesh <- function(mesh, call) {
  if (!is.function(mesh$projector)) refuse_term(call, "the `projector` of its mesh must be a function of a matrix of places")
  C0 <- mesh$C0
  if (!is.null(dim(C0))) {
    if (any(Matrix::rowSums(abs(C0)) > abs(Matrix::diag(C0)) * (1 + 1e-8))) {
      refuse_term(call, "the matrix `C0` of its mesh must be diagonal")
    }
    C0 <- Matrix::diag(C0)
  }
  G1 <- as_sparse(mesh$G1)
  if (nrow(G1) != ncol(G1) || length(C0) != nrow(G1)) refuse_term(call, "the matrices `C0` and `G1` of its mesh must have the same size")
  if (any(!is.finite(C0)) || any(C0 <= 0) || any(!is.finite(G1@x))) refuse_term(call, "`C0` of its mesh must be positive and `G1` finite")
  if (max(abs(G1 - Matrix::t(G1))) > 1e-8 * max(abs(G1@x))) refuse_term(call, "the matrix `G1` of its mesh must be symmetric")
  fem <- spde_matrices(as.double(C0), G1)
  if (!is.null(mesh$G2)) {
    G2 <- G1 %*% (G1 / as.double(C0))
    if (max(abs(as_sparse(mesh$G2) - G2)) > 1e-6 * max(abs(G2))) refuse_term(call, "`G2` of its mesh is not G1 C0^-1 G1")
  }
  list(fem = fem, projector = function(loc) {
    Z <- as_sparse(mesh$projector(loc))
    if (nrow(Z) != nrow(loc) || ncol(Z) != length(C0)) {
      refuse_term(call, sprintf("the `projector` of its mesh returns a matrix of %d x %d, not %d x %d",
                                nrow(Z), ncol(Z), nrow(loc), length(C0)))
    }
    Z
  })
}

triangle_mesh <- function(mesh, call) {
  loc <- as.matrix(mesh$loc)
  corner <- as.matrix(mesh$triangles)
  if (!is.numeric(loc) || ncol(loc) < 2L || any(!is.finite(loc))) refuse_term(call, "`loc` of its mesh must have two columns of numbers")
  if (ncol(loc) > 2L && any(loc[, 3L] != 0)) refuse_term(call, "its mesh must be flat, not one on a sphere or another surface")
  if (ncol(corner) != 3L || !all(corner %in% seq_len(nrow(loc)))) {
    refuse_term(call, "`triangles` of its mesh must have three columns, the rows of `loc` that are the corners")
  }
  if (length(unused <- setdiff(seq_len(nrow(loc)), corner))) {
    refuse_term(call, paste("vertex", unused[1L], "of its mesh belongs to no triangle"))
  }
  x <- matrix(loc[corner, 1L], ncol = 3L)
  y <- matrix(loc[corner, 2L], ncol = 3L)
  # edges opposite of each corner, and areas
  dx <- x[, c(3L, 1L, 2L), drop = FALSE] - x[, c(2L, 3L, 1L), drop = FALSE]
  dy <- y[, c(3L, 1L, 2L), drop = FALSE] - y[, c(2L, 3L, 1L), drop = FALSE]
  area <- abs(dx[, 1L] * dy[, 2L] - dx[, 2L] * dy[, 1L]) / 2
  if (any(area <= 1e-12 * max(area))) refuse_term(call, "a triangle of its mesh has no area")
  mass <- as.double(rowsum(rep(area / 3, 3L), as.vector(corner)))
  pair <- expand.grid(a = 1:3, b = 1:3)
  G1 <- Matrix::sparseMatrix(i = as.vector(corner[, pair$a]), j = as.vector(corner[, pair$b]), dims = rep(nrow(loc), 2L),
                             x = as.vector((dx[, pair$a] * dx[, pair$b] + dy[, pair$a] * dy[, pair$b]) / (4 * area)))
  list(fem = spde_matrices(mass, G1), projector = function(at) triangle_projector(at, x, y, corner, nrow(loc)))
}

# The lower triangles of C0, G1 and G1 C0^-1 G1 on one pattern; `near`: the entries of C0 and G1, with the plan of their factor
spde_matrices <- function(mass, G1) {
  n <- length(mass)
  far <- lower_entries(G1 %*% (G1 / mass) + Matrix::Diagonal(n))
  far$value <- far$value - (far$row == far$column)
  key <- function(row, column) (column - 1) * n + row
  own <- lower_entries(G1)
  at <- match(key(own$row, own$column), key(far$row, far$column))
  g1 <- c0 <- numeric(length(far$value))
  g1[at] <- own$value
  on <- far$row == far$column
  c0[on] <- mass[far$row[on]]
  near <- which(g1 != 0 | on)
  list(row = far$row, column = far$column, c0 = c0, g1 = g1, g2 = far$value, mass = mass, near = near,
       plan = inverse_plan(list(row = far$row[near], column = far$column[near], value = rep(1, length(near))), n))
}

# Barycentric coordinates of places in the triangle that has them; rows of places outside of all are 0.
triangle_projector <- function(loc, x, y, corner, vertices, slack = 1e-9) {
  triangle <- integer(nrow(loc))
  share <- matrix(0, nrow(loc), 3L)
  left <- do.call(pmin, as.data.frame(x))
  right <- do.call(pmax, as.data.frame(x))
  order_x <- order(loc[, 1L])
  sorted <- loc[order_x, 1L]
  wide <- slack * (max(x) - min(x))
  from <- findInterval(left - wide, sorted, left.open = TRUE) + 1L
  to <- findInterval(right + wide, sorted)
  for (t in which(to >= from)) {
    i <- order_x[from[t]:to[t]]
    i <- i[triangle[i] == 0L]
    if (!length(i)) next
    whole <- (x[t, 2L] - x[t, 1L]) * (y[t, 3L] - y[t, 1L]) - (x[t, 3L] - x[t, 1L]) * (y[t, 2L] - y[t, 1L])
    px <- loc[i, 1L] - x[t, 1L]
    py <- loc[i, 2L] - y[t, 1L]
    second <- (px * (y[t, 3L] - y[t, 1L]) - py * (x[t, 3L] - x[t, 1L])) / whole
    third <- (py * (x[t, 2L] - x[t, 1L]) - px * (y[t, 2L] - y[t, 1L])) / whole
    here <- second >= -slack & third >= -slack & second + third <= 1 + slack
    triangle[i[here]] <- t
    share[i[here], ] <- cbind(1 - second - third, second, third)[here, ]
  }
  found <- which(triangle > 0L)
  Matrix::sparseMatrix(i = rep(found, 3L), j = as.vector(corner[triangle[found], ]), x = as.vector(share[found, ]),
                       dims = c(nrow(loc), vertices))
}
