#!/usr/bin/python3
"""The paper's experiment (app:experiment_details) read directly into NumPy.

Bayesian logistic regression, f(x) = alpha/2 |x|^2 + sum_i log(1 + exp(u_i'x)) - y_i u_i'x, a laplace base, and four
methods with a budget of E gradient evaluations:

    psgd         N = 1,                 K = E,                lambda_Sigma = 1,                gamma = 1/(2 L sqrt(d-1+kappa) sqrt(E))
    psgd_scaled  N = 1,                 K = E,                lambda_Sigma = 1/(2(d-1+kappa)), gamma = 1/(2 L sqrt(E))
    case1        N = sqrt((d+kappa) E), K = sqrt(E/(d+kappa)), lambda_Sigma = 1,                gamma = 1/(2 L)
    case2        N = sqrt(E),           K = sqrt(E),          lambda_Sigma = 1/(2(d-1+kappa)), gamma = 1/(2 L)

This is the baseline of bench/numpy.R. It is meant to be what the authors would plausibly have run, and fair: vectorised
over the batch, no objective trace and no averaging inside the timed loop, same BLAS as R. The projection is the
paper's: one np.linalg.svd of the symmetrised scale per iteration. `--decomposition eigh` swaps in np.linalg.eigh, the
cheaper routine a careful author could have used, so that the bench can say how much of a ratio is only that choice.

Prints one JSON line. Run with OPENBLAS_NUM_THREADS=1.
"""
import argparse
import json
import math
import os
import statistics
import time

import numpy as np


def read_data(path):
    """U (M x d, C order) and y (M) from an .npz, or a directory with U.bin/y.bin (R's column-major doubles) or CSVs."""
    if os.path.isfile(path):
        with np.load(path) as data:
            U, y = data["U"], data["y"]
    elif os.path.exists(os.path.join(path, "U.bin")):
        y = np.fromfile(os.path.join(path, "y.bin"), dtype="<f8")
        U = np.fromfile(os.path.join(path, "U.bin"), dtype="<f8").reshape((y.size, -1), order="F")
    else:
        U = np.loadtxt(os.path.join(path, "U.csv"), delimiter=",", ndmin=2)
        y = np.loadtxt(os.path.join(path, "y.csv"), delimiter=",").ravel()
    if U.shape[0] != y.size:
        raise SystemExit("U has %d rows, y has %d entries" % (U.shape[0], y.size))
    return np.ascontiguousarray(U, dtype=float), np.ascontiguousarray(y, dtype=float)


def laplace_draws(rng, n, d):
    """n x d: z = R u, u uniform on the sphere, R ~ Gamma(d, rate sqrt(d+1)); standardized."""
    Z = rng.standard_normal((n, d))
    R = rng.gamma(d, 1.0 / math.sqrt(d + 1.0), size=n)
    Z *= (R / np.sqrt(np.einsum("ij,ij->i", Z, Z)))[:, None]
    return Z


def settings(method, E, d, L):
    """Step, lambda_Sigma, batch and iteration count. Rounded so that N*K <= E."""
    kappa = 3.0 * (d + 3.0) / (d + 1.0)
    scaled = 1.0 / (2.0 * (d - 1.0 + kappa))
    if method == "psgd":
        return 1.0 / (2.0 * L * math.sqrt(d - 1.0 + kappa) * math.sqrt(E)), 1.0, 1, E
    if method == "psgd_scaled":
        return 1.0 / (2.0 * L * math.sqrt(E)), scaled, 1, E
    if method == "case1":
        K = min(E, max(1, round(math.sqrt(E / (d + kappa)))))
        return 1.0 / (2.0 * L), 1.0, E // K, K
    K = min(E, max(1, round(math.sqrt(E))))
    return 1.0 / (2.0 * L), scaled, E // K, K


def gradient(X, U, y, alpha):
    """grad f at each row of X."""
    p = 0.5 * (1.0 + np.tanh(0.5 * (X @ U.T)))  # the logistic function without overflow
    p -= y
    return p @ U + alpha * X


def project_svd(S, floor):
    """Symmetrise, SVD, clip. The sign makes a negative eigenvalue, which an SVD shows as positive, clip too."""
    S = 0.5 * (S + S.T)
    W, s, Vt = np.linalg.svd(S)
    s *= np.sign(np.einsum("ij,ji->j", W, Vt))
    np.maximum(s, floor, out=s)
    return (W * s) @ W.T


def project_eigh(S, floor):
    w, V = np.linalg.eigh(0.5 * (S + S.T))
    np.maximum(w, floor, out=w)
    return (V * w) @ V.T


