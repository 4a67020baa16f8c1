"""zhou2016: sparse LS-SVMs solved in the primal (Tables I-III, Figs. 1-5).

P-LSSVM fits all rows by few basis functions (`SparseLSSVC`): RRP, PCP, ICP, CSI name the way the
basis is chosen. D-LSSVM drops the other rows (`leansvm.papers.baselines`): RRD, FSA, PFSA.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from sklearn.svm import SVC

from leansvm import LSSVC, ReducedSVC, SparseLSSVC
from leansvm.basis import CSI, Backfitting, PivotedCholesky, RandomBasis
from leansvm.datasets import make_checkerboard, make_linear_toy
from leansvm.kernels import Kernel
from leansvm.model_selection import basis_path
from leansvm.papers._experiment import Drawing, Measured, RunOptions, Skipped, draws, reproduces
from leansvm.papers._fits import (
    Split,
    Trials,
    accuracy,
    cached,
    fit,
    published_split,
)
from leansvm.papers._panels import curves, plane
from leansvm.papers._published import Row, paper
from leansvm.papers.baselines import FSALSSVC, PrunedLSSVC, RandomReducedDualLSSVC

_SETS = {
    "USPS8": ("usps", 7),  # LIBSVM's label 8 is the digit 7
    "SHUTTLE": ("shuttle", 1),
    "MNIST8": ("mnist", 8),
    "ADULT": ("a9a", 1),
    "IJCNN": ("ijcnn1", 1),
    "VEHICLE": ("vehicle", 3),
}
_BASES = {
    "RRP-LSSVM": RandomBasis(),
    "PCP-LSSVM": PivotedCholesky(),
    "ICP-LSSVM": Backfitting(59),
    "ICP22-LSSVM": Backfitting(22),
    "CSI": CSI(tol=0),  # the paper stops at the number of points
}
_TRIALS = {"RRP-LSSVM": 10, "ICP-LSSVM": 2, "ICP22-LSSVM": 2, "PFSA-LSSVM": 5, "RRD-LSSVM": 10}


@lru_cache(maxsize=1)
def _data(dataset: str) -> Split:
    """One class against the others, scaled as the paper's files are."""
    name, label = _SETS[dataset]
    data = cached(name)
    if dataset == "SHUTTLE":
        data = data.scaled(-1, 1)
    elif dataset == "MNIST8":
        data = replace(data, X_train=data.X_train / 255, X_test=data.X_test / 255)
    return published_split(data.against_rest(label))


def _model(method: str, C: float, gamma: float, n_basis: int, seed: int) -> Any:
    common: dict[str, Any] = {"gamma": gamma, "n_basis": n_basis, "random_state": seed}
    match method:
        case "RRD-LSSVM":
            return RandomReducedDualLSSVC(C, **common)
        case "FSA-LSSVM":
            return FSALSSVC(C, tol=0.0, **common)
        case "PFSA-LSSVM":
            return FSALSSVC(C, tol=0.0, n_candidates=146, **common)
    return SparseLSSVC(C, basis=_BASES[method], **common)


def _given(dataset: str) -> tuple[float, float, int]:
    """Return lambda, gamma and the number of basis points of Table I."""
    one = paper("zhou2016").tables["table-1"].settings["datasets"][dataset]
    return one["lambda"], one["gamma_value"], one["n_basis_max"]


# ----------------------------------------------------------------------------- the tables


@reproduces("table-1")
def table_1(row: Row, run: RunOptions) -> Measured:
    """Eight algorithms, the paper's parameters, the published split."""
    run.only_full(row.dataset in ("MNIST8", "SHUTTLE"))
    run.only_full(row.method in ("CSI", "FSA-LSSVM", "ICP22-LSSVM") and row.dataset != "USPS8")
    lam, gamma, n_basis = _given(row.dataset)
    data = _data(row.dataset)
    trials = Trials()
    for seed in run.trials(_TRIALS[row.method]) if row.method in _TRIALS else range(1):
        model = _model(row.method, 1 / lam, gamma, n_basis, seed)
        seconds = fit(model, data.X, data.y)
        trials.add(
            test_accuracy=accuracy(model, data.X_test, data.y_test),
            train_time=seconds,
            n_basis=len(model.support_),
        )
    return trials.values


