# A fit in the hands of every package that a user of R's Bayesian packages may have beside elvi: does it work, does it work
# differently from what it does with rstanarm, does it fail? Each package in an R process of its own.
#
#   Rscript bench/ecosystem.R [--lib=<folder with newer packages>] [--markdown]

args <- commandArgs(trailingOnly = TRUE)
value_of <- function(name) sub("^[^=]*=", "", grep(paste0("^--", name, "="), args, value = TRUE)[1])
lib <- value_of("lib")

# two fits, and what is asked of them: an expression in `fit`, `new` (rows for predictions) and `groups` (has it groups?)
preamble <- quote({
  suppressPackageStartupMessages(library(elvi))
  if (!exists("%||%", baseenv())) `%||%` <- function(x, y) if (is.null(x)) y else x   # marginaleffects 1.0 wants that of R 4.4
  set.seed(1)
  sprays <- transform(InsectSprays, block = factor(rep(1:12, 6)))
  fits <- list(plain = elvi(mpg ~ wt + factor(cyl), data = mtcars),
               groups = elvi(count ~ spray + (1 | block), data = sprays, family = poisson()))
  rows <- list(plain = mtcars[1:3, ], groups = sprays[1:3, ])
  means <- function(fit) fixef(fit)
})

# `near` says whether the answer is what elvi itself says
near <- function(a, b, tolerance = 0.05) isTRUE(all.equal(as.double(a), as.double(b), tolerance = tolerance))

