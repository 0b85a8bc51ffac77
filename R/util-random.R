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
with_key <- function(key, expr) with_seed(floor(key[1L] / 2), expr)

with_seed <- function(seed, expr) {
  before <- random_state()
  on.exit(set_random_state(before))
  set.seed(seed, kind = "Mersenne-Twister", normal.kind = "Inversion", sample.kind = "Rejection")
  expr
}

# The key that draw_key() gives after set.seed(seed) with R's default kinds of generator, whatever the user's are.
key_of_seed <- function(seed) {
  seed <- check_number(seed, "seed")
  if (abs(seed) > .Machine$integer.max) bad_argument("seed", "below 2^31 in size", describe(seed))
  with_seed(seed, draw_key())
}

# A key for what belongs to `parts`, vectors of numbers or text: other numbers or another text give another key.
key_for <- function(key, parts) (key + floor(2^32 * turn_of(parts))) %% 2^32

# A number in [0, 1). It moves with the relative size of each number, so that units do not matter, and hardly with
# rounding errors.
turn_of <- function(parts) {
  turn <- 0
  for (part in parts) {
    v <- if (is.character(part)) utf8ToInt(paste(enc2utf8(part), collapse = "\n")) else as.double(part)
    size <- ifelse(is.finite(v) & v != 0, 1100 + log2(abs(v)), 0)
    size[which(v < 0)] <- -size[which(v < 0)]
    weight <- (seq_along(v) * 0.6180339887498949) %% 1 + 0.5   # each place has its own
    turn <- (2.414213562373095 * turn + 1.7320508075688772 * length(v) + sum((size * weight) %% 1)) %% 1
  }
  turn
}