@reproduces("table-2")
def table_2(row: Row, run: RunOptions) -> Measured:
    """The reduced SVM with the squared hinge; its loss has no factor 1/2, so C = 2/lambda."""
    run.only_full(row.dataset in ("MNIST8", "SHUTTLE"))
    run.only_full(row.method == "ICP22+RSVM" and row.dataset != "USPS8")
    basis = {"RRSVM": "RRP-LSSVM", "PCP+RSVM": "PCP-LSSVM", "ICP22+RSVM": "ICP22-LSSVM"}[row.method]
    lam, gamma, n_basis = _given(row.dataset)
    data = _data(row.dataset)
    trials = Trials()
    for seed in range(1) if row.method == "PCP+RSVM" else run.trials(3):
        model = ReducedSVC(
            2 / lam,
            "rbf",
            loss="squared_hinge",
            gamma=gamma,
            basis=_BASES[basis],
            n_basis=n_basis,
            random_state=seed,
        )
        seconds = fit(model, data.X, data.y)
        trials.add(
            test_accuracy=accuracy(model, data.X_test, data.y_test),
            train_time=seconds,
            n_newton_steps=model.n_iter_,
        )
    return trials.values


@reproduces("table-3")
def table_3(row: Row, run: RunOptions) -> Measured:
    """COVTYPE and a checkerboard of four million points."""
    run.only_full(row.method in ("RRP-LSSVM", "PCP-LSSVM"))
    run.only_full(row.dataset == "Checkerboard3M" and row.key["n_basis"] > 300)
    given = row.settings["datasets"][row.dataset]
    n_basis, n_train = row.key["n_basis"], given.get("n_train_in_text", given["n_train"])
    X, y = _huge(row.dataset)
    trials = Trials()
    for seed in run.trials(5) if row.method in ("RRD-LSSVM", "PFSA-LSSVM") else range(1):
        order = np.random.default_rng(seed).permutation(len(y))
        train, test = order[:n_train], order[n_train:]
        model = _model(row.method, 1 / given["lambda"], given["gamma_value"], n_basis, seed)
        if row.method == "PCP-LSSVM":
            model.set_params(select_on=_CHOSEN_FROM)
        seconds = fit(model, X[train], y[train])
        trials.add(
            test_accuracy=accuracy(model, X[test], y[test]),
            train_time=seconds,
        )
    return trials.values


# Rows among which pivots are looked for: the factor takes 8 bytes per row and point, over ten
# gigabytes for all of the checkerboard. The model is fitted to all rows.
_CHOSEN_FROM = 200_000


@lru_cache(maxsize=1)
def _huge(dataset: str) -> tuple[np.ndarray, np.ndarray]:
    if dataset == "Checkerboard3M":
        return make_checkerboard(2000, extent=1.0)
    data = cached("covtype").scaled(0, 1).against_rest(2)
    return data.X_train, data.y_train


# --------------------------------------------------------------- approximation by few points

_SMALL = ("USPS8", "SHUTTLE", "MNIST8", "ADULT", "IJCNN")


@lru_cache(maxsize=1)
def _approximation(run: RunOptions) -> dict[str, dict[str, np.ndarray]]:
    """Errors (14), (15) and accuracies by sparsity level, 2,000 training rows, points by PCP."""
    sizes = np.unique(np.geomspace(10, 2000, 8 if run.quick else 16).astype(int))
    found = {}
    for dataset in ("USPS8", "IJCNN") if run.quick else _SMALL:
        trials = [_one_approximation(dataset, sizes, seed) for seed in run.trials(2)]
        found[dataset] = {name: np.mean([t[name] for t in trials], axis=0) for name in trials[0]}
    return found


