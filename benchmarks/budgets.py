"""Memory above the data, of fit and of predict, with a ``cache_size`` of 50, 100 and 400 MB.

Every cell is a process of its own, which has fitted and used the same model on few rows before:
imports, compiled code and pools of threads are not the fit's. A fit may also be refused before
it allocates anything, with the bytes it needs.
"""

import gc
import warnings
from typing import Any

from leansvm.basis.choose import SELECTORS

from ._harness import Options, Report
from ._isolated import measure, run_isolated

BUDGETS = (50.0, 100.0, 400.0)
EXCESS = 1.2  # of the budget that a fit may take
PLAIN = {"kernel": "rbf", "gamma": "scale"}
# name: estimator, parameters, rows
CASES: dict[str, tuple[str, dict[str, Any], int]] = {
    "LSSVC": ("LSSVC", {}, 2000),
    "LSSVC cg": ("LSSVC", {"solver": "cg", "max_iter": 3}, 12_000),
    "LSSVC smo": ("LSSVC", {"solver": "smo", "max_iter": 2}, 12_000),
    "LSSVR loo": ("LSSVR", {"C": "loo"}, 1500),
    "L2SVC": ("L2SVC", {"C": 10.0, "solver": "active-set"}, 4000),
    "L2SVC linear": ("L2SVC", {"kernel": "linear", "C": 10.0}, 50_000),
    "L2SVC newton": ("L2SVC", {"solver": "newton"}, 2000),
    "L2SVC smo": ("L2SVC", {"solver": "smo", "max_iter": 2}, 12_000),
    "SparseLSSVC learned": ("SparseLSSVC", {}, 20_000),
    "SparseLSSVC auto": ("SparseLSSVC", PLAIN, 20_000),
    "SparseLSSVC auto gcv": ("SparseLSSVC", {**PLAIN, "C": "gcv"}, 30_000),
    "SparseLSSVC 2000": ("SparseLSSVC", {**PLAIN, "C": 1.0, "n_basis": 2000}, 20_000),
    "SparseLSSVC loo": ("SparseLSSVC", {**PLAIN, "C": "loo", "n_basis": 300}, 100_000),
    "SparseLSSVC kfold": ("SparseLSSVC", {**PLAIN, "C": "kfold", "n_basis": 500}, 50_000),
    "SparseLSSVC all": ("SparseLSSVC", {**PLAIN, "C": "loo", "basis": "all"}, 700),
    "SparseLSSVR loo": ("SparseLSSVR", {**PLAIN, "C": "loo", "n_basis": 300}, 100_000),
    "ReducedSVC auto": ("ReducedSVC", {**PLAIN, "max_iter": 5}, 20_000),
    "ReducedSVC 1000": ("ReducedSVC", {**PLAIN, "n_basis": 1000, "max_iter": 5}, 20_000),
    "ReducedSVR": ("ReducedSVR", {"n_basis": 300, "max_iter": 5}, 50_000),
    "LowRankLSSVC": ("LowRankLSSVC", {"max_iter": 5}, 100_000),
    "LowRankLSSVC loo": ("LowRankLSSVC", {"C": "loo", "max_iter": 5}, 100_000),
    "LowRankLSSVR": ("LowRankLSSVR", {"max_iter": 5}, 100_000),
    "KernelBasis": ("KernelBasis", {"n_basis": 500}, 20_000),
}
_SLOW = {"forward", "csi", "backfitting", "sparse-greedy"}
for _name in sorted(SELECTORS.keys() - {"random"}):
    _params = {**PLAIN, "C": 1.0, "basis": _name, "n_basis": 200, "select_on": "all"}
    CASES[f"select {_name}"] = ("SparseLSSVC", _params, 5000 if _name in _SLOW else 20_000)


def run(options: Options) -> Report:
    """Measure every case at every budget, in processes of their own."""
    report = Report("budgets", "Peak memory above the data by cache_size", options)
    for name in CASES:
        for budget in options.pick(BUDGETS, BUDGETS[:1]):
            outcome = run_isolated(
                "benchmarks.budgets:peaks", name=name, cache_size=budget, threads=2
            )
            row = {"case": name, "cache_size [MB]": budget}
            report.rows.append({**row, **(outcome.value or {"outcome": outcome.status})})
            report.equals(f"{name}, {budget:g} MB", outcome.status, "ok")
            if outcome.ok:
                most = max(outcome.value["fit [MB]"], outcome.value["predict [MB]"])
                report.at_most(f"{name}: peak / {budget:g} MB", most / budget, EXCESS)
    return report


def peaks_of(names: list[str], cache_size: float) -> dict[str, Any]:
    """Return what `peaks` finds, one case after the other in this process."""
    return {name: peaks(name, cache_size) for name in names}


def peaks(name: str, cache_size: float) -> dict[str, Any]:
    """Return the megabytes that fit and predict take above the data, in this process."""
    import numpy as np

    import leansvm

    warnings.simplefilter("ignore")
    estimator, params, rows = CASES[name]
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 10))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=rows)
    if estimator.endswith("SVC"):
        y = (y > 0).astype(int)

    def model(size: float) -> Any:
        given = {"n_basis": 20} if size < cache_size and "n_basis" in params else {}
        return getattr(leansvm, estimator)(**{**params, **given}, cache_size=size)

    def use(fitted: Any, rows: Any) -> Any:
        return fitted.transform(rows) if hasattr(fitted, "transform") else fitted.predict(rows)

    # compiled code is loaded before: it is shared by all fits
    use(model(0.9 * cache_size).fit(X[:300], y[:300]), X[:300])
    gc.collect()
    tested = model(cache_size)
    outcome, predict = ["fitted"], {"peak_bytes": 0.0}

    def fit_or_refuse() -> None:
        try:
            tested.fit(X, y)
        except MemoryError as error:
            outcome[0] = f"refused: {error}"

    fit = measure(fit_or_refuse)
    if outcome == ["fitted"] and not hasattr(
        tested, "transform"
    ):  # whose result is larger than the rows
        gc.collect()
        predict = measure(lambda: use(tested, X))
    report = getattr(tested, "fit_report_", {})
    return {
        "outcome": outcome[0],
        "points": report.get("basis", 0),
        "fit [MB]": fit["peak_bytes"] / 2**20,
        "predict [MB]": predict["peak_bytes"] / 2**20,
        "stated [MB]": report.get("bytes", 0) / 2**20,
        "fit [s]": fit["seconds"],
    }
