"""For every estimator the floor of its work on this machine, and how far above it a fit is.

The rates (matrix product, symmetric product, triangular solve, exponentials, memory) are measured
in the same run, with all threads; what a fit cannot avoid is counted in `_roofline`. A full run
writes its table into docs/roofline.md. There is no target: a ratio near 1 says that only another
algorithm would be faster, a large one where to look.
"""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import blas

from ._harness import Options, Report, time_interleaved
from ._roofline import Floor, Rates, markdown, put_between
from ._roofline_cases import dense_machines, small_bases, working_sets

PAGE = Path(__file__).parents[1] / "docs" / "roofline.md"
ROWS, DENSE_ROWS, FEATURES, POINTS = 40_000, 4_000, 20, 500


def run(options: Options) -> Report:
    """Measure rates, then fits in turns; write the page."""
    report = Report("roofline", "Floors of all estimators on this machine", options)
    rates = measured_rates(options.pick(1, 4), options.pick(5, 2))
    m, dense, r = options.pick((ROWS, DENSE_ROWS, POINTS), (3_000, 600, 50))
    cases = small_bases(*_rows(m), r) + dense_machines(*_rows(dense)) + working_sets(*_rows(dense))
    timings = time_interleaved(
        {case.name: case.call for case in cases},
        repeats=options.pick(3, 1),
        keep=lambda model: model,
    )
    report.add_timings("fits", timings)
    for case in cases:
        seconds = timings[case.name]
        work = case.work(seconds.kept[-1])
        report.rows.append(Floor(case.name, case.problem, work, seconds.median).row(rates))
    report.notes.append(f"rates: {rates}")
    if not options.quick:
        machine = f"{report.machine['cpu']}, {report.machine['cores']} cores"
        content = markdown(machine, rates, report.rows)
        PAGE.write_text(put_between(PAGE.read_text("utf-8"), "cpu", content), encoding="utf-8")
    return report


def _rows(m: int) -> tuple[Any, Any]:
    X = np.random.default_rng(0).standard_normal((m, FEATURES))
    return X, (np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] > 0).astype(int)


# ---------------------------------------------------------------------------- rates


def measured_rates(smaller: int, rounds: int) -> Rates:
    """Return the best of some rounds for each kind of work; sizes are divided by ``smaller``."""
    from leansvm._parallel import for_tiles

    n, m, r = 2048 // smaller, 40_000 // smaller, 512
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((n, n)), rng.standard_normal((n, n))
    Z = rng.standard_normal((m, r))
    L = np.asfortranarray(np.tril(rng.standard_normal((r, r))) + 40 * np.eye(r))
    right = np.asfortranarray(rng.standard_normal((r, m)))
    values = -rng.random(2**24 // smaller)
    target = np.empty_like(values)
    tile = values[: 2**14].copy()  # stays in the cache, as tiles of kernel values do

    def exponentials() -> None:
        for_tiles(len(values), len(tile), lambda a, b: np.exp(tile))

    def copy() -> None:
        for_tiles(len(values), 2**20, lambda a, b: np.copyto(target[a:b], values[a:b]))

    timings = time_interleaved(
        {
            "gemm": lambda: A @ B,
            "syrk": lambda: Z.T @ Z,
            "trsm": lambda: blas.dtrsm(1.0, L, right, lower=1, overwrite_b=0),
            "exp": exponentials,
            "bytes": copy,
        },
        repeats=rounds,
    )
    best = {name: min(summary.values) for name, summary in timings.items()}
    return Rates(
        gemm=2 * n**3 / best["gemm"],
        syrk=m * r * r / best["syrk"],
        trsm=m * r * r / best["trsm"],
        exp=len(values) / best["exp"],
        bytes=2 * values.nbytes / best["bytes"],
    )