def _one_approximation(dataset: str, sizes: np.ndarray, seed: int) -> dict[str, list[float]]:
    lam, gamma, _ = _given(dataset)
    data = _data(dataset)
    rng = np.random.default_rng(seed)
    rows = rng.permutation(len(data.y))[:2000]
    tests = rng.permutation(len(data.y_test))[:5000]
    X, y, m = data.X[rows], data.y[rows], len(rows)
    X_test, y_test = data.X_test[tests], data.y_test[tests]
    kernel = Kernel("rbf", gamma=gamma)
    K = kernel.block(X, X)
    order = SparseLSSVC(1 / lam, gamma=gamma, n_basis=m, basis=PivotedCholesky()).fit(X, y).support_
    left = np.setdiff1d(np.arange(m), order)  # rank exhausted: the rest in any order
    order = np.concatenate([order, left])
    names = ("level", "primal error", "dual error", "primal accuracy", "dual accuracy")
    found: dict[str, list[float]] = {name: [] for name in names}
    for size in sizes:
        B = order[:size]
        primal = SparseLSSVC(1 / lam, gamma=gamma, basis=B).fit(X, y)
        alpha = np.zeros(m)
        alpha[primal.support_] = primal.dual_coef_[0]
        f = K @ alpha
        off = f + primal.intercept_[0] - y
        rest = np.append(lam * f + K @ off, off.sum())
        found["primal error"].append(float(np.linalg.norm(rest)))
        beta, b = _dual(X, y, B, lam, gamma)
        rest = np.append(lam * beta + K @ beta + b - y, beta.sum())
        found["dual error"].append(float(np.linalg.norm(rest)))
        found["primal accuracy"].append(accuracy(primal, X_test, y_test))
        values = kernel.block(X_test, X[B]) @ beta[B] + b
        found["dual accuracy"].append(100 * float(np.mean(np.where(values > 0, 1, -1) == y_test)))
        found["level"].append(100 * size / m)
    return found


def _dual(
    X: np.ndarray, y: np.ndarray, B: np.ndarray, lam: float, gamma: float
) -> tuple[np.ndarray, float]:
    """Return coefficients and bias of (13): the LS-SVM on the rows B alone."""
    beta = np.zeros(len(y))
    if np.all(y[B] == y[B[0]]):  # one class: a constant
        return beta, float(y[B[0]])
    model = LSSVC(1 / lam, gamma=gamma, solver="cholesky").fit(X[B], y[B])
    beta[B[model.support_]] = model.dual_coef_[0]
    return beta, float(model.intercept_[0])


@draws("fig-1")
def figure_1(run: RunOptions) -> Drawing:
    """Approximation errors against the sparsity level."""
    drawing = Drawing()
    for dataset, found in _approximation(run).items():
        level = found["level"]
        lines = {
            "P-LSSVM (15)": (level, found["primal error"]),
            "D-LSSVM (14)": (level, found["dual error"]),
        }
        drawing.panels.append(
            curves(dataset, "sparsity level r/m (%)", "approximation error", lines, log="xy")
        )
        at = int(np.searchsorted(level, 20))
        falls = found["primal error"][0] / max(found["primal error"][at], 1e-300)
        dual = found["dual error"][0] / found["dual error"][at]
        drawing.findings.append(
            (
                f"{dataset}: from {level[0]:.1f} to {level[at]:.0f} % of the points, P-LSSVM's "
                f"error falls {falls:.3g} times, D-LSSVM's {dual:.3g} times.",
                bool(falls > dual),
            )
        )
    return drawing


@draws("fig-2")
def figure_2(run: RunOptions) -> Drawing:
    """Test accuracy of the same solutions."""
    drawing = Drawing()
    for dataset, found in _approximation(run).items():
        level = found["level"]
        lines = {
            "P-LSSVM": (level, found["primal accuracy"]),
            "D-LSSVM": (level, found["dual accuracy"]),
        }
        drawing.panels.append(
            curves(dataset, "sparsity level r/m (%)", "test accuracy (%)", lines, log="x")
        )
        few = level < 10
        primal, dual = (float(found[f"{k} accuracy"][few].mean()) for k in ("primal", "dual"))
        drawing.findings.append(
            (
                f"{dataset}: below 10 % of the points P-LSSVM has {primal:.1f} % on average, "
                f"D-LSSVM {dual:.1f} %.",
                primal > dual,
            )
        )
    return drawing


# ------------------------------------------------------------------------ the linear toy


def _toy_model(method: str) -> Any:
    match method:
        case "P-LSSVM":
            return SparseLSSVC(1.0, "linear", gamma="scale", basis="pivoted-cholesky", n_basis=2)
        case "D-LSSVM":
            return LSSVC(1.0, "linear")
        case "pruning LS-SVM [22]":
            return PrunedLSSVC(1.0, "linear", random_state=0)
        case "FSA-LSSVM [27]":
            return FSALSSVC(1.0, "linear", n_basis=152)
        case "standard SVM":
            return SVC(C=1.0, kernel="linear")
    raise Skipped(f"{method} is not in the library.")


