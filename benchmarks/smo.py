"""2SMO and SesquiSMO against Cholesky where the kernel is close to diagonal, and sizes of blocks.

joshi's setting: RBF, gamma = 1, C = 1, A = 10^4, on mushroom and KR-VS-KP. 2SMO and SesquiSMO
solve to a relative residual of 1e-8, LSSVC's default; 2SMO also to 1e-3, which is SVC's. "solve"
leaves the Gram matrix out, the same for all.
"""

from typing import Any

import numpy as np

from ._data import uci
from ._harness import Options, Report, Summary, ratio, time_interleaved

C, GAMMA, A, TOL = 1.0, 1.0, 1e4, 1e-8
SETS = (("kr-vs-kp", 3196), ("mushroom", 4000), ("mushroom", 8124))


def run(options: Options) -> Report:
    """Compare the solvers, and the sizes of a block."""
    report = Report("smo", "2SMO and SesquiSMO against Cholesky, gamma = 1, C = 1", options)
    for name, rows in SETS:
        X, y = uci(name)
        rows = options.pick(rows, 600)
        _one_set(report, f"{name} {rows}", X[:rows], y[:rows])
    X, y = uci("mushroom")
    _block_sizes(report, X[: options.pick(4000, 600)], y[: options.pick(4000, 600)])
    return report


def _one_set(report: Report, label: str, X: np.ndarray, y: np.ndarray) -> None:
    from leansvm import LSSVC

    def fit(solver: str, tol: float = TOL) -> Any:
        model = LSSVC(C=C, gamma=GAMMA, bias_penalty=A, solver=solver, tol=tol).fit(X, y)
        return model.fit_report_

    walls = time_interleaved(
        {
            "cholesky": lambda: fit("cholesky"),
            "2SMO": lambda: fit("smo"),
            "2SMO, tol 1e-3": lambda: fit("smo", tol=1e-3),
            "SesquiSMO": lambda: sesqui(X, y),
        },
        repeats=report.options.pick(5, 2),
        keep=lambda found: found,
    )
    solves = {name: _without_gram(wall) for name, wall in walls.items()}
    report.add_timings(f"{label}, fit", walls)
    report.add_timings(f"{label}, Gram excluded", solves)
    for name, wall in walls.items():
        found = wall.kept[0]
        report.rows.append(
            {
                "data": label,
                "solver": name,
                "sweeps": found["iterations"],
                "solve [s]": f"{solves[name]:.3f}",
                "fit [s]": f"{wall:.3f}",
                "relative residual": f"{found['residual']:.1e}",
            }
        )
    speedup = ratio(solves["cholesky"], solves["2SMO"]).median
    report.at_least(f"Cholesky / 2SMO, Gram given, {label}", speedup, 3.0)
    loose = ratio(solves["cholesky"], solves["2SMO, tol 1e-3"]).median
    report.at_least(f"Cholesky / 2SMO to 1e-3, Gram given, {label}", loose, 3.0)
    whole = ratio(walls["cholesky"], walls["2SMO"]).median
    report.at_least(f"Cholesky / 2SMO, Gram included, {label}", whole, 1.4)
    bounded = ratio(solves["SesquiSMO"], solves["2SMO"]).median
    report.at_most(f"SesquiSMO / 2SMO, Gram given, {label}", bounded, 1.1)


def sesqui(X: np.ndarray, y: np.ndarray, bias_penalty: float = A) -> dict[str, Any]:
    """Solve the squared-hinge problem of L2SVC by SesquiSMO; return a report like LSSVC's."""
    from leansvm._phases import Phases
    from leansvm.dual import DualProblem
    from leansvm.dual.sequential import solve_sesqui
    from leansvm.kernels import Kernel

    phases = Phases()
    problem = DualProblem(
        X,
        Kernel("rbf", gamma=GAMMA),
        y[:, None].astype(np.float64),
        np.ones(len(y)),
        bias_penalty,
        8 * 10**9,
        phases,
    )
    found = solve_sesqui(problem, C, tol=TOL, max_iter=1000)
    assert found is not None
    return {
        "iterations": found.iterations,
        "residual": found.residual,
        "seconds": phases.seconds,
        "support": int(np.count_nonzero(found.coef)),
    }


def _without_gram(wall: Summary) -> Summary:
    phases = [found["seconds"] for found in wall.kept]
    return Summary([sum(s for phase, s in p.items() if phase != "gram") for p in phases])


def _block_sizes(report: Report, X: np.ndarray, y: np.ndarray) -> None:
    """Time blocks of several sizes on one stored matrix."""
    from leansvm.dual.kernel_matrix import StoredMatrix
    from leansvm.dual.smo import Quadratic, minimise
    from leansvm.kernels import Kernel

    m = len(y)
    stored = {gamma: StoredMatrix(Kernel("rbf", gamma=gamma).block(X, X)) for gamma in (GAMMA, 0.1)}

    def solve(gamma: float, C: float, block: int) -> Any:
        quadratic = Quadratic(y.astype(np.float64), np.full(m, 1 / C), np.ones(m), c=1 / A)
        sweeps = report.options.pick(200, 20)
        return minimise(stored[gamma], quadratic, tol=TOL, max_sweeps=sweeps, block=block)

    for gamma, cost in ((GAMMA, C), (0.1, 10.0)):
        timings = time_interleaved(
            {
                f"block {block}": (lambda q=block: solve(gamma, cost, q))  # noqa: B023
                for block in (1, 8, 16, 32, 64)
            },
            repeats=report.options.pick(3, 1),
            keep=lambda state: (state.status, state.sweeps),
        )
        label = f"mushroom {m}, gamma = {gamma:g}, C = {cost:g}"
        report.add_timings(f"{label}, block sizes", timings)
        for name, timing in timings.items():
            status, sweeps = timing.kept[0]
            report.rows.append(
                {
                    "data": label,
                    "solver": f"2SMO, {name}",
                    "sweeps": sweeps if status == "done" else f"> {sweeps}",
                    "solve [s]": f"{timing:.3f}",
                }
            )
