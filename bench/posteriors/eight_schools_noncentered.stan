data {
  int<lower=0> J;
  vector[J] y;
  vector<lower=0>[J] sigma;
}
parameters {
  vector[J] theta_trans;
  real mu;
  real<lower=0> tau;
}
transformed parameters {
  vector[J] theta = mu + tau * theta_trans;
}
model {
  tau ~ cauchy(0, 5);
  mu ~ normal(0, 5);
  theta_trans ~ normal(0, 1);
  y ~ normal(theta, sigma);
}