def run(rng, U, y, alpha, L, step, lambda_sigma, batch, iterations, project):
    d = U.shape[1]
    floor = 1.0 / math.sqrt(L)
    mu = np.zeros(d)
    Sigma = floor * np.eye(d)
    for _ in range(iterations):
        Z = laplace_draws(rng, batch, d)
        G = gradient(mu + Z @ Sigma, U, y, alpha)  # Sigma is symmetric
        g_mu = G.mean(axis=0)
        g_Sigma = (G.T @ Z) / batch - np.linalg.inv(Sigma)
        mu = mu - step * g_mu
        Sigma = project(Sigma - (step * lambda_sigma) * g_Sigma, floor)
    return mu, Sigma


def objective(rng, mu, Sigma, U, y, alpha, n=1000):
    """F = E f(mu + Sigma z) - log|Sigma| by n draws (no base entropy constant), and its standard error."""
    X = mu + laplace_draws(rng, n, mu.size) @ Sigma
    eta = X @ U.T
    f = 0.5 * alpha * np.einsum("ij,ij->i", X, X) + np.logaddexp(0.0, eta).sum(axis=1) - eta @ y
    return f.mean() - np.linalg.slogdet(Sigma)[1], f.std(ddof=1) / math.sqrt(n)


def blas_files():
    """The BLAS/LAPACK files this process has mapped."""
    found = set()
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line.split(None, 5)[-1].strip()
            name = os.path.basename(path).lower()
            if path.startswith("/") and name.startswith("lib") and ("blas" in name or "lapack" in name or "mkl" in name):
                found.add(path)
    return sorted(found)


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--method", required=True, choices=["psgd", "psgd_scaled", "case1", "case2"])
    ap.add_argument("--data", required=True, help=".npz with U and y, or a directory with U.bin/y.bin or U.csv/y.csv")
    ap.add_argument("--budget", type=int, default=5000)
    ap.add_argument("--alpha", type=float, default=0.1)
    ap.add_argument("--L", choices=["correct", "printed"], default="correct",
                    help="alpha + sigma_max^2/4 (correct) or alpha + sigma_max/4 (as printed)")
    ap.add_argument("--decomposition", choices=["svd", "eigh"], default="svd")
    ap.add_argument("--repeats", type=int, default=1)
    ap.add_argument("--iterations", type=int, help="stop after this many iterations (timing); step and batch unchanged")
    ap.add_argument("--batch", type=int, help="draws per iteration, where the caller rounds N otherwise than here")
    ap.add_argument("--seed", type=int, default=1)
    a = ap.parse_args()
    if any(v is not None and v < 1 for v in (a.budget, a.repeats, a.iterations, a.batch)):
        ap.error("--budget, --repeats, --iterations and --batch must be at least 1")

    U, y = read_data(a.data)
    sigma_max = np.linalg.norm(U, 2)
    L = a.alpha + 0.25 * (sigma_max ** 2 if a.L == "correct" else sigma_max)
    step, lambda_sigma, batch, K = settings(a.method, a.budget, U.shape[1], L)
    if a.batch is not None:
        batch, K = a.batch, max(1, a.budget // a.batch)
    done = K if a.iterations is None else min(K, a.iterations)
    project = project_svd if a.decomposition == "svd" else project_eigh
    args = (U, y, a.alpha, L, step, lambda_sigma, batch)

    run(np.random.default_rng(0), *args, 1, project)  # untimed: libraries loaded, pages touched
    wall, cpu, F, se = [], [], [], []
    for r in range(a.repeats):
        rng = np.random.default_rng([a.seed, r])
        w0, c0 = time.perf_counter(), time.process_time()
        mu, Sigma = run(rng, *args, done, project)
        wall.append(time.perf_counter() - w0)
        cpu.append(time.process_time() - c0)
        value, error = objective(np.random.default_rng([a.seed, r, 1]), mu, Sigma, U, y, a.alpha)
        F.append(value)
        se.append(error)

    print(json.dumps({
        "method": a.method, "decomposition": a.decomposition, "L": L, "step": step, "lambda_sigma": lambda_sigma,
        "batch": batch, "iterations_planned": K, "iterations": done,
        "seconds": statistics.median(wall), "seconds_all": wall, "cpu_seconds": statistics.median(cpu),
        "objective": F, "objective_se": se, "numpy": np.__version__, "blas": blas_files(),
        "threads": os.environ.get("OPENBLAS_NUM_THREADS"),
    }))


if __name__ == "__main__":
    main()
