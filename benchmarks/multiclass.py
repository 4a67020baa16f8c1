"""ReducedSVC, L2SVC and LowRankLSSVC with their defaults on sets of several classes.

Beside SVC and HistGradientBoosting: accuracy (mean of the splits) and seconds of the fit, on
standardised rows. A second table fits ReducedSVC at every C of a grid: how much the C that left-out
rows choose costs beside the best one. A third compares left-out error rates with refitting.
Nothing is chosen by the test rows.
"""

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ._harness import Options, Report, SkipBenchmark
from ._isolated import run_isolated
from ._tabular import Part, folder, split

SETS = ("letter", "optdigits", "satimage", "segment", "waveform", "soybean")
GRID = 10.0 ** np.arange(-2, 4)
MOST_ROWS = 10_000
BOOSTING, LEARNED = "HistGradientBoosting", "ReducedSVC, learned gamma"
BINARY = "phoneme"  # on whose rows left-out error rates are compared with refitting
LOSSES = {  # name in the table: loss, and sharpness of the logistic one
    "squared": ("squared", None),
    "squared_hinge": ("squared_hinge", None),
    "huber": ("huber", None),
    "logistic": ("logistic", 1.0),
    "sharp logistic": ("logistic", 1e4),
}


def _reduced(**options: Any) -> Any:
    from leansvm import ReducedSVC

    hinge = {"kernel": "rbf", "gamma": "scale", "loss": "squared_hinge", **options}
    return ReducedSVC(random_state=0, **hinge)


def _learned() -> Any:
    return _reduced(gamma="learn", kernel="auto")


def _l2svc() -> Any:
    from leansvm import L2SVC

    return L2SVC()


def _low_rank() -> Any:
    from leansvm import LowRankLSSVC

    return LowRankLSSVC(random_state=0)


def _svc() -> Any:
    from sklearn.svm import SVC

    return SVC()


def _boosting() -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(random_state=0)


MODELS: dict[str, Callable[..., Any]] = {
    "SVC": _svc,
    BOOSTING: _boosting,
    "ReducedSVC": _reduced,
    LEARNED: _learned,
    "L2SVC": _l2svc,
    "LowRankLSSVC": _low_rank,
}


def run(options: Options) -> Report:
    """Fit every model on every set, then ReducedSVC at every C, then row by row."""
    names = [name for name in SETS if (folder() / f"{name}.npz").exists()]
    if not names:
        raise SkipBenchmark(f"LEANSVM_DATA has none of {', '.join(SETS)}")
    report = Report("multiclass", "Defaults on sets of several classes", options)
    rows, splits = options.pick(MOST_ROWS, 400), options.pick(3, 1)
    good = 0
    for name in options.pick(names, names[-2:]):
        found = _all_models(report, name, rows, splits)
        good += _judge(report, name, found)
        _choice_of_C(report, name, rows)
    report.at_least(f"sets on which {LEARNED} >= boosting - 0.3", good, 4)
    there = (folder() / f"{BINARY}.npz").exists()
    for loss in LOSSES if there else ():
        for C in options.pick((0.01, 0.1, 1.0, 10.0, 100.0), (1.0,)):
            _refitting(report, loss, C, options.pick(300, 60))
    return report


def _all_models(report: Report, name: str, rows: int, splits: int) -> dict[str, Any]:
    outcomes_of: dict[str, list[Any]] = {model: [] for model in MODELS}
    for k in range(splits):  # models in turns: a slow spell of the machine meets all of them
        for model, outcomes in outcomes_of.items():
            outcomes.append(
                run_isolated(
                    "benchmarks.multiclass:fit_model", name=name, number=k, model=model, rows=rows
                )
            )
    found: dict[str, Any] = {}
    for model, outcomes in outcomes_of.items():
        row: dict[str, Any] = {"set": name, "model": model}
        if all(outcome.ok for outcome in outcomes):
            values = [outcome.value for outcome in outcomes]
            found[model] = {key: float(np.mean([v[key] for v in values])) for key in values[0]}
            row |= {key: round(value, 2) for key, value in found[model].items()}
        else:
            row["outcome"] = next(o.status for o in outcomes if not o.ok)
        report.add_row(row)
    return found