asked <- list(
  emmeans = list(
    "emmeans()" = quote({
      terms <- if (groups) ~ spray else ~ cyl
      out <- as.data.frame(emmeans::emmeans(fit, terms, frequentist = TRUE))
      grid <- if (groups) data.frame(spray = LETTERS[1:6]) else data.frame(wt = mean(mtcars$wt), cyl = c(4, 6, 8))
      near(out$emmean, if (groups) predict(fit, grid, re.form = NA) else predict(fit, grid), 1e-6)
    }),
    "type = \"response\"" = quote(nrow(as.data.frame(emmeans::emmeans(fit, if (groups) ~ spray else ~ cyl, type = "response"))) > 2),
    "pairs()" = quote(nrow(as.data.frame(pairs(emmeans::emmeans(fit, if (groups) ~ spray else ~ cyl)))) > 2)),
  marginaleffects = list(
    "avg_slopes()" = quote(groups || near(marginaleffects::avg_slopes(fit, variables = "wt")$estimate, coef(fit)[["wt"]])),
    "predictions()" = quote(near(marginaleffects::predictions(fit, newdata = new)$estimate, predict(fit, new, type = "response"))),
    "avg_comparisons()" = quote(nrow(as.data.frame(marginaleffects::avg_comparisons(fit))) > 0)),
  insight = list(
    "model_info()" = quote(insight::model_info(fit)$is_bayesian),
    "get_parameters()" = quote(near(colMeans(insight::get_parameters(fit))[names(means(fit))], means(fit))),
    "get_data()" = quote(nrow(insight::get_data(fit)) == nobs(fit)),
    "find_formula()" = quote(length(insight::find_formula(fit)) > 0),
    "get_predicted()" = quote(length(insight::get_predicted(fit)) >= nobs(fit)),
    "get_loglikelihood()" = quote(insight::get_loglikelihood(fit))),
  bayestestR = list(
    "describe_posterior()" = quote(nrow(bayestestR::describe_posterior(fit)) >= length(means(fit))),
    "hdi(), rope(), p_direction()" = quote(nrow(bayestestR::hdi(fit)) > 0 && nrow(bayestestR::rope(fit)) > 0 &&
                                             nrow(bayestestR::p_direction(fit)) > 0),
    "diagnostic_posterior()" = quote(bayestestR::diagnostic_posterior(fit))),
  parameters = list("model_parameters()" = quote(nrow(parameters::model_parameters(fit)) >= length(means(fit))),
                    "compare_parameters()" = quote(nrow(parameters::compare_parameters(fit, fit)) > 1)),
  performance = list(
    "model_performance()" = quote(is.finite(performance::model_performance(fit)$ELPD)),
    "r2_bayes()" = quote(performance::r2_bayes(fit)$R2_Bayes > 0),
    "check_predictions()" = quote(nrow(performance::check_predictions(fit)) == nobs(fit)),
    "check_model()" = quote(inherits(performance::check_model(fit), "check_model")),
    "r2(), icc(), get_variance()" = quote(inherits(performance::r2(fit), "r2_bayes") &&
                                            (!groups || performance::icc(fit)$ICC_adjusted > 0 && insight::get_variance(fit)$var.random > 0)),
    "compare_performance()" = quote(nrow(performance::compare_performance(fit, fit)) == 2),
    "looic()" = quote(is.list(suppressWarnings(performance::looic(fit))))),
  ggeffects = list("ggpredict()" = quote({
    out <- ggeffects::ggpredict(fit, if (groups) "spray" else "wt")
    grid <- if (groups) data.frame(spray = levels(sprays$spray)) else data.frame(wt = out$x, cyl = 4)
    !groups || near(out$predicted, predict(fit, grid, type = "response", re.form = NA))
  })),
  sjPlot = list("tab_model(), plot_model()" = quote(inherits(sjPlot::plot_model(fit), "ggplot") &&
                                                      nzchar(sjPlot::tab_model(fit)$page.content))),
  effects = list("Effect(), allEffects()" = quote(near(
    stats::fitted(effects::Effect(if (groups) "spray" else "hp", if (groups) fit else elvi(mpg ~ hp, mtcars)))[1],
    if (groups) predict(fit, data.frame(spray = "A"), re.form = NA) else predict(elvi(mpg ~ hp, mtcars), data.frame(hp = 50))))),
  multcomp = list("glht()" = quote(near(stats::coef(multcomp::glht(fit)), means(fit), 1e-6))),
  bridgesampling = list("bridge_sampler()" = quote(is.finite(bridgesampling::bridge_sampler(fit)$logml))),
  shinystan = list("as.shinystan(as.array())" = quote(inherits(shinystan::as.shinystan(as.array(fit)), "shinystan"))),
  priorsense = list("powerscale_sensitivity()" = quote(nrow(as.data.frame(priorsense::powerscale_sensitivity(fit))) > 0)),
  DHARMa = list("createDHARMa()" = quote({
    simulated <- DHARMa::createDHARMa(t(posterior_predict(fit)), model.response(model.frame(fit)), colMeans(posterior_epred(fit)), groups)
    length(residuals(simulated)) == nobs(fit)
  })),
  gratia = list("smooth_estimates()" = quote(groups || nrow(gratia::smooth_estimates(elvi(mpg ~ s(wt), mtcars))) > 10)),
  modelsummary = list("modelsummary()" = quote(nrow(modelsummary::modelsummary(fit, output = "data.frame")) > 3)),
  tidybayes = list(
    "add_epred_draws()" = quote(near(tapply(tidybayes::add_epred_draws(new, fit)$.epred, rep(1:3, each = 1000), mean),
                                     predict(fit, new, type = "response"), 0.02)),
    "add_predicted_draws()" = quote(nrow(tidybayes::add_predicted_draws(new, fit)) == 3000),
    "tidy_draws()" = quote(nrow(tidybayes::tidy_draws(fit)) == 1000),
    "spread_draws()" = quote(nrow(tidybayes::spread_draws(fit, `(Intercept)`)) == 1000)),
  ggdist = list("stat_halfeye()" = quote({
    grDevices::pdf(NULL)
    print(ggplot2::ggplot(as.data.frame(fit), ggplot2::aes(x = `(Intercept)`)) + ggdist::stat_halfeye())
    TRUE
  })),
  broom.mixed = list("tidy(), glance()" = quote(nrow(broom.mixed::tidy(fit, conf.int = TRUE)) >= length(means(fit)) &&
                                                   nrow(generics::glance(fit)) == 1)),
  posterior = list("summarise_draws()" = quote(nrow(posterior::summarise_draws(posterior::as_draws(fit))) > 0)),
  bayesplot = list("mcmc_areas(), pp_check()" = quote(inherits(bayesplot::mcmc_areas(as.matrix(fit), names(means(fit))), "ggplot") &&
                                                         inherits(bayesplot::pp_check(fit), "ggplot"))),
  loo = list("loo(), waic()" = quote(near(loo::loo(fit)$estimates[1, 1], loo::waic(fit)$estimates[1, 1])),
             "kfold()" = quote(groups || inherits(loo::kfold(fit, K = 3), "kfold"))),
  rstantools = list("posterior_*(), log_lik(), bayes_R2()" = quote({
    near(rstantools::posterior_epred(fit), posterior_epred(fit), 1e-12) && ncol(rstantools::log_lik(fit)) == nobs(fit) &&
      mean(rstantools::bayes_R2(fit)) > 0 && nrow(rstantools::predictive_interval(fit)) == nobs(fit)
  })),
  knitr = list("kable(summary())" = quote(length(knitr::kable(summary(fit))) > 3)),
  stats = list(
    "model.frame() ... terms()" = quote(nrow(model.frame(fit)) == nobs(fit) && nrow(model.matrix(fit)) == nobs(fit) &&
                                          inherits(terms(fit), "terms")),
    "coef(summary())" = quote(near(coef(summary(fit))[, "mean"], means(fit))),
    "predict(interval = )" = quote(ncol(predict(fit, new, type = "response", interval = "prediction")) == 3),
    "residuals(type = ), deviance()" = quote(near(sum(residuals(fit, "deviance")^2), deviance(fit))),
    "simulate()" = quote(identical(dim(simulate(fit, 3)), c(nobs(fit), 3L))),
    "update()" = quote(groups || length(coef(update(fit, . ~ wt))) == 2L)))

