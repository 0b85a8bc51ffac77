test_that("a restored state draws the same numbers, whatever the kind of generator", {
  kinds <- RNGkind()
  on.exit(RNGkind(kinds[1], kinds[2], kinds[3]))
  for (kind in c("Mersenne-Twister", "L'Ecuyer-CMRG")) {
    RNGkind(kind)
    set.seed(1)
    before <- elvi:::random_state()
    drawn <- rnorm(3)
    set.seed(2, kind = "default")
    elvi:::set_random_state(before)
    expect_identical(rnorm(3), drawn)
    expect_identical(RNGkind()[1], kind)
  }
})
