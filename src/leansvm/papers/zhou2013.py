"""zhou2013: regularisation in the RKHS (M1) or of the coefficients (M2), Tables 1-5, Figs. 1-2.

All machines have no bias. RC is a basis drawn at random, WC the forward selection of Keerthi,
Chapelle and DeCoste (``basis="forward"``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from leansvm import ReducedSVC
from leansvm.datasets import make_checkerboard
from leansvm.losses import get_loss
from leansvm.papers._experiment import (
    Chart,
    Drawing,
    Measured,
    RunOptions,
    Skipped,
    draws,
    reproduces,
)
from leansvm.papers._fits import Split, Trials, accuracy, cached, fit, published_split
from leansvm.papers._panels import curves, plane
from leansvm.papers._published import Row, paper

_LOSSES = {"LS": "squared", "SH": "squared_hinge", "Hub": "huber", "Log": "logistic"}
_REGULARIZERS = {"M1": "rkhs", "M2": "coef"}
_BASES = {"RC": "random", "WC": "forward"}


def _model(method: str, lam: float, gamma: float, r: int, seed: int) -> ReducedSVC:
    """Return the machine of a method such as M1+SH or M2+SH+WC."""
    regularizer, loss, *basis = method.split("+")
    return ReducedSVC(
        1 / lam,
        "rbf",
        loss=_LOSSES[loss],
        p=1e4,  # the last of the paper's values
        regularizer=_REGULARIZERS[regularizer],
        gamma=gamma,
        fit_intercept=False,
        basis=_BASES[basis[0] if basis else "RC"],
        n_basis=r,
        random_state=seed,
    )


# ---------------------------------------------------------------------------- the losses

_FORMULAS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "Huber": (
        lambda u, d: np.where(np.abs(u) > d, np.maximum(0, u), (u + d) ** 2 / (4 * d)),
        lambda v, d: d * v * (v - 1),
    ),
    "Logistic": (
        lambda u, p: np.logaddexp(0, p * u) / p,
        lambda v, p: ((1 - v) * np.log(1 - v) + v * np.log(v)) / p,
    ),
    "Squared hinge": (lambda u: np.maximum(0, u) ** 2 / 2, lambda v: v**2 / 2),
    "Least squares": (lambda u: u**2 / 2, lambda v: v**2 / 2),
}


@reproduces("table-1")
def table_1(row: Row, run: RunOptions) -> Measured:
    """Our losses and conjugates beside the printed formulas, on a grid."""
    if row.method not in _FORMULAS:
        raise Skipped(
            "The hinge and the absolute loss have no second derivative; that of the p-norm is not "
            "bounded. Newton's method needs a bounded one. Huber and logistic losses approach the "
            "hinge."
        )
    value, conjugate = _FORMULAS[row.method]
    name = row.method.lower().replace(" ", "_").replace("least_squares", "squared")
    shape: dict[str, Any] = {"Huber": {"delta": 0.5}, "Logistic": {"p": 10.0}}.get(row.method, {})
    loss = get_loss(name, **shape)
    u, v = np.linspace(-3, 3, 1001), np.linspace(0.001, 0.999, 1001)
    arguments = tuple(shape.values())
    return {
        "loss_difference": [float(np.abs(loss.value(u) - value(u, *arguments)).max())],
        "conjugate_difference": [float(np.abs(loss.conjugate(v) - conjugate(v, *arguments)).max())],
    }


# ----------------------------------------------------------------------- the checkerboard


def _board(m: int, seed: int) -> Split:
    X, y = make_checkerboard()
    order = np.random.default_rng(seed).permutation(len(y))
    return Split(X[order[:m]], y[order[:m]], X[order[m:]], y[order[m:]])


_BY_SIZE = Chart("m", "test_error", each="lambda", log="y", x_label="training points m")


@reproduces("table-2", "table-3", "table-4", charts=[_BY_SIZE])
def tables_2_to_4(row: Row, run: RunOptions) -> Measured:
    """m random points train, the others of the 40,000 test."""
    run.only_full(row.key["m"] > 4000)
    lam = row.key.get("lambda", row.settings["lambda"])
    trials = Trials()
    few = row.table == "table-4" and row.key["m"] > 4000  # choosing a basis is slow
    for seed in run.trials(5 if few else 20, quick=3):
        data = _board(row.key["m"], seed)
        model = _model(row.method, lam, row.settings["gamma"], row.key["r"], seed)
        seconds = fit(model, data.X, data.y)
        trials.add(
            test_error=100 - accuracy(model, data.X_test, data.y_test),
            train_time=seconds,
            n_newton_steps=model.n_iter_,
            n_sv=np.sum(data.y * model.decision_function(data.X) < 1),
        )
    return trials.values


@draws("fig-1")
def figure_1(run: RunOptions) -> Drawing:
    """Level lines of M1 and M2 with the squared loss, m = 4,000 and 15,000."""
    drawing = Drawing()
    X, y = make_checkerboard()
    for lam in (0.1, 0.01):
        centres = {}
        for method, name in (("M1+LS", "M1 (LS-SVM)"), ("M2+LS", "M2 (PSVM)")):
            for m, r in ((4000, 300), (15_000, 1000)):
                data = _board(m, 0)
                model = _model(method, lam, 0.001, r, 0)
                fit(model, data.X, data.y)
                f = model.decision_function
                centres[name, m] = _sure_centres(f)
                sure = 100 * float(np.mean(y * f(X) > 1))
                title = f"{name}, λ = {lam:g}, m = {m:,}: y f > 1 on {sure:.0f} % of the board"
                low = np.flatnonzero(data.y * f(data.X) < 1)
                some = np.random.default_rng(0).permutation(low)[:200]
                drawing.panels.append(plane(title, f, data.X[some], data.y[some], margin=0.0))
        counts = ", ".join(f"{name}, m = {m:,}: {n}" for (name, m), n in centres.items())
        regular = all(n == 16 for (name, _), n in centres.items() if "M2" in name)
        drawing.findings.append(
            (
                f"λ = {lam:g}: cells of 16 in which |f| is larger at the centre than around it: "
                f"{counts}.",
                regular and min(centres.values()) < 16,
            )
        )
    return drawing


def _sure_centres(f: Callable[[np.ndarray], np.ndarray]) -> int:
    """Count the cells in which y f is larger within 8 of the centre than 12 to 16 away from it."""
    cell = np.stack(np.meshgrid(np.arange(50.0), np.arange(50.0)), axis=-1).reshape(-1, 2)
    distance = np.hypot(*(cell - 24.5).T)
    count = 0
    for i, j in np.ndindex(4, 4):
        values = (-1) ** (i + j) * f(cell + np.array([50 * i, 50 * j]))
        ring = (distance > 12) & (distance < 16)
        count += bool(values[distance < 8].mean() > values[ring].mean())
    return count


# -------------------------------------------------------------------------- large data sets

_SETS = {"Adult": "a9a", "Shuttle": "shuttle", "IJCNN": "ijcnn1", "Vehicle": "vehicle"}


def _large(dataset: str) -> Split:
    data = cached(_SETS[dataset])
    if dataset == "Shuttle":
        data = data.scaled(-1, 1).against_rest(1)
    elif dataset == "Vehicle":
        data = data.against_rest(3)
    return published_split(data)


@reproduces("table-5")
def table_5(row: Row, run: RunOptions) -> Measured:
    """Random bases of 4 % of the rows, at most 2,000."""
    run.only_full()
    given = row.settings["datasets"][row.dataset]
    data = _large(row.dataset)
    r = min(2000, round(0.04 * len(data.y)))
    trials = Trials()
    for seed in run.trials(1):
        model = _model(row.method, given["lambda"], given["gamma_value"], r, seed)
        seconds = fit(model, data.X, data.y)
        trials.add(
            test_error=100 - accuracy(model, data.X_test, data.y_test),
            train_time=seconds,
            n_newton_steps=model.n_iter_,
        )
    return trials.values


@draws("fig-2")
def figure_2(run: RunOptions) -> Drawing:
    """Test error and time against the size of the well-chosen basis; the random one is twice."""
    run.only_full()
    drawing = Drawing()
    settings = paper("zhou2013").tables["table-5"].settings["datasets"]
    sizes = (10, 30, 100, 200)
    for dataset in ("Adult", "IJCNN", "Shuttle"):
        data, given = _large(dataset), settings[dataset]
        rng = np.random.default_rng(0)
        rows = rng.permutation(len(data.y))[:5_000]
        X, y = data.X[rows], data.y[rows]
        errors: dict[str, tuple[list[float], list[float]]] = {}
        times: dict[str, tuple[list[float], list[float]]] = {}
        for name in ("M1+SH+RC", "M2+SH+RC", "M1+SH+WC", "M2+SH+WC"):
            for r in sizes:
                size = 2 * r if name.endswith("RC") else r
                model = _model(name, given["lambda"], given["gamma_value"], size, 0)
                seconds = fit(model, X, y)
                wrong = 100 - accuracy(model, data.X_test, data.y_test)
                for store, value in ((errors, wrong), (times, seconds)):
                    store.setdefault(name, ([], []))[0].append(r)
                    store[name][1].append(value)
        label = "points of the well-chosen basis"
        dashed = [name for name in errors if name.endswith("WC")]
        title = f"{dataset}, 5,000 rows"
        drawing.panels += [
            curves(f"{title}: test error", label, "%", errors, log="x", dashed=dashed),
            curves(f"{title}: time", label, "seconds", times, log="xy", dashed=dashed),
        ]
    return drawing
