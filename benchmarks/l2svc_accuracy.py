"""L2SVC on the data and parameters of peng2016, Tables 4-8, beside the paper's RLSSVM rows."""

import time

import numpy as np

from ._data import peng2016
from ._harness import Options, Report

# C and gamma of the L2 loss (Table 3; gamma is 10^-1.8 and so on), support vectors and test rate
# with their standard deviations (Tables 4-8)
SETS = {
    "splice": {
        "linear": (1e-3, None, (969.7, 7.1), (83.33, 0.68)),
        "rbf": (1e1, 10**-1.8, (743.2, 16.9), (89.43, 0.49)),
    },
    "a1a": {
        "linear": (1e-1, None, (997.4, 29.3), (84.22, 0.12)),
        "rbf": (1e0, 10**-1.6, (1079.3, 25.0), (84.20, 0.15)),
    },
    "w1a": {
        "linear": (1e1, None, (524.4, 30.1), (97.98, 0.12)),
        "rbf": (1e1, 10**-1.6, (677.9, 38.3), (98.03, 0.07)),
    },
    "colon-cancer": {
        "linear": (1e-1, None, (22.5, 2.8), (82.81, 6.29)),
        "rbf": (1e2, 10**-4.6, (24.1, 2.7), (83.13, 6.88)),
    },
    "leukemia": {
        "linear": (1e-1, None, (30.6, 1.8), (94.41, 5.95)),
        "rbf": (1e3, 1e-5, (32.3, 1.8), (93.82, 6.76)),
    },
}
MOST_ITERATIONS = 15


def run(options: Options) -> Report:
    """Ten random splits of the sizes of Table 2."""
    report = Report("l2svc_accuracy", "L2SVC beside peng2016, Tables 4-8 (RLSSVM)", options)
    for name, kernels in SETS.items():
        if options.quick and name != "colon-cancer":
            continue
        X, y, n_train = peng2016(name)
        for kernel, (C, gamma, paper_sv, paper_rate) in kernels.items():
            fits = [_fit(X, y, n_train, kernel, C, gamma, seed) for seed in range(10)]
            sv, rate, iterations, seconds = map(np.array, zip(*fits, strict=True))
            report.rows.append(
                {
                    "data": name,
                    "kernel": kernel,
                    "C": C,
                    "SVs, paper": f"{paper_sv[0]} ±{paper_sv[1]}",
                    "SVs": f"{sv.mean():.1f} ±{sv.std():.1f}",
                    "rate, paper [%]": f"{paper_rate[0]} ±{paper_rate[1]}",
                    "rate [%]": f"{rate.mean():.2f} ±{rate.std():.2f}",
                    "iterations": f"{iterations.min()} to {iterations.max()}",
                    "fit [s]": round(float(np.median(seconds)), 4),
                }
            )
            label = f"{name}, {kernel}"
            report.at_least(f"test rate, {label}", rate.mean(), paper_rate[0] - paper_rate[1])
            allowed = max(paper_sv[1], 0.05 * paper_sv[0])
            off = abs(sv.mean() - paper_sv[0])
            report.at_most(f"support vectors off by, {label}", off, allowed)
            report.at_most(f"iterations, {label}", int(iterations.max()), MOST_ITERATIONS)
    return report


def _fit(X, y, n_train: int, kernel: str, C: float, gamma: float | None, seed: int) -> tuple:
    from leansvm import L2SVC

    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:n_train], order[n_train:]
    model = L2SVC(C, kernel, gamma=gamma or "scale")
    start = time.perf_counter()
    model.fit(X[train], y[train])
    seconds = time.perf_counter() - start
    return len(model.support_), 100 * model.score(X[test], y[test]), model.n_iter_, seconds
