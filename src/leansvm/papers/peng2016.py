"""peng2016: the squared-hinge SVM by following its support set (Tables 1-11, Figs. 1 and 2).

RLSSVM is ``L2SVC(solver="active-set")``, Primal ``L2SVC(solver="newton")``, LIBSVM scikit-learn's
`SVC`, LSSVM the pruned LS-SVM. SVMlight solves LIBSVM's problem with another algorithm.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse, vstack
from sklearn.svm import SVC

from leansvm import L2SVC
from leansvm.datasets import make_four_points
from leansvm.papers._experiment import (
    Chart,
    Drawing,
    Measured,
    RunOptions,
    Skipped,
    draws,
    reproduces,
)
from leansvm.papers._fits import Trials, accuracy, cached, fit, signs
from leansvm.papers._panels import plane
from leansvm.papers._published import Row, paper
from leansvm.papers.baselines import PrunedLSSVC

_SETS = {
    "Splice": "splice",
    "Adult": "a1a",
    "Web-page": "w1a",
    "Colon": "colon-cancer",
    "Leukemia": "leukemia",
}
_LOSSES = {"RLSSVM": "L2", "Primal": "L2", "LSSVM": "L2", "LIBSVM": "L1", "SVMLight": "L1"}
_MOST_ITERATIONS = 1_000_000  # of LIBSVM with a linear kernel and a large C


def _model(method: str, kernel: str, C: float, gamma: float | None = None) -> Any:
    parameters: dict[str, Any] = {"C": C, "kernel": "linear" if kernel == "linear" else "rbf"}
    if gamma is not None:
        parameters["gamma"] = _on_grid(gamma)
    match method:
        case "RLSSVM":
            return L2SVC(**parameters, solver="active-set")
        case "Primal":
            # a tolerance of 1e-8 is below the rounding errors of Newton's dense system at C = 1e4
            return L2SVC(**parameters, solver="newton", tol=1e-6)
        case "LIBSVM":
            return SVC(**parameters)
        case "LSSVM":
            return PrunedLSSVC(**parameters, step=0.05, trade_off=0.75, random_state=0)
    raise Skipped(
        "SVMlight is another program and was not run; it minimises the same objective as LIBSVM."
    )


def _on_grid(gamma: float) -> float:
    """Undo the rounding of the printed gamma: the grid has powers 10^(k/5)."""
    return float(10 ** (round(5 * math.log10(gamma)) / 5))


def _rows(dataset: str) -> tuple[Any, np.ndarray, int]:
    """Return all rows, the training part first, labels ±1, and the size of that part."""
    data = cached(_SETS[dataset])
    if data.y_test is None:
        return data.X_train, signs(data.y_train), 30
    X = (data.X_train, data.X_test)
    stacked = csr_array(vstack(X)) if issparse(X[0]) else np.vstack(X)
    y = np.concatenate([signs(data.y_train), signs(data.y_test)])
    return stacked, y, len(data.y_train)


# ------------------------------------------------------------------ the four-point problem


@reproduces("table-1")
def table_1(row: Row, run: RunOptions) -> Measured:
    """Four points in the plane: coefficients, bias and errors."""
    X, y = make_four_points()
    model = _model(row.method, "linear", row.settings["C"])
    if row.method == "LIBSVM":
        model.set_params(tol=1e-8)
    seconds = fit(model, X, y)
    order = np.argsort(model.support_)
    support, dual = model.support_[order], model.dual_coef_.ravel()[order]
    coefficients = dict(zip(support.tolist(), dual.tolist(), strict=True))
    errors = 1 - y * model.decision_function(X)
    w = sum(value * X[i] for i, value in coefficients.items())
    found: dict[str, float] = {f"sv_indices[{k}]": i + 1 for k, i in enumerate(coefficients, 1)}
    found |= {f"sv_coefficient[{i + 1}]": value for i, value in coefficients.items()}
    found |= {f"error[{i}]": value for i, value in enumerate(errors, 1)}
    found |= {"bias": float(model.intercept_[0]), "w_dot_w": float(w @ w)}
    violations = np.maximum(errors, 0.0)
    found |= {"l2_loss": float(violations @ violations), "run_time": seconds}
    return {name: [value] for name, value in found.items()}


@draws("fig-1")
def figure_1(run: RunOptions) -> Drawing:
    """LIBSVM's solution."""
    return _four_points({"LIBSVM, C = 10⁴": SVC(C=1e4, kernel="linear", tol=1e-8)})


