"""joshi's Figs. 1-3: seconds against the number of rows, and against A, gamma = 1, C = 1.

Fig. 3: parts of mushroom in twelfths, LSSVC by Cholesky, CG and 2SMO, and SesquiSMO, Gram
matrix included. Figs. 1 and 2: 2SMO against A, in blocks and with single updates, Gram excluded.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ._data import uci
from ._harness import Options, Report, time_interleaved
from .smo import GAMMA, TOL, A, C, sesqui

PENALTIES = (1e-4, 1e-2, 1.0, 10.0, 1e2, 1e3, 1e4, 1e6)


def run(options: Options) -> Report:
    """Time the growth with m, then the effect of A."""
    report = Report("smo_scaling", "seconds against rows and against A", options)
    X, y = uci("mushroom")
    twelfths = options.pick((1, 2, 3, 4, 6, 8, 10, 12), (1, 2))
    for part in twelfths:
        rows = len(y) * part // 12
        _growth(report, X[:rows], y[:rows])
    last = report.rows[-1]
    report.at_most("2SMO / Cholesky at all rows", last["2SMO [s]"] / last["cholesky [s]"], 1 / 1.4)
    for name, rows in (("kr-vs-kp", 3196), ("mushroom", 4000)):
        X, y = uci(name)
        _penalties(report, name, X[: options.pick(rows, 500)], y[: options.pick(rows, 500)])
    return report


def _growth(report: Report, X: np.ndarray, y: np.ndarray) -> None:
    from leansvm import LSSVC

    def fit(solver: str) -> Callable[[], Any]:
        options = {"C": C, "gamma": GAMMA, "bias_penalty": A, "solver": solver, "tol": TOL}
        return lambda: LSSVC(**options).fit(X, y)

    timings = time_interleaved(
        {
            "cholesky": fit("cholesky"),
            "cg": fit("cg"),
            "2SMO": fit("smo"),
            "SesquiSMO": lambda: sesqui(X, y),
            "auto": fit("auto"),
        },
        repeats=report.options.pick(3, 1),
    )
    report.add_timings(f"mushroom {len(y)}", timings)
    medians = {f"{name} [s]": timing.median for name, timing in timings.items()}
    report.rows.append({"data": "mushroom", "rows": len(y), "A": A, **medians})


def _penalties(report: Report, name: str, X: np.ndarray, y: np.ndarray) -> None:
    from leansvm.dual.kernel_matrix import StoredMatrix
    from leansvm.dual.smo import Quadratic, minimise
    from leansvm.kernels import Kernel

    m = len(y)
    matrix = StoredMatrix(Kernel("rbf", gamma=GAMMA).block(X, X))
    for penalty in PENALTIES:
        quadratic = Quadratic(y.astype(np.float64), np.full(m, 1 / C), np.ones(m), c=1 / penalty)

        def solve(block: int | None, q: Quadratic = quadratic) -> Any:
            return minimise(matrix, q, tol=1e-3, max_sweeps=30, block=block)

        timings = time_interleaved(
            {"blocks": lambda: solve(None), "single updates": lambda: solve(1)},
            repeats=report.options.pick(3, 1),
            keep=lambda state: (state.status, state.sweeps),
        )
        report.add_timings(f"{name} {m}, A = {penalty:g}", timings)
        row: dict[str, Any] = {"data": f"{name}, tol 1e-3", "rows": m, "A": penalty}
        for kind, timing in timings.items():
            status, sweeps = timing.kept[0]
            row[f"{kind} [s]"] = timing.median
            row[f"{kind}: sweeps"] = sweeps if status == "done" else f"> {sweeps}"
        report.rows.append(row)
