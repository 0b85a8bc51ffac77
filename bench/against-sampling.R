# Five analyses by elvi, NUTS, maximum likelihood with normal errors (Laplace where there are groups) and ADVI, for
# vignette("against-sampling"):
#   nice -n 19 R_LIBS=build/lib Rscript bench/against-sampling.R
# writes inst/extdata/against-sampling.csv: a row for each analysis, method and parameter with mean, sd, CPU seconds, and what
# the method warned of. NUTS and ADVI are those of 'rstanarm', with the same priors as elvi.
suppressPackageStartupMessages({ library(elvi); library(rstanarm); library(lme4); library(glmmTMB) })
data("cbpp", package = "lme4")
epil <- transform(MASS::epil, lbase = log(base / 4), lage = log(age))

cpu <- function(expr) {
  start <- proc.time()
  warned <- character()
  value <- withCallingHandlers(expr, warning = function(w) {
    warned <<- c(warned, conditionMessage(w))
    invokeRestart("muffleWarning")
  }, message = function(m) invokeRestart("muffleMessage"))
  time <- (proc.time() - start)[c("user.self", "sys.self", "user.child", "sys.child")]
  list(value = value, seconds = sum(time, na.rm = TRUE), warned = unique(warned))
}

by_stan <- function(algorithm) {
  function(a) {
    settings <- if (algorithm == "sampling") list(chains = 4, cores = 1, iter = 3000, warmup = 1000) else list(algorithm = algorithm)
    call <- c(list(a$formula, data = a$data, family = a$stan_family, seed = 1, refresh = 0,
                   prior = normal(0, 2.5, autoscale = TRUE), prior_intercept = normal(0, 2.5, autoscale = TRUE),
                   prior_aux = a$stan_aux), settings)
    if (a$groups) call$prior_covariance <- decov(1, 1, 1, 1)
    if (is.null(a$stan_aux)) call$prior_aux <- NULL
    fit <- do.call(if (a$groups) stan_glmer else stan_glm, call)
    x <- as.matrix(fit)
    sds <- grepl("^Sigma\\[", colnames(x))
    x[, sds] <- sqrt(x[, sds])
    x <- x[, !grepl("^b\\[|^mean_PPD|^log-", colnames(x)), drop = FALSE]
    colnames(x) <- sub("^Sigma\\[(.*):.*", "sd(\\1)", sub("reciprocal_dispersion", "phi", colnames(x)))
    data.frame(parameter = colnames(x), mean = colMeans(x), sd = apply(x, 2, sd))
  }
}

methods <- list(
  elvi = function(a) {
    fit <- do.call(elvi, c(list(a$formula, data = a$data, family = a$family), a$elvi))
    table <- summary(fit)$table
    data.frame(parameter = sub(":(Intercept))", ")", rownames(table), fixed = TRUE), mean = table[, "mean"], sd = table[, "sd"])
  },
  NUTS = by_stan("sampling"),
  likelihood = function(a) a$likelihood(a),
  ADVI = by_stan("meanfield"))

of_glm <- function(fit) data.frame(parameter = names(coef(fit)), mean = coef(fit), sd = sqrt(diag(vcov(fit))))
of_merMod <- function(fit) {
  sds <- as.data.frame(lme4::VarCorr(fit))
  data.frame(parameter = c(names(fixef(fit)), paste0("sd(", sds$grp, ")")), mean = c(fixef(fit), sds$sdcor),
             sd = c(sqrt(diag(as.matrix(vcov(fit)))), rep(NA, nrow(sds))))
}

analyses <- list(
  list(name = "fuel", formula = mpg ~ wt + hp + qsec, data = mtcars, family = gaussian(), stan_family = gaussian(), groups = FALSE,
       stan_aux = exponential(1, autoscale = TRUE), likelihood = function(a) of_glm(lm(a$formula, a$data))),
  list(name = "gearbox", formula = am ~ wt + hp, data = mtcars, family = binomial(), stan_family = binomial(), groups = FALSE,
       likelihood = function(a) of_glm(glm(a$formula, binomial(), a$data))),
  list(name = "absence", formula = Days ~ Sex + Age + Eth + Lrn, data = MASS::quine, family = elvi::neg_binomial_2(),
       stan_family = rstanarm::neg_binomial_2(), groups = FALSE, stan_aux = exponential(1), elvi = list(prior_aux = exponential(1)),
       likelihood = function(a) {
         fit <- glmmTMB(a$formula, a$data, nbinom2())
         data.frame(parameter = c(names(fixef(fit)$cond), "phi"), mean = c(fixef(fit)$cond, sigma(fit)),
                    sd = c(sqrt(diag(vcov(fit)$cond)), NA))
       }),
  list(name = "herds", formula = cbind(incidence, size - incidence) ~ period + (1 | herd), data = cbpp, family = binomial(),
       stan_family = binomial(), groups = TRUE, likelihood = function(a) of_merMod(glmer(a$formula, a$data, binomial()))),
  list(name = "seizures", formula = y ~ lbase * trt + lage + V4 + (1 | subject), data = epil, family = poisson(),
       stan_family = poisson(), groups = TRUE, likelihood = function(a) of_merMod(glmer(a$formula, a$data, poisson()))))

rows <- list()
for (a in analyses) {
  invisible(suppressWarnings(methods$elvi(a)))   # loads what elvi needs
  for (method in names(methods)) {
    found <- cpu(methods[[method]](a))
    rows[[length(rows) + 1L]] <- data.frame(analysis = a$name, method = method, found$value, seconds = round(found$seconds, 2),
                                            warned = c(gsub("[\n\r]+", " ", paste(found$warned, collapse = " / ")), rep("", nrow(found$value) - 1)))
    cat(a$name, method, found$seconds, "s CPU\n")
  }
}
result <- do.call(rbind, rows)
result$mean <- signif(result$mean, 5)
result$sd <- signif(result$sd, 5)
write.csv(result, "inst/extdata/against-sampling.csv", row.names = FALSE)
