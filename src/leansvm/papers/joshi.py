"""joshi: LS-SVMs by single-multiplier updates (Table 1, Figs. 1-5).

RBF kernel with gamma = 1, C = 1, A = 10^4. LSSVM is `LSSVC`, 2SMO ``LSSVC(solver="smo",
bias_penalty=A)``, SesquiSMO ``L2SVC(solver="smo", bias_penalty=A)``. Features are not scaled,
which makes the errors large on some sets, in the paper too.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import MinMaxScaler

from leansvm import L2SVC, LSSVC
from leansvm.kernels import Kernel
from leansvm.papers._experiment import Drawing, Measured, RunOptions, draws, reproduces
from leansvm.papers._fits import Trials, accuracy, cached, fit
from leansvm.papers._panels import curves
from leansvm.papers._published import Row

Array = NDArray[np.float64]
GAMMA, C, A = 1.0, 1.0, 1e4
_HALVED = ("KR-VS-KP", "MUSHROOM")


def _data(dataset: str) -> tuple[np.ndarray, np.ndarray]:
    """Return raw features and labels ±1 in random order; half of the two largest sets."""
    name = {"PIMA-INDIAN": "diabetes"}.get(dataset, dataset.lower())
    data = cached(f"uci-{name}")
    order = np.random.default_rng(0).permutation(len(data.y_train))
    if dataset in _HALVED:
        order = order[: len(order) // 2]
    return data.X_train[order], np.where(data.y_train[order] == 1, 1, -1)


def _model(method: str, **options: Any) -> Any:
    common = {"C": C, "gamma": GAMMA, **options}
    match method:
        case "2SMO":
            return LSSVC(solver="smo", bias_penalty=A, **common)
        case "SesquiSMO":
            return L2SVC(solver="smo", bias_penalty=A, **common)
    return LSSVC(solver="cholesky", **common)


@reproduces("table-1")
def table_1(row: Row, run: RunOptions) -> Measured:
    """Ten-fold cross-validation; support vectors are coefficients above 1/1000 of the largest."""
    run.only_full(row.dataset in (*_HALVED, "SICK"))
    X, y = _data(row.dataset)
    scaled = MinMaxScaler().fit_transform(X)
    trials = Trials()
    for seed in run.trials(3):
        found: list[tuple[float, ...]] = []
        for train, test in StratifiedKFold(10, shuffle=True, random_state=seed).split(X, y):
            model = _model(row.method)
            seconds = fit(model, X[train], y[train])
            size = np.abs(model.dual_coef_[0])
            found.append(
                (accuracy(model, X[test], y[test]), np.sum(size > 1e-3 * size.max()), seconds)
            )
            model = _model(row.method).fit(scaled[train], y[train])
            found[-1] += (accuracy(model, scaled[test], y[test]),)
        correct, support, seconds, other = np.mean(found, axis=0)
        trials.add(cv_accuracy=correct, n_sv=support, train_time=seconds, scaled_accuracy=other)
    return trials.values


# ------------------------------------------------------------------------ time against A


def _against_A(dataset: str, run: RunOptions) -> Drawing:
    """Seconds to a violation of 1e-3, kernel matrix excluded; single updates stop at 30 sweeps."""
    run.only_full()
    X, y = _data(dataset)
    m, K = len(y), Kernel("rbf", gamma=GAMMA).block(X, X)
    values = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1e3, 1e4)
    ways = {"single updates (2SMO)": _single_updates, "blocks (default)": _blocks}
    lines: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in ways}
    for penalty in values:
        for name, solve_relaxed in ways.items():
            found = [solve_relaxed(K, y.astype(np.float64), penalty) for _ in range(3)]
            if None not in found:
                lines[name][0].append(penalty)
                lines[name][1].append(min(filter(None, found)))
    title = f"{dataset}, {m:,} rows"
    drawing = Drawing([curves(title, "A", "seconds", lines, log="xy")])
    penalties, seconds = lines["single updates (2SMO)"]
    first, last = penalties[0], penalties[-1]
    text = (
        f"{dataset}: single updates take {seconds[0]:.2g} s at A = {first:g} and "
        f"{seconds[-1]:.2g} s at A = {last:g}"
    )
    if first > values[0]:
        text += f"; below A = {first:g}, 30 sweeps do not suffice"
    drawing.findings = [(f"{text}.", seconds[0] > seconds[-1])]
    return drawing


def _single_updates(K: Array, y: Array, penalty: float) -> float | None:
    """Return the seconds of 2SMO as in the paper, None if 30 sweeps do not suffice.

    The multiplier with the largest violation r of (K + 11'/A + I/C) beta = y moves to its optimum.
    """
    start = time.perf_counter()
    residual, step = y.copy(), 1.0 / (K.diagonal() + 1.0 / penalty + 1.0 / C)
    for _ in range(30 * len(y)):
        if residual @ residual <= 1e-6 * (y @ y):
            return time.perf_counter() - start
        k = int(np.abs(residual).argmax())
        change = residual[k] * step[k]
        residual -= change * K[k]
        residual -= change / penalty
        residual[k] -= change / C
    return None


def _blocks(K: Array, y: Array, penalty: float) -> float | None:
    """Return the seconds of `LSSVC` with its own steps, None if 30 sweeps do not suffice."""
    model = LSSVC(C, "precomputed", solver="smo", bias_penalty=penalty, tol=1e-3, max_iter=30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        report = model.fit(K, y).fit_report_
    return float(report["seconds"]["solve"]) if report["converged"] else None


@draws("fig-1")
def figure_1(run: RunOptions) -> Drawing:
    """Time against A on kr-vs-kp."""
    return _against_A("KR-VS-KP", run)


@draws("fig-2")
def figure_2(run: RunOptions) -> Drawing:
    """Time against A on mushroom."""
    return _against_A("MUSHROOM", run)


# ------------------------------------------------------------------------ time against m


@draws("fig-3")
def figure_3(run: RunOptions) -> Drawing:
    """Seconds against the number of rows, all of mushroom in twelfths, kernel included."""
    run.only_full()
    data = cached("uci-mushroom")
    order = np.random.default_rng(0).permutation(len(data.y_train))
    X, y = data.X_train[order], np.where(data.y_train[order] == 1, 1, -1)
    lines: dict[str, tuple[list[float], list[float]]] = {}
    for method in ("LSSVM", "2SMO", "SesquiSMO"):
        _model(method).fit(X[:300], y[:300])
        for part in range(1, 13):
            rows = len(y) * part // 12
            seconds = min(
                fit(_model(method, tol=1e-3 if method != "LSSVM" else 1e-8), X[:rows], y[:rows])
                for _ in range(2)
            )
            lines.setdefault(method, ([], []))[0].append(part)
            lines[method][1].append(seconds)
    leading = {
        name: float(np.polyfit(parts, seconds, 2)[0]) for name, (parts, seconds) in lines.items()
    }
    order_ = leading["LSSVM"] > leading["2SMO"] > leading["SesquiSMO"] > 0
    text = ", ".join(f"{name} {value:.2g}" for name, value in leading.items())
    return Drawing(
        [curves("mushroom", "twelfths of the rows", "seconds", lines)],
        [(f"Leading coefficients of fitted quadratics: {text}.", bool(order_))],
    )


# ----------------------------------------------------------------------------------- SUMT


def sumt_path(dataset: str) -> tuple[list[float], list[float]]:
    """Return ‖λ - λ of the LS-SVM‖ and |Σ λ y| after every step; A falls by 0.9 from 10^4.

    Every relaxed problem is solved exactly: with G = K + I/C, u = G^-1 1 and v = G^-1 y its
    solution is λ y = v - u b,  b = 1'v / (A + 1'u).
    """
    X, y = _data(dataset)
    G = Kernel("rbf", gamma=GAMMA).block(X, X) + np.eye(len(y)) / C
    u, v = cho_solve(cho_factor(G), np.column_stack([np.ones(len(y)), y])).T
    exact = v - u * (v.sum() / u.sum())
    distances: list[float] = []
    imbalances: list[float] = []
    for A_k in A * 0.9 ** np.arange(400):
        beta = v - u * (v.sum() / (A_k + u.sum()))
        distances.append(float(np.linalg.norm(beta - exact)))
        imbalances.append(abs(float(beta.sum())))
        if imbalances[-1] <= 1e-6 * np.abs(beta).sum():
            break
    return distances, imbalances


def _convergence(dataset: str, which: int, label: str) -> Drawing:
    values = sumt_path(dataset)[which]
    steps = list(range(1, len(values) + 1))
    panel = curves(
        f"{dataset.lower()}: {label}", "SUMT step", label, {label: (steps, values)}, log="y"
    )
    text = f"{label} falls from {values[0]:.3g} to {values[-1]:.2g} in {len(values)} steps."
    return Drawing([panel], [(text, values[-1] < 1e-3 * values[0])])


@draws("fig-4")
def figure_4(run: RunOptions) -> Drawing:
    """Distance of the multipliers from those of the LS-SVM, sick."""
    run.only_full()
    return _convergence("SICK", 0, "‖λ − λ of LSSVM‖")


@draws("fig-5")
def figure_5(run: RunOptions) -> Drawing:
    """|Σ λ y| on ionosphere."""
    return _convergence("IONOSPHERE", 1, "|Σ λ y|")
