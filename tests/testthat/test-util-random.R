test_that("a restored state draws the same numbers, whatever the kind of generator", {
  kinds <- RNGkind()
  on.exit(RNGkind(kinds[1], kinds[2], kinds[3]))
  for (kind in c("Mersenne-Twister", "L'Ecuyer-CMRG")) {
    RNGkind(kind)
    set.seed(1)
    before <- random_state()
    drawn <- rnorm(3)
    set.seed(2, kind = "default")
    set_random_state(before)
    expect_identical(rnorm(3), drawn)
    expect_identical(RNGkind()[1], kind)
  }
})

test_that("a seed means the same draws, whatever the kind of generator, and leaves that alone", {
  kinds <- RNGkind()
  on.exit(suppressWarnings(RNGkind(kinds[1], kinds[2], kinds[3])))
  keys <- lapply(list(c("Mersenne-Twister", "Inversion", "Rejection"), c("Wichmann-Hill", "Box-Muller", "Rounding"),
                      c("L'Ecuyer-CMRG", "Ahrens-Dieter", "Rejection")), function(kind) {
    suppressWarnings(RNGkind(kind[1], kind[2], kind[3]))
    set.seed(1)
    before <- random_state()
    out <- list(key_of_seed(5), key_of_seed(-1), with_key(7, rnorm(2)), with_key(7, sample(9)))
    expect_identical(random_state(), before)
    expect_identical(RNGkind(), kind)
    out
  })
  expect_identical(keys[[2]], keys[[1]])
  expect_identical(keys[[3]], keys[[1]])
  RNGkind("default", "default", "default")
  set.seed(5)
  expect_identical(key_of_seed(5), draw_key())
  for (bad in list(2^31, NA, "a", 1:2)) expect_error(key_of_seed(bad), "`seed`", class = "elvi_error_argument")
})

test_that("keys differ wherever numbers, their order or texts differ, in any unit", {
  key <- c(1, 2)
  parts <- list(list(1), list(2), list(-1), list(c(1, 2)), list(c(2, 1)), list(1, 2), list(2, 1), list(1e17), list(2e17), list(1e-17),
                list(2e-17), list(0), list(c(0, 1)), list(c(1, 0)), list("a"), list("b"), list("ab"), list(c("a", "b")))
  keys <- vapply(parts, function(part) key_for(key, part)[1], 0)
  expect_identical(anyDuplicated(keys), 0L)
  expect_true(all(keys >= 0 & keys < 2^32 & keys == floor(keys)))
  expect_identical(key_for(key, list(c(1, NA, Inf))), key_for(key, list(c(1, NA, Inf))))
  expect_identical(key_for(key, list()), key)
})