@reproduces("fig-3")
def figure_3_numbers(row: Row, run: RunOptions) -> Measured:
    """Support vectors and error on two overlapping clouds."""
    trials = Trials()
    for seed in run.trials(20, quick=3):
        X, y = make_linear_toy(random_state=seed)
        model = _toy_model(row.method)
        fit(model, X[:400], y[:400])
        trials.add(n_sv=len(model.support_), test_error=100 - accuracy(model, X[400:], y[400:]))
    return trials.values


@draws("fig-3")
def figure_3(run: RunOptions) -> Drawing:
    """The lines of the five machines."""
    X, y = make_linear_toy(random_state=0)
    drawing = Drawing()
    for row in paper("zhou2016").tables["fig-3"].rows:
        model = _toy_model(row.method)
        fit(model, X[:400], y[:400])
        error = 100 - accuracy(model, X[400:], y[400:])
        title = f"{row.method}: {len(model.support_)} support vectors, error {error:.1f} %"
        drawing.panels.append(
            plane(title, model.decision_function, X[:400], y[:400], marks=X[model.support_][:60])
        )
    return drawing


# ----------------------------------------------------------- accuracy against sparsity level


def _paths(data: Split, dataset: str, sizes: list[int], seed: int) -> dict[str, list[float]]:
    """Test accuracies of several algorithms at these sizes; nested ones are fitted once."""
    lam, gamma, _ = _given(dataset)
    found: dict[str, list[float]] = {}
    for method in ("RRP-LSSVM", "PCP-LSSVM", "ICP22-LSSVM"):
        model = _model(method, 1 / lam, gamma, sizes[-1], seed)
        path = basis_path(model, data.X, data.y, X_score=data.X_test, y_score=data.y_test)
        score = 100 * np.asarray(path.score)
        found[method] = [float(score[min(r, len(score)) - 1]) for r in sizes]
    for method in ("RRD-LSSVM", "PFSA-LSSVM"):
        found[method] = []
        for r in sizes:
            model = _model(method, 1 / lam, gamma, r, seed)
            fit(model, data.X, data.y)
            found[method].append(accuracy(model, data.X_test, data.y_test))
    return found


def _levels(
    data: Split, dataset: str, title: str, sizes: list[int], seeds: range
) -> dict[str, Any]:
    runs = [_paths(data, dataset, sizes, seed) for seed in seeds]
    level = [100 * r / len(data.y) for r in sizes]
    lines: dict[str, tuple[Any, Any]] = {
        name: (level, np.mean([run[name] for run in runs], axis=0)) for name in runs[0]
    }
    share = 100 * max(np.mean(data.y_test == 1), np.mean(data.y_test == -1))
    lines["majority"] = ([level[0], level[-1]], [share, share])
    dashed = ("RRD-LSSVM", "PFSA-LSSVM", "majority")
    return curves(
        title, "sparsity level r/m (%)", "test accuracy (%)", lines, log="x", dashed=dashed
    )


@draws("fig-4")
def figure_4(run: RunOptions) -> Drawing:
    """All training rows, up to the paper's number of points; tests on at most 20,000 rows."""
    run.only_full()
    drawing = Drawing()
    for dataset in _SMALL:
        data = _data(dataset)
        some = np.random.default_rng(0).permutation(len(data.y_test))[:20_000]
        data = Split(data.X, data.y, data.X_test[some], data.y_test[some])
        most = _given(dataset)[2]
        sizes = [r for r in (5, 10, 20, 50, 100, 150, 200, 300, 400) if r <= most]
        title = f"{dataset}, {len(data.y):,} rows"
        drawing.panels.append(_levels(data, dataset, title, sizes, range(1)))
    return drawing


@draws("fig-5")
def figure_5(run: RunOptions) -> Drawing:
    """2,000 and 10,000 training rows."""
    drawing = Drawing()
    for m in (2000,) if run.quick else (2000, 10_000):
        for dataset in ("ADULT", "IJCNN"):
            data = _data(dataset)
            rng = np.random.default_rng(0)
            rows = rng.permutation(len(data.y))[:m]
            some = rng.permutation(len(data.y_test))[: 5_000 if run.quick else 20_000]
            part = Split(data.X[rows], data.y[rows], data.X_test[some], data.y_test[some])
            title = f"{dataset}, {m:,} rows"
            sizes = [5, 10, 20, 50, 100, 200, 400]
            drawing.panels.append(_levels(part, dataset, title, sizes, run.trials(2)))
    return drawing
