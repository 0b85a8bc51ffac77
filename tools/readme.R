# Prints the session that README.md shows and draws its picture.
# usage: R_LIBS=build/lib Rscript tools/readme.R
library(elvi)
fit <- elvi(type ~ ., data = MASS::Pima.tr, family = binomial())
fit
confint(fit, c("glu", "bmi", "ped"))
predict(fit, MASS::Pima.te[1:3, ], type = "response", se.fit = TRUE)
set.seed(1)
pareto_k(fit)
picture <- ggplot2::autoplot(fit, "density") +
  ggplot2::labs(subtitle = "Diabetes in Pima women: posterior of each coefficient")
ggplot2::ggsave("man/figures/README-pima.png", picture, width = 7, height = 4.5, dpi = 110, bg = "white")
