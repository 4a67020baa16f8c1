"""LSSVC by preconditioned conjugate gradients against Cholesky, and what `solver="auto"` takes.

IJCNN1's spectrum decays fast and CG needs few iterations; isotropic Gaussian data has no such
spectrum and CG loses. The Gram matrix, the same for both, is left out of the seconds.
"""

from typing import Any

import numpy as np

from ._data import ijcnn1, isotropic
from ._harness import Options, Report, SkipBenchmark, Summary, ratio, time_interleaved

C = 100.0
TOL = 1e-8


def run(options: Options) -> Report:
    """Compare the solvers on both data sets."""
    report = Report("lssvc_cg", "LSSVC: CG against Cholesky, Gram matrix excluded", options)
    try:
        X, y, *_ = ijcnn1(options.pick(20_000, 600))
    except SkipBenchmark as reason:
        report.notes.append(f"ijcnn1 left out: {reason}")
    else:
        speedup = _one_set(report, "ijcnn1", X, y, gamma=0.1)
        report.at_least("Cholesky / CG, ijcnn1", speedup, 3.0)
    X, y = isotropic(options.pick(8_000, 600), n_features=15)
    _one_set(report, "isotropic", X, y, gamma=1.0 / 15)
    return report


def _one_set(report: Report, name: str, X: np.ndarray, y: np.ndarray, gamma: float) -> float:
    """Add the rows of one data set; return how many times faster CG is."""
    from leansvm import LSSVC

    def fit(solver: str, rows: int | None = None) -> Any:
        model = LSSVC(C=C, gamma=gamma, solver=solver, tol=TOL, max_iter=5_000)
        return model.fit(X[:rows], y[:rows])

    for solver in ("cg", "cholesky"):
        fit(solver, rows=300)  # compilation is not the fit's; a full warm-up would take minutes
    walls = time_interleaved(
        {"cg": lambda: fit("cg"), "cholesky": lambda: fit("cholesky")},
        repeats=report.options.pick(3, 2),
        warmup=0,
        keep=lambda model: (model.fit_report_, model.n_iter_, _residual(model, X, y)),
    )
    solves = {solver: _without_gram(walls[solver]) for solver in walls}
    report.add_timings(f"{name}, fit", walls)
    report.add_timings(f"{name}, Gram excluded", solves)
    for solver, wall in walls.items():
        _, n_iter, residual = wall.kept[0]
        report.rows.append(
            {
                "data": f"{name} {len(X)} × {X.shape[1]}",
                "solver": solver,
                "iterations": int(np.max(n_iter)),
                "Gram excluded [s]": f"{solves[solver]:.3f}",
                "fit [s]": f"{wall:.3f}",
                "relative residual": f"{residual:.1e}",
            }
        )
    faster = min(solves, key=lambda solver: solves[solver].median)
    report.equals(
        f"solver that 'auto' takes, {name}", fit("auto").fit_report_["solver"], goal=faster
    )
    report.at_most(f"relative residual of CG, {name}", walls["cg"].kept[0][2], TOL)
    return ratio(solves["cholesky"], solves["cg"]).median


def _without_gram(wall: Summary) -> Summary:
    """Return the seconds of all phases but the Gram matrix, round by round."""
    phases = [report["seconds"] for report, *_ in wall.kept]
    left_out = {"gram", "total"}
    return Summary([sum(s for phase, s in p.items() if phase not in left_out) for p in phases])


def _residual(model: Any, X: np.ndarray, y: np.ndarray) -> float:
    """Return the relative residual of the optimality condition y - f(x) = alpha / C.

    It is computed from the fitted model alone, so it holds whatever system a solver iterates on.
    """
    target = np.where(y == model.classes_[1], 1.0, -1.0)
    alpha = np.zeros(len(X))
    alpha[model.support_] = model.dual_coef_[0]
    error = target - model.decision_function(X) - alpha / C
    return float(np.linalg.norm(error) / np.linalg.norm(target))
