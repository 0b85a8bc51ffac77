data {
  int<lower=0> I;
  int<lower=0> n[I];
  int<lower=0> N[I];
  vector[I] x1;
  vector[I] x2;
}
parameters {
  real alpha0;
  real alpha1;
  real alpha12;
  real alpha2;
  real<lower=0> tau;
  vector[I] b;
}
transformed parameters {
  real<lower=0> sigma = 1 / sqrt(tau);
}
model {
  alpha0 ~ normal(0, 1000);
  alpha1 ~ normal(0, 1000);
  alpha2 ~ normal(0, 1000);
  alpha12 ~ normal(0, 1000);
  tau ~ gamma(0.001, 0.001);
  b ~ normal(0, sigma);
  n ~ binomial_logit(N, alpha0 + alpha1 * x1 + alpha2 * x2 + alpha12 * (x1 .* x2) + b);
}
