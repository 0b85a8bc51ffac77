data {
  int<lower=0> N;
  int<lower=0> Npts;
  int<lower=1, upper=N> rat[Npts];
  vector[Npts] x;
  vector[Npts] y;
  real xbar;
}
parameters {
  vector[N] alpha;
  vector[N] beta;
  real mu_alpha;
  real mu_beta;
  real<lower=0> sigma_y;
  real<lower=0> sigma_alpha;
  real<lower=0> sigma_beta;
}
transformed parameters {
  real alpha0 = mu_alpha - xbar * mu_beta;
}
model {
  mu_alpha ~ normal(0, 100);
  mu_beta ~ normal(0, 100);
  alpha ~ normal(mu_alpha, sigma_alpha);
  beta ~ normal(mu_beta, sigma_beta);
  y ~ normal(alpha[rat] + beta[rat] .* (x - xbar), sigma_y);
}
