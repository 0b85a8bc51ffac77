# icar(area, graph) and bym2(area, graph): effects of areas that are like those of their neighbours.

icar_kind <- function() structured_kind(
  calls = "icar",
  variables = function(call) term_arguments(call, "graph")$variables,
  make = function(x, frame, counting, contrasts) list(graph_term(x, frame, "icar", function(areas) areas)),
  columns = function(term, frame, smooths) place_columns(graph_index(term, frame), length(term$levels)),
  grid = function(term, frame, n, n_2d) areas_grid(term, frame),
  constraints = function(term) term$structure$constraint,
  entries = structure_entries,
  precision = function(term, theta) scaled_precision(term$structure, theta),
  curvature = function(term) 2 * term$structure$rank)

# The sum of independent effects, a share 1 - phi of the variance, and of structured ones, a share phi (Riebler et al., 2016). The two are
# kept apart, independent first.
bym2_kind <- function() structured_kind(
  calls = "bym2",
  variables = function(call) term_arguments(call, "graph")$variables,
  make = function(x, frame, counting, contrasts) {
    list(graph_term(x, frame, "bym2", function(areas) c(paste0("iid.", areas), paste0("icar.", areas))))
  },
  columns = function(term, frame, smooths) {
    Z <- place_columns(graph_index(term, frame), length(term$areas))
    cbind(Z, Z)
  },
  grid = function(term, frame, n, n_2d) areas_grid(term, frame),
  constraints = function(term) rbind(matrix(0, length(term$areas), ncol(term$structure$constraint)), term$structure$constraint),
  entries = function(term) {
    n <- length(term$areas)
    list(row = c(seq_len(n), n + term$structure$row), column = c(seq_len(n), n + term$structure$column),
         source = c(rep(1L, n), 1L + seq_along(term$structure$row)))
  },
  precision = function(term, theta) {
    n <- length(term$areas)
    phi <- stats::plogis(theta[2L])
    free <- stats::plogis(-theta[2L])   # 1 - phi
    own <- exp(-2 * theta[1L]) / free
    shared <- scaled_precision(term$structure, theta[1L] + log(phi) / 2)
    list(value = c(own, shared$value), inverse = NULL, log_det = n * log(own) + shared$log_det, slack = shared$slack,
         slope = function(S) {
           by_own <- own * S[1L] - n
           by_shared <- shared$slope(S[-1L])
           c(by_own + by_shared, (free * by_shared - phi * by_own) / 2)
         })
  },
  # the share of the structured part is uniform
  log_prior = function(term, theta) {
    sd <- log_prior_positive(term$prior_sd, theta[1L])
    list(value = sd$value + stats::plogis(theta[2L], log.p = TRUE) + stats::plogis(-theta[2L], log.p = TRUE),
         slope = c(sd$slope, 1 - 2 * stats::plogis(theta[2L])))
  },
  theta_names = function(term) paste0(c("log sd(", "logit phi("), term$label, ")"),
  start = function(term, Z, unit) c(log(0.5 * unit), 0),
  curvature = function(term) length(term$areas) * c(2, 0.5),
  natural = function(term, theta) stats::setNames(list(exp(theta[, 1L]), stats::plogis(theta[, 2L])), natural_names(term)),
  natural_names = function(term) c(sd_names(term), paste0("phi[", term$label, "]")),
  tidy_names = function(term) c("sd__Observation", "phi__bym2"),
  heading = function(term) list(term = "", coefficient = term$label, levels = format_count(length(term$areas))))

graph_term <- function(call, frame, kind, levels_of) {
  arguments <- term_arguments(call, "graph")
  if (!is.null(arguments$group)) refuse_term(call, "a field for each level of a factor is not available")
  name <- deparse_one(arguments$at)
  given <- argument_value(arguments, "graph", call, frame)
  if (is.null(given)) refuse_term(call, paste0("it needs a graph: ", kind, "(", name, ", graph)"))
  W <- check_graph(as_graph(given, name, call), call)
  areas <- rownames(W) %||% as.character(seq_len(nrow(W)))
  x <- frame[[name]]
  unknown <- setdiff(as.character(x), areas)
  if (length(unknown)) {
    refuse_term(call, paste0("`", name, "` has the value ", describe(unknown[1L]), ", which is no area of the graph (",
                             toString(utils::head(areas, 3L)), ", ...)"))
  }
  new_structured(paste0(kind, "(", name, ")"), kind, levels_of(areas), variable = name, open = name, areas = areas,
                 structure = graph_structure(W), map = if (inherits(given, "sf")) sf::st_geometry(given))
}

areas_grid <- function(term, frame) repeat_frame(frame, stats::setNames(data.frame(factor(term$areas, term$areas)), term$variable))

