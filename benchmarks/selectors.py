"""Which selector, and how many points: accuracy, seconds and size on all data sets.

The evidence behind the defaults ``basis`` and ``n_basis="auto"`` of SparseLSSVC. gamma is that of
zhou2016's tables, C is chosen by generalised cross-validation.
"""

import time
from typing import Any

import numpy as np

from ._data import covtype, zhou2016
from ._harness import Options, Report

# gamma and number of points
SETS = {
    "USPS8": (2.0**-7, 200),
    "SHUTTLE": (2.0, 200),
    "ADULT": (2.0**-6, 300),
    "IJCNN": (1.0, 400),
    "MNIST8": (2.0**-6, 400),
    "COVTYPE": (2.0**-2, 500),
}
SELECTORS = (
    "random",
    "pivoted-cholesky",
    "random-pivoted-cholesky",
    "entropy",
    "backfitting",
)


def run(options: Options) -> Report:
    """Average over seeds; judges nothing."""
    report = Report("selectors", "SparseLSSVC by selector, C by GCV", options)
    for name, (gamma, n_basis) in SETS.items():
        if options.quick and name != "ADULT":
            continue
        data = covtype(100_000) if name == "COVTYPE" else zhou2016(name)
        for selector in SELECTORS:
            report.rows.append(_row(name, data, selector, gamma, n_basis, options))
        for selector in SELECTORS[:3]:
            report.rows.append(_row(name, data, selector, gamma, "auto", options))
    return report


def _row(
    name: str, data: tuple, selector: str, gamma: float, n_basis: Any, options: Options
) -> dict[str, Any]:
    from leansvm import SparseLSSVC

    X, y, X_test, y_test = data
    accuracy, seconds, size = [], [], []
    seeds = 1 if selector == "pivoted-cholesky" or n_basis == "auto" else 2
    for seed in range(options.pick(seeds, 1)):
        model = SparseLSSVC("gcv", gamma=gamma, basis=selector, n_basis=n_basis, random_state=seed)
        start = time.perf_counter()
        model.fit(X, y)
        seconds.append(time.perf_counter() - start)
        accuracy.append(100 * model.score(X_test, y_test))
        size.append(model.n_support_)
    row = {
        "data": name,
        "n_basis": n_basis,
        "basis": selector,
        "accuracy [%]": round(float(np.mean(accuracy)), 2),
        "± std": round(float(np.std(accuracy)), 2),
        "points": int(np.median(size)),
        "fit [s]": round(float(np.median(seconds)), 2),
    }
    print(*row.values(), flush=True)  # the whole takes minutes
    return row