# What cannot be the same as for a sampler, and why.
differs <- c("get_loglikelihood()" = "no logLik(): an ELBO is not one", "diagnostic_posterior()" = "there are no chains",
             "looic()" = "only for samplers: use loo()",
             "compare_parameters()" = "takes classes of a fixed list in 'insight' only",
             "compare_performance()" = "takes classes of a fixed list in 'insight' only")

# Every generic and constructor that elvi shares with others, on an object of theirs, elvi loaded first or last.
others <- list(
  rstanarm = quote({
    theirs <- suppressWarnings(rstanarm::stan_glm(mpg ~ wt, data = mtcars, chains = 1, iter = 200, refresh = 0, seed = 1))
    for (g in c("posterior_predict", "posterior_epred", "posterior_linpred", "log_lik")) {
      stopifnot(identical(dim(match.fun(g)(theirs)), c(100L, 32L)))
    }
    stopifnot(length(bayes_R2(theirs)) == 100, nrow(predictive_interval(theirs)) == 32, nrow(posterior_interval(theirs)) == 3,
              inherits(prior_summary(theirs), "prior_summary.stanreg"))
    grouped <- suppressWarnings(rstanarm::stan_glmer(Reaction ~ Days + (1 | Subject), data = lme4::sleepstudy, chains = 1,
                                                     iter = 200, refresh = 0, seed = 1))
    stopifnot(nrow(ranef(grouped)$Subject) == 18, length(fixef(grouped)) == 2, inherits(VarCorr(grouped), "VarCorr.merMod"))
    ours <- suppressWarnings(elvi(mpg ~ wt, data = mtcars, prior = normal(0, 2), prior_aux = exponential(1)))
    stopifnot(identical(dim(posterior_predict(ours, draws = 3)), c(3L, 32L)))
  }),
  brms = quote({
    theirs <- brms:::rename_pars(brms:::brmsfit_example1)   # a fit that comes with brms: nothing is compiled
    for (g in c("posterior_predict", "posterior_epred", "posterior_linpred", "log_lik")) {
      stopifnot(identical(dim(match.fun(g)(theirs)), c(25L, 40L)))
    }
    stopifnot(inherits(prior_summary(theirs), "brmsprior"), nrow(posterior_interval(theirs)) > 5, nrow(bayes_R2(theirs)) == 1,
              nrow(fixef(theirs)) == 9, names(ranef(theirs)) == "visit", names(VarCorr(theirs)) == "visit",
              nrow(predictive_interval(theirs)) == 40, unlist(ngrps(theirs)) == 4, inherits(suppressWarnings(loo(theirs)), "loo"),
              inherits(student(), "brmsfamily"))
    ours <- elvi(count ~ spray + (1 | block), data = transform(InsectSprays, block = factor(rep(1:12, 6))), family = poisson())
    stopifnot(nrow(ranef(ours)$block) == 12, length(fixef(ours)) == 6, nrow(posterior_interval(ours)) > 5,
              identical(dim(posterior_predict(ours, draws = 3)), c(3L, 72L)), ncol(log_lik(ours, draws = 3)) == 72,
              inherits(loo(ours), "loo"), length(bayes_R2(ours)) == 1000, is.function(pp_check))
  }),
  loo = quote({
    ours <- elvi(am ~ wt, data = mtcars, family = binomial())
    stopifnot(inherits(loo(ours), "loo"), inherits(waic(ours), "waic"), inherits(loo(log_lik(ours), r_eff = rep(1, 32)), "loo"))
  }),
  bayesplot = quote({
    ours <- elvi(am ~ wt, data = mtcars, family = binomial())
    stopifnot(inherits(pp_check(ours), "ggplot"), inherits(mcmc_areas(as.matrix(ours)), "ggplot"))
  }),
  lme4 = quote({
    theirs <- lmer(Reaction ~ Days + (1 | Subject), data = sleepstudy)
    ours <- elvi(Reaction ~ Days + (1 | Subject), data = sleepstudy)
    for (fit in list(theirs, ours)) {
      stopifnot(nrow(ranef(fit)$Subject) == 18, length(fixef(fit)) == 2, length(VarCorr(fit)) == 1, ngrps(fit) == 18,
                length(sigma(fit)) == 1)
    }
  }))

