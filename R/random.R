# The state of R's generator, which checkpoints keep and seeded code puts back.

random_state <- function() {
  if (is.null(globalenv()$.Random.seed)) set.seed(NULL)
  globalenv()$.Random.seed
}

set_random_state <- function(state) {
  session <- globalenv()
  session$.Random.seed <- state
}

# `expr` with R's generator where `key` puts it, whatever kind the user's is; back to that afterwards.
with_key <- function(key, expr) {
  before <- random_state()
  on.exit(set_random_state(before))
  set.seed(floor(key[1L] / 2), kind = "Mersenne-Twister", normal.kind = "Inversion", sample.kind = "Rejection")
  expr
}

# The key that draw_key() gives after set.seed(seed).
key_of_seed <- function(seed) {
  seed <- check_number(seed, "seed")
  if (abs(seed) > .Machine$integer.max) bad_argument("seed", "below 2^31 in size", describe(seed))
  before <- random_state()
  on.exit(set_random_state(before))
  set.seed(seed)
  draw_key()
}
