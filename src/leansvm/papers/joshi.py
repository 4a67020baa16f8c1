"""joshi: LS-SVMs by single-multiplier updates (Table 1, Figs. 1-5).

RBF kernel with gamma = 1, C = 1, A = 10^4. LSSVM is `LSSVC`, 2SMO ``LSSVC(solver="smo",
bias_penalty=A)``, SesquiSMO ``L2SVC(solver="smo", bias_penalty=A)``. Features are not scaled,
which makes the errors large on some sets, in the paper too.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import MinMaxScaler

from leansvm import L2SVC, LSSVC
from leansvm.kernels import Kernel
from leansvm.papers._experiment import Drawing, Measured, RunOptions, draws, reproduces
from leansvm.papers._fits import Trials, accuracy, cached, fit
from leansvm.papers._panels import curves
from leansvm.papers._published import Row

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
    from leansvm.dual.kernel_matrix import StoredMatrix
    from leansvm.dual.smo import Quadratic, minimise

    run.only_full()
    X, y = _data(dataset)
    m = len(y)
    rows = StoredMatrix(Kernel("rbf", gamma=GAMMA).block(X, X))
    values = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1e3, 1e4)
    kinds = {"single updates (2SMO)": 1, "blocks (default)": None}
    lines: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in kinds}
    for penalty in values:
        quadratic = Quadratic(y.astype(np.float64), np.full(m, 1 / C), np.ones(m), c=1 / penalty)
        for name, block in kinds.items():
            best, status = np.inf, ""
            for _ in range(3):
                start = time.perf_counter()
                state = minimise(rows, quadratic, tol=1e-3, max_sweeps=30, block=block)
                best, status = min(best, time.perf_counter() - start), state.status
            if status == "done":
                lines[name][0].append(penalty)
                lines[name][1].append(best)
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
    """Return ‖λ - λ of the LS-SVM‖ and |Σ λ y| after every step; A falls by 0.9 from 10^4."""
    from leansvm.dual.cholesky import closed_form
    from leansvm.dual.free_bias import sumt
    from leansvm.dual.kernel_matrix import StoredMatrix
    from leansvm.dual.smo import Quadratic

    X, y = _data(dataset)
    m, target = len(y), y.astype(np.float64)
    K = Kernel("rbf", gamma=GAMMA).block(X, X)
    exact = closed_form(K.copy(), target[:, None], np.ones(m), C, 0.0).coef[:, 0]
    distances: list[float] = []
    *_, path = sumt(
        StoredMatrix(K),
        Quadratic(target, np.full(m, 1 / C), np.ones(m)),
        tol=1e-6,
        max_sweeps=100_000,
        rho=0.9,
        on_step=lambda state: distances.append(float(np.linalg.norm(state.beta - exact))),
    )
    return distances, [step.imbalance for step in path]


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
