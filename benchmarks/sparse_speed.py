"""SparseLSSVC on ADULT beside its peers, its own tuning and the floor of its matrix products.

300 random basis points, gamma = 2^-6. Peers: scikit-learn's Nystroem + RidgeClassifier on the
same number of points, its SVC, and scikit-learn-intelex's SVC where it is installed. None of them
has probabilities, so ours has none either, except in one row. The floor is the GEMM, exp, TRSM and
SYRK of a fit's sizes, each by one call of BLAS or NumPy.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg.blas import dtrsm
from scipy.sparse import csr_matrix

from ._data import zhou2016
from ._harness import Options, Report, Summary, ratio, time_interleaved
from ._isolated import run_isolated

C, GAMMA, N_BASIS = 10.0, 2.0**-6, 300


def _ours(C: Any = C, basis: Any = "random", calibrate: bool = False) -> Any:
    from leansvm import SparseLSSVC

    given = {"gamma": GAMMA, "n_basis": N_BASIS, "random_state": 0}
    return SparseLSSVC(C, basis=basis, calibrate=calibrate, **given)


def _nystroem() -> Any:
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import RidgeClassifier
    from sklearn.pipeline import make_pipeline

    features = Nystroem(gamma=GAMMA, n_components=N_BASIS, random_state=0)
    return make_pipeline(features, RidgeClassifier(alpha=1.0 / C))


def run(options: Options) -> Report:
    """Time fits and predictions in turns; SVCs once each, in processes of their own."""
    X, y, X_test, y_test = zhou2016("ADULT")
    rows = options.pick(len(X), 2_000)
    X, y = X[:rows], y[:rows]
    report = Report("sparse_speed", f"ADULT, {rows} rows, {N_BASIS} basis points", options)
    single, sparse = X.astype(np.float32), csr_matrix(X)
    chosen = np.random.default_rng(0).choice(rows, N_BASIS, replace=False)
    fits: dict[str, Callable[[], Any]] = {
        "C = 10": lambda: _ours().fit(X, y),
        "C = 10, probabilities": lambda: _ours(calibrate=True).fit(X, y),
        "C = 10, float32": lambda: _ours().fit(single, y),
        "C = 10, CSR": lambda: _ours().fit(sparse, y),
        "C = gcv": lambda: _ours("gcv").fit(X, y),
        "C = loo": lambda: _ours("loo").fit(X, y),
        "given rows": lambda: _ours(basis=chosen).fit(X, y),
        "pivoted-cholesky": lambda: _ours(basis="pivoted-cholesky").fit(X, y),
        "Nystroem + Ridge": lambda: _nystroem().fit(X, y),
        "Nystroem + Ridge, float32": lambda: _nystroem().fit(single, y),
        "Nystroem + Ridge, CSR": lambda: _nystroem().fit(sparse, y),
        **_floor(X),
    }
    seconds = time_interleaved(fits, repeats=options.pick(9, 1), keep=lambda model: model)
    report.add_timings("fit", seconds)
    floor = Summary([sum(parts) for parts in zip(*(seconds[n].values for n in FLOOR), strict=True)])
    for name, timing in seconds.items():
        row: dict[str, Any] = {"what": name, "seconds": f"{timing:.4f}"}
        if name not in FLOOR:
            row["/ C = 10"] = f"{ratio(timing, seconds['C = 10']):.2f}"
            test = X_test.astype(np.float32) if "float32" in name else X_test
            row["accuracy [%]"] = round(100 * timing.kept[-1].score(test, y_test), 2)
        report.rows.append(row)
    report.rows.append({"what": "floor: the sum of the four", "seconds": f"{floor:.4f}"})
    for kind in ("", ", float32", ", CSR"):
        relative = ratio(seconds[f"Nystroem + Ridge{kind}"], seconds[f"C = 10{kind}"])
        report.at_least(f"Nystroem + Ridge / ours{kind}", relative.median, 1.7)
    report.at_most("gcv / single C", ratio(seconds["C = gcv"], seconds["C = 10"]).median, 1.15)
    report.at_most("loo / single C", ratio(seconds["C = loo"], seconds["C = 10"]).median, 2.0)
    report.at_most("given rows / floor", ratio(seconds["given rows"], floor).median, 1.5)
    pivoted = ratio(seconds["pivoted-cholesky"], floor).median
    report.at_most("pivoted Cholesky / floor", pivoted, 2.5)
    model = seconds["C = 10"].kept[-1]
    report.at_least("test accuracy", 100 * model.score(X_test, y_test), 85.0)
    predict = time_interleaved({"ours": lambda: model.predict(X_test)}, repeats=9)["ours"]
    _compare_with_svc(report, options, seconds["C = 10"].median, predict.median)
    return report


FLOOR = ("GEMM", "exp", "TRSM", "SYRK")


def _floor(X: np.ndarray) -> dict[str, Callable[[], Any]]:
    rng = np.random.default_rng(0)
    left = np.hstack([X, np.ones((len(X), 2))])
    right = rng.standard_normal((left.shape[1], N_BASIS))
    exponents, values = rng.uniform(-3, 0, (len(X), N_BASIS)), np.empty((len(X), N_BASIS))
    L = np.asfortranarray(np.tril(rng.uniform(0, 0.01, (N_BASIS, N_BASIS))) + np.eye(N_BASIS))
    solved = rng.standard_normal((len(X), N_BASIS))

    def exp() -> None:
        from leansvm._parallel import for_tiles

        for_tiles(len(X), 1024, lambda a, b: np.exp(exponents[a:b], out=values[a:b]))

    return {
        "GEMM": lambda: np.matmul(left, right, out=values),
        "exp": exp,
        "TRSM": lambda: dtrsm(1.0, L, solved.T, lower=1, overwrite_b=1),
        "SYRK": lambda: exponents.T @ exponents,
    }


def _compare_with_svc(report: Report, options: Options, fit: float, predict: float) -> None:
    for name, goal in (("scikit-learn-intelex SVC", 15), ("sklearn SVC", 200)):
        python = options.peer_python if "intelex" in name else None
        outcome = run_isolated("benchmarks.sparse_speed:fit_svc", python=python, name=name)
        if not outcome.ok:
            report.notes.append(f"{name}: {outcome.status}")
            continue
        found = outcome.value
        report.rows.append(
            {
                "what": f"{name}, {found['support']} support vectors",
                "seconds": f"{found['fit']:.2f}, predict {found['predict']:.2f}",
                "accuracy [%]": round(100 * found["accuracy"], 2),
            }
        )
        report.at_least(f"{name}'s fit / ours", found["fit"] / fit, goal)
        if name == "sklearn SVC":
            report.at_least("sklearn SVC's predict / ours", found["predict"] / predict, 100)


def fit_svc(name: str) -> dict[str, Any]:
    """Fit one SVC; called in a fresh interpreter."""
    X, y, X_test, y_test = zhou2016("ADULT")
    if "intelex" in name:
        from sklearnex.svm import SVC

        SVC(C=1.0, gamma=GAMMA).fit(X[:500], y[:500])  # its start-up is not the fit's
    else:
        from sklearn.svm import SVC
    start = time.perf_counter()
    model = SVC(C=1.0, gamma=GAMMA).fit(X, y)
    fitted = time.perf_counter()
    predicted = model.predict(X_test)
    end = time.perf_counter()
    return {
        "fit": fitted - start,
        "predict": end - fitted,
        "support": len(model.support_),
        "accuracy": float(np.mean(predicted == y_test)),
    }
