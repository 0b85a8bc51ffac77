# The state of R's generator, which checkpoints keep and seeded code puts back.

random_state <- function() {
  if (is.null(globalenv()$.Random.seed)) set.seed(NULL)
  globalenv()$.Random.seed
}

set_random_state <- function(state) {
  session <- globalenv()
  session$.Random.seed <- state
}