graph_index <- function(term, frame) {
  x <- as.character(frame[[term$variable]])
  index <- match(x, term$areas)
  unknown <- which(is.na(index) & !is.na(x))
  if (length(unknown)) {
    refuse_argument("newdata", "`", term$variable, "` of `newdata` has an area that is not in the graph: ", describe(x[unknown[1L]]), ".")
  }
  index
}

# ---- graphs ------------------------------------------------------------------------------------------------------------

# a sparse matrix of weights, with the names of areas as row names
as_graph <- function(graph, name, call) {
  if (inherits(graph, "sf")) {
    need_package("spdep", "A graph from an object of class sf")
    ids <- if (name %in% names(graph) && !anyDuplicated(graph[[name]])) as.character(graph[[name]])
    graph <- suppressWarnings(spdep::poly2nb(graph))
    if (!is.null(ids)) attr(graph, "region.id") <- ids   # some versions of 'spdep' take no names for objects of class sf
  }
  if (inherits(graph, "nb")) {
    to <- lapply(graph, function(own) own[own > 0L])   # a single 0 is none
    W <- Matrix::sparseMatrix(i = rep(seq_along(to), lengths(to)), j = unlist(to), x = 1, dims = rep(length(to), 2L))
    ids <- attr(graph, "region.id") %||% as.character(seq_along(to))
    W@Dimnames <- list(as.character(ids), as.character(ids))
    return(W)
  }
  if (is.matrix(graph) && (is.numeric(graph) || is.logical(graph)) || methods::is(graph, "Matrix")) {
    names <- rownames(graph) %||% colnames(graph)
    W <- as_sparse(graph)
    if (!is.null(names)) W@Dimnames <- list(names, if (nrow(W) == ncol(W)) names)
    return(W)
  }
  refuse_term(call, paste0("its graph must be a matrix of neighbours, an object of class nb or one of class sf, not ", describe(graph)))
}

check_graph <- function(W, call) {
  loadNamespace("Matrix")   # its methods, not only its functions
  if (nrow(W) != ncol(W)) refuse_term(call, sprintf("the matrix of its graph must be square, not %d x %d", nrow(W), ncol(W)))
  if (nrow(W) < 2L) refuse_term(call, "its graph has fewer than two areas")
  twice <- rownames(W)[duplicated(rownames(W))]
  if (length(twice)) refuse_term(call, paste0("two areas of its graph have the name ", describe(twice[1L])))
  if (any(!is.finite(W@x)) || any(W@x < 0)) refuse_term(call, "the weights of its graph must be finite and not negative")
  if (max(abs(W - Matrix::t(W))) > 1e-10 * max(1, W@x)) {
    refuse_term(call, "its graph must be symmetric: if area 1 is a neighbour of area 2, so is 2 of 1")
  }
  Matrix::diag(W) <- 0
  Matrix::drop0(W)
}

# D - W, component by component: each adds to 0 and is scaled by itself; areas without neighbours have an independent effect of variance 1
# (Freni-Sterrantino, Ventrucci and Rue, 2018).
graph_structure <- function(W) {
  component <- graph_components(W)
  n <- nrow(W)
  parts <- lapply(split(seq_len(n), component), function(nodes) {
    if (length(nodes) == 1L) {
      return(list(row = nodes, column = nodes, value = 1, places = nodes, constraint = matrix(0, 1L, 0L), rank = 1, log_det = 0))
    }
    own <- W[nodes, nodes, drop = FALSE]
    part <- intrinsic_structure(Matrix::Diagonal(x = Matrix::rowSums(own)) - own, matrix(1 / sqrt(length(nodes)), length(nodes), 1L))
    part[c("row", "column")] <- list(nodes[part$row], nodes[part$column])
    c(part, list(places = nodes))
  })
  each <- function(field) unlist(lapply(parts, `[[`, field), use.names = FALSE)
  constraint <- do.call(cbind, lapply(parts, function(part) {
    out <- matrix(0, n, ncol(part$constraint))
    out[part$places, ] <- part$constraint
    out
  }))
  low <- cbind(pmax(each("row"), each("column")), pmin(each("row"), each("column")))
  list(row = low[, 1L], column = low[, 2L], value = each("value"), constraint = unname(constraint), rank = sum(each("rank")),
       log_det = sum(each("log_det")), ridge = each("ridge"), component = component)
}

# the number of the connected component of each node: labels spread along edges until none changes
graph_components <- function(W) {
  edges <- methods::as(W, "TsparseMatrix")
  from <- edges@i + 1L
  to <- edges@j + 1L
  label <- seq_len(nrow(W))
  repeat {
    last <- label
    least <- tapply(label[to], from, min)
    at <- as.integer(names(least))
    label[at] <- pmin(label[at], least)
    label <- label[label]   # labels are nodes: follow them
    if (identical(label, last)) return(match(label, unique(label)))
  }
}