@draws("fig-2")
def figure_2(run: RunOptions) -> Drawing:
    """RLSSVM's solutions: a smaller C gives a wider margin."""
    values = (1e4, 100.0, 10.0, 1.0, 0.1)
    drawing = _four_points({f"RLSSVM, C = {C:g}": L2SVC(C, "linear") for C in values})
    X, y = make_four_points()
    widths = []
    for C in values:
        model = L2SVC(C, "linear").fit(X, y)
        w = model.dual_coef_[0] @ X[model.support_]
        widths.append(2 / float(np.sqrt(w @ w)))
    drawing.findings = [
        (f"Margins grow as C falls: {', '.join(f'{v:.3f}' for v in widths)}.", _grows(widths)),
    ]
    return drawing


def _grows(values: list[float]) -> bool:
    return all(a < b for a, b in pairwise(values))


def _four_points(models: dict[str, Any]) -> Drawing:
    X, y = make_four_points()
    drawing = Drawing()
    for title, model in models.items():
        model.fit(X, y)
        panel = plane(
            f"{title}: {len(model.support_)} support vectors",
            model.decision_function, X, y, marks=X[model.support_], margin=0.5,
        )  # fmt: skip
        drawing.panels.append(panel)
    return drawing


# -------------------------------------------------------------------------- the data sets


@reproduces("table-2")
def table_2(row: Row, run: RunOptions) -> Measured:
    """Sizes of the data sets."""
    X, y, n_train = _rows(row.dataset)
    return {
        "n_train": [n_train],
        "n_test": [len(y) - n_train],
        "n_features": [X.shape[1]],
    }


@reproduces("table-3")
def table_3(row: Row, run: RunOptions) -> Measured:
    """The parameters, as Tables 4-8 use them here."""
    table = f"table-{4 + list(_SETS).index(row.dataset)}"
    used = paper("peng2016").tables[table].settings["parameters"][row.key["kernel"]]
    given = used[row.method[:2]]
    found = {"C": [given["C"]]}
    if "gamma" in given:
        found["gamma"] = [_on_grid(given["gamma"])]
    return found


@reproduces("table-4", "table-5", "table-6", "table-7", "table-8")
def tables_4_to_8(row: Row, run: RunOptions) -> Measured:
    """Random splits of all rows: support vectors, time, training and test accuracy."""
    kernel = row.key["kernel"]
    given = row.settings["parameters"][kernel][_LOSSES[row.method]]
    _model(row.method, kernel, **given)  # before the data are loaded: says what is not run
    X, y, n_train = _rows(row.dataset)
    run.only_full(row.dataset == "Web-page" and row.method == "LSSVM")
    trials = Trials()
    for seed in run.trials(10):
        order = np.random.default_rng(seed).permutation(len(y))
        train, test = order[:n_train], order[n_train:]
        model = _model(row.method, kernel, **given)
        seconds = fit(model, X[train], y[train])
        trials.add(
            n_sv=len(model.support_),
            run_time=seconds,
            train_accuracy=accuracy(model, X[train], y[train]),
            test_accuracy=accuracy(model, X[test], y[test]),
        )
    return trials.values


@reproduces(
    "table-9",
    "table-10",
    "table-11",
    charts=[Chart("C", "relative_run_time", log="xy")],
)
def tables_9_to_11(row: Row, run: RunOptions) -> Measured:
    """Time against C, linear kernel, training part as published; the best of three fits."""
    C = float(row.key["C"])
    _model(row.method, "linear", C)
    run.only_full(row.method in ("LSSVM", "Primal") or (row.method == "LIBSVM" and C > 0.1))
    X, y, n_train = _rows(row.dataset)
    X, y = X[:n_train], y[:n_train]
    best, n_iter = math.inf, 0
    for _ in range(3):
        model = _model(row.method, "linear", C)
        if row.method == "LIBSVM":
            model.set_params(max_iter=_MOST_ITERATIONS)
        best = min(best, fit(model, X, y))
        n_iter = int(np.max(getattr(model, "n_iter_", 0)))
        if best > 1.0:
            break
    return {"relative_run_time": [best], "n_iter": [n_iter]}