def _judge(report: Report, name: str, found: dict[str, Any]) -> bool:
    """Note the targets of one set; return whether learned gamma keeps up with boosting."""
    ours, svc, trees = (found.get(key) for key in ("ReducedSVC", "SVC", BOOSTING))
    if not (ours and svc and trees):
        return False
    report.at_least(f"{name}: accuracy - SVC's", ours["accuracy [%]"] - svc["accuracy [%]"], -0.2)
    report.at_most(f"{name}: fit / boosting's", ours["fit [s]"] / trees["fit [s]"], 5.0)
    if name == "letter":
        report.at_most("letter: seconds", ours["fit [s]"], 15.0)
    learned = found.get(LEARNED)
    return learned is not None and learned["accuracy [%]"] >= trees["accuracy [%]"] - 0.3


def fit_model(name: str, number: int, model: str, rows: int) -> dict[str, float]:
    """Fit and score one model on one split; called in a fresh interpreter."""
    warnings.simplefilter("ignore")
    part = _standardised(split(name, number, rows))
    MODELS[model]().fit(part.X[:300], part.y[:300])  # compiled code is not the fit's
    estimator = MODELS[model]()
    start = time.perf_counter()
    estimator.fit(part.X, part.y)
    seconds = time.perf_counter() - start
    accuracy = 100 * float(np.mean(estimator.predict(part.X_test) == part.y_test))
    return {"accuracy [%]": accuracy, "fit [s]": seconds}


def _choice_of_C(report: Report, name: str, rows: int) -> None:
    """Compare the test error at the chosen C with that at the best of a grid, at one size."""
    part = _standardised(split(name, 0, rows))
    size = min(250, len(part.y))
    errors = {}
    for C in ("loo", *GRID.tolist()):
        model = _reduced(C=C, n_basis=size).fit(part.X, part.y)
        errors[C] = 100 * float(np.mean(model.predict(part.X_test) != part.y_test))
        if C == "loo":
            chosen = model.C_
    best = min(GRID.tolist(), key=errors.__getitem__)
    row = {"set": name, "model": f"C={chosen:.3g} chosen", "error [%]": round(errors["loo"], 2)}
    report.add_row({**row, "best C": best, "its error [%]": round(errors[best], 2)})
    report.at_most(f"{name}: error at C chosen - at the best", errors["loo"] - errors[best], 0.3)


def _refitting(report: Report, loss: str, C: float, rows: int) -> None:
    """Compare the error rate of left-out rows with that of models fitted without each of them."""
    from leansvm.basis.features import whiten
    from leansvm.kernels import Kernel
    from leansvm.losses import get_loss
    from leansvm.newton.left_out import leave_out, left_out_residuals_of

    part = _standardised(split(BINARY, 0, rows))
    X, y = part.X, np.where(part.y == part.y[0], 1.0, -1.0)
    kernel, points = Kernel("rbf", gamma=1.0 / X.shape[1]), X[: rows // 5]
    features = whiten(kernel, points, points, constant=1.0)
    name, sharpness = LOSSES[loss]
    form = get_loss(name, p=sharpness)
    solver = _solver(X, y, None, features)
    solver.solve(form, C)
    leave_out(solver)
    values = y - left_out_residuals_of(solver)[:, 0]
    wrong = 0
    for i in range(len(y)):
        weight = np.ones(len(y))
        weight[i] = 0.0
        again = _solver(X, y, weight, features)
        again.minimise(form, C, solver.theta, 1e-6)
        wrong += float((features.transform(X[[i]]) @ again.theta)[0, 0]) * y[i] <= 0
    ours, exact = 100 * float(np.mean(values * y <= 0)), 100 * wrong / len(y)
    row = {"set": BINARY, "model": f"{loss}, C={C:g}, left out", "error [%]": round(ours, 2)}
    report.add_row({**row, "its error [%]": round(exact, 2)})
    report.at_most(f"{loss}, C={C:g}: |left out - refitted| [points]", abs(ours - exact), 1.0)


def _solver(X: np.ndarray, y: np.ndarray, weight: Any, features: Any) -> Any:
    from leansvm.newton.solver import NewtonSolver
    from leansvm.rows import MemoryBlocks

    return NewtonSolver(MemoryBlocks(X, y[:, None], weight), features)


def _standardised(part: Part) -> Part:
    centre, spread = part.X.mean(axis=0), part.X.std(axis=0)
    spread[spread == 0] = 1.0
    return part._replace(X=(part.X - centre) / spread, X_test=(part.X_test - centre) / spread)
