data {
  int<lower=0> N;
  int<lower=0> n[N];
  int<lower=0> r[N];
}
parameters {
  real mu;
  real<lower=0> sigmasq;
  vector[N] b;
}
transformed parameters {
  real<lower=0> sigma = sqrt(sigmasq);
}
model {
  mu ~ normal(0, 1000);
  sigmasq ~ inv_gamma(0.001, 0.001);
  b ~ normal(mu, sigma);
  r ~ binomial_logit(n, b);
}
generated quantities {
  real pop_mean = inv_logit(mu);
}
