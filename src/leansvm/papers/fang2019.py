"""fang2019: a few learned basis functions (Tables I and II, Fig. 1).

Methods: LSSVM with a Gaussian kernel, LSSVM-SBF (simplex functions) and LR-LSSVM (robust RBF)
with the paper's three objectives. Its steps are simultaneous and its last iterate counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leansvm import LSSVC, LowRankLSSVC
from leansvm.papers._experiment import Drawing, Measured, RunOptions, draws, reproduces
from leansvm.papers._fits import Split, Trials, accuracy, cached, fit, published_split
from leansvm.papers._panels import plane
from leansvm.papers._published import Row, paper

_FUNCTIONS = {
    "LSSVM-SBF": ("simplex", "abs"),
    "LR-LSSVM-abs": ("robust-rbf", "abs"),
    "LR-LSSVM-square": ("robust-rbf", "squared"),
    "LR-LSSVM-target": ("robust-rbf", "target"),
}
_SETS = {"Titanic": "ida-titanic", "Diabetes": "ida-diabetis", "German Credit": "ida-german"}


def _low_rank(method: str, given: Mapping[str, float]) -> LowRankLSSVC:
    """M, mu, gamma, eta and T of the paper."""
    function, objective = _FUNCTIONS[method]
    return LowRankLSSVC(
        function=function,
        objective=objective,
        n_basis=int(given["M"]),
        shape_init=given["mu"],
        C=given["gamma"],
        learning_rate=given["eta"],
        max_iter=int(given["T"]),
        init="medoids",
        update="simultaneous",  # the text before Algorithm 1 also allows "sequential"
        iterate="last",
    )


def _by_loss(n_basis: int) -> LowRankLSSVC:
    """Our own objective on as many functions as the paper has, from the paper's start."""
    return LowRankLSSVC(n_basis=n_basis, init="medoids")


def _gaussian(sigma: float, C: float) -> LSSVC:
    """k = exp(-‖x - z‖² / sigma²): the paper prints no formula, this one gives its errors."""
    return LSSVC(C=C, gamma=1 / sigma**2)


def _ripley() -> Split:
    return published_split(cached("synth"))


@reproduces("table-1")
def table_1(row: Row, run: RunOptions) -> Measured:
    """Ripley's synthetic data; everything is deterministic."""
    data = _ripley()
    given = row.settings["parameters"]["synthetic"].get(row.method, {})
    if row.beside:
        model: Any = _by_loss(int(row.method[-1]))
    elif row.method == "LSSVM-Gaussian":
        model = _gaussian(row.key["sigma"], given["gamma"])
    else:
        model = _low_rank(row.method, given)
    seconds = fit(model, data.X, data.y)
    size = len(model.support_) if row.method == "LSSVM-Gaussian" else len(model.centers_)
    error = 100 - accuracy(model, data.X_test, data.y_test)
    return {"test_error": [error], "model_size": [size], "train_time": [seconds]}


@reproduces("table-2")
def table_2(row: Row, run: RunOptions) -> Measured:
    """Mean over the published splits."""
    data = cached(_SETS[row.dataset])
    given = row.settings["parameters"][row.dataset].get(row.method, {})
    trials = Trials()
    for k in run.trials(100, quick=5):
        X, y, X_test, y_test = data.split(k)
        model = _by_loss(5) if row.beside else _low_rank(row.method, given)
        seconds = fit(model, X, y)
        trials.add(
            test_error=100 - accuracy(model, X_test, y_test),
            model_size=len(model.centers_),
            train_time=seconds,
        )
    return trials.values


@draws("fig-1")
def figure_1(run: RunOptions) -> Drawing:
    """Decision boundaries on Ripley's data."""
    data = _ripley()
    given = paper("fang2019").tables["table-1"].settings["parameters"]["synthetic"]
    models: dict[str, Any] = {
        "Gaussian kernel, σ = 1": _gaussian(1.0, given["LSSVM-Gaussian"]["gamma"])
    }
    for method, title in (
        ("LSSVM-SBF", "LSSVM-SBF"),
        ("LR-LSSVM-abs", "LR-LSSVM, absolute objective"),
        ("LR-LSSVM-square", "LR-LSSVM, squared objective"),
    ):
        models[title] = _low_rank(method, given[method])
    drawing = Drawing()
    for title, model in models.items():
        fit(model, data.X, data.y)
        size = len(model.support_) if isinstance(model, LSSVC) else len(model.centers_)
        error = 100 - accuracy(model, data.X_test, data.y_test)
        caption = f"{title}: {size} terms, error {error:.1f} %"
        marks = None if isinstance(model, LSSVC) else model.centers_
        drawing.panels.append(
            plane(caption, model.decision_function, data.X, data.y, levels=(0.0,), marks=marks)
        )
    return drawing
