"""LSSVC beside other kernel machines on the same rows: accuracy, seconds, support vectors.

Every model runs in a process of its own, in turns, so that no peer's thread pool disturbs the
next one. Optional peers that are not installed are listed as such.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ._data import random_ijcnn1
from ._harness import Options, Report, Summary, ratio
from ._isolated import Outcome, run_isolated

C, GAMMA = 100.0, 0.1
REFERENCE = "sklearn SVC"


def _leansvm() -> Any:
    from leansvm import LSSVC

    return LSSVC(C=C, gamma=GAMMA)


def _svc() -> Any:
    from sklearn.svm import SVC

    return SVC(C=C, gamma=GAMMA)


def _kernel_ridge() -> Any:
    from sklearn.kernel_ridge import KernelRidge

    return KernelRidge(alpha=1.0 / C, kernel="rbf", gamma=GAMMA)


def _nystroem() -> Any:
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import RidgeClassifier
    from sklearn.pipeline import make_pipeline

    features = Nystroem(gamma=GAMMA, n_components=300, random_state=0)
    return make_pipeline(features, RidgeClassifier(alpha=1.0 / C))


def _intelex() -> Any:
    from sklearnex.svm import SVC

    return SVC(C=C, gamma=GAMMA)


def _neo() -> Any:
    from neo_ls_svm import NeoLSSVM

    return NeoLSSVM(random_state=0)  # tunes its own regularisation and length scales


def _thunder() -> Any:
    from thundersvm import SVC

    return SVC(C=C, gamma=GAMMA)


PEERS: dict[str, Callable[[], Any]] = {
    "leansvm LSSVC": _leansvm,
    REFERENCE: _svc,
    "sklearn KernelRidge": _kernel_ridge,
    "sklearn Nystroem(300) + Ridge": _nystroem,
    "scikit-learn-intelex SVC": _intelex,
    "neo-ls-svm NeoLSSVM": _neo,
    "thundersvm SVC": _thunder,
}
OPTIONAL = tuple(PEERS)[4:]


def run(options: Options) -> Report:
    """Fit every peer in turns; judges nothing."""
    rows, test_rows = options.pick((5_000, 20_000), (400, 500))
    random_ijcnn1(1, 1)  # skip here, not once per peer
    report = Report(
        "peers", f"ijcnn1, {rows} training and {test_rows} test rows, C = 100, gamma = 0.1", options
    )
    last: dict[str, Outcome] = {}
    measured: dict[str, list[dict[str, Any]]] = {name: [] for name in PEERS}
    for _ in range(options.pick(3, 1)):
        for name in PEERS:
            if name in last and not last[name].ok:
                continue
            last[name] = _run_peer(name, options, rows, test_rows)
            if last[name].ok:
                measured[name].append(last[name].value)
    for name in PEERS:
        report.rows.append(_row(name, last[name], measured[name], measured[REFERENCE]))
        if last[name].ok:
            phases = {phase: _seconds(measured[name], phase) for phase in ("fit", "predict")}
            report.add_timings(name, phases)
    return report


def _run_peer(name: str, options: Options, rows: int, test_rows: int) -> Outcome:
    python = options.peer_python if name in OPTIONAL else None
    outcome = run_isolated(
        "benchmarks.peers:fit_peer", python=python, name=name, rows=rows, test_rows=test_rows
    )
    if "ModuleNotFoundError" in outcome.status:
        return Outcome("not installed")
    return outcome


def _seconds(measured: list[dict[str, Any]], phase: str) -> Summary:
    return Summary([values[phase] for values in measured])


def _row(
    name: str,
    outcome: Outcome,
    measured: list[dict[str, Any]],
    reference: list[dict[str, Any]],
) -> dict[str, Any]:
    row: dict[str, Any] = {"model": name, "outcome": outcome.status}
    if not outcome.ok:
        return row
    row["accuracy"] = round(outcome.value["accuracy"], 4)
    row["support vectors"] = outcome.value["n_support"]
    for phase in ("fit", "predict"):
        row[f"{phase} [s]"] = f"{_seconds(measured, phase):.3f}"
        if len(reference) == len(measured):
            relative = ratio(_seconds(measured, phase), _seconds(reference, phase))
            row[f"{phase} / SVC's"] = f"{relative:.2f}"
    return row


def fit_peer(name: str, rows: int, test_rows: int) -> dict[str, Any]:
    """Fit and apply one peer; called in a fresh interpreter."""
    X, y, X_test, y_test = random_ijcnn1(rows, test_rows)
    y, y_test = y.astype(np.int64), y_test.astype(np.int64)
    PEERS[name]().fit(X[-300:], y[-300:]).predict(X_test[:300])  # compilation is not the fit's
    model = PEERS[name]()
    start = time.perf_counter()
    model.fit(X, y)
    fitted = time.perf_counter()
    predicted = np.ravel(model.predict(X_test))
    end = time.perf_counter()
    accuracy = float(np.mean((predicted > 0) == (y_test > 0)))
    return {
        "fit": fitted - start,
        "predict": end - fitted,
        "accuracy": accuracy,
        "n_support": _n_support(model, rows),
    }


def _n_support(model: Any, rows: int) -> int | str:
    """Return how many points `predict` compares with; "-" when the model does not say."""
    if hasattr(model, "support_"):
        return len(model.support_)
    if hasattr(model, "dual_coef_"):
        return rows
    if hasattr(model, "steps"):
        return len(model[0].components_)
    return "-"