# ---- running -----------------------------------------------------------------------------------

run_in_r <- function(lines) {
  file <- tempfile(fileext = ".R")
  if (!is.na(lib)) lines <- c(sprintf(".libPaths(c(%s, .libPaths()))", encodeString(lib, quote = "\"")), lines)
  writeLines(lines, file)
  suppressWarnings(system2(file.path(R.home("bin"), "Rscript"), shQuote(file), stdout = TRUE, stderr = TRUE))
}

version_of <- function(package) {
  out <- run_in_r(sprintf('cat(tryCatch(as.character(packageVersion("%s")), error = function(e) "absent"))', package))
  out[length(out)]
}

ask_package <- function(package, version) {
  questions <- asked[[package]]
  lines <- c(deparse(preamble), "near <- ", deparse(near), unlist(lapply(names(questions), function(name) c(
    "for (which in names(fits)) {", "  fit <- fits[[which]]; new <- rows[[which]]; groups <- which == \"groups\"",
    "  answer <- tryCatch(suppressWarnings(suppressMessages({ utils::capture.output(out <- {",
    deparse(questions[[name]]),
    "  }); if (isTRUE(out)) \"works\" else \"differs\" })), error = function(e) paste(\"fails:\", conditionMessage(e)))",
    sprintf("  cat(\"ROW\\t%s\\t\", which, \"\\t\", gsub(\"[[:space:]]+\", \" \", answer), \"\\n\", sep = \"\")",
            gsub("\"", "\\\\\"", name)), "}"))))
  out <- grep("^ROW\t", run_in_r(lines), value = TRUE)
  if (!length(out)) return(data.frame(package = package, version = version, what = "loading", fit = "both", answer = "fails"))
  parts <- do.call(rbind, strsplit(out, "\t"))
  data.frame(package = package, version = version, what = parts[, 2], fit = parts[, 3], answer = parts[, 4])
}

ask_order <- function(package, version) {
  do.call(rbind, lapply(list(c("elvi", package), c(package, "elvi")), function(order) {
    out <- run_in_r(c(sprintf("suppressPackageStartupMessages(library(%s))", order), deparse(others[[package]]), "cat(\"all well\")"))
    well <- any(grepl("all well", out, fixed = TRUE))
    data.frame(package = package, version = version, what = paste("library(): ", toString(order)), fit = "both",
               answer = if (well) "works" else paste("fails:", paste(utils::tail(out, 2), collapse = " ")))
  }))
}

table <- do.call(rbind, c(lapply(names(asked), function(package) {
  version <- version_of(package)
  if (version == "absent") return(data.frame(package = package, version = version, what = "", fit = "", answer = "not installed"))
  message(package, " ", version)
  ask_package(package, version)
}), lapply(names(others), function(package) {
  version <- version_of(package)
  if (version == "absent") return(data.frame(package = package, version = version, what = "", fit = "", answer = "not installed"))
  message("beside ", package, " ", version)
  ask_order(package, version)
})))

# what is said to differ, with its reason
known <- table$what %in% names(differs) & table$answer != "works"
table$answer[known] <- paste0("differs: ", differs[table$what[known]])

if ("--markdown" %in% args) {
  cat("| package | version | what | fit | |\n|---|---|---|---|---|\n")
  cat(sprintf("| %s | %s | `%s` | %s | %s |\n", table$package, table$version, table$what, table$fit, substr(table$answer, 1, 100)), sep = "")
} else {
  options(width = 250)
  print(transform(table, answer = substr(answer, 1, 70)), row.names = FALSE, right = FALSE)
}
kind <- sub("^(works|differs|fails|not installed).*", "\\1", table$answer)
cat("\n", R.version.string, ", elvi ", version_of("elvi"), ": ",
    toString(paste(table(factor(kind, c("works", "differs", "fails", "not installed"))), c("work", "differ", "fail", "not installed"))), "\n", sep = "")
