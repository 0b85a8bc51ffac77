library(testthat)
library(elvi)

test_check("elvi")
