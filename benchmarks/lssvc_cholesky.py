"""LSSVC by Cholesky against its two unavoidable parts: the Gram matrix and one factorisation.

The reference computes K, adds 1/C to the diagonal and calls `scipy.linalg.cho_factor` in place,
without checks; it solves nothing. LSSVC must also validate its input and solve twice.
"""

from typing import Any

import numpy as np
from scipy.linalg import cho_factor
from sklearn.metrics.pairwise import rbf_kernel

from ._data import ijcnn1
from ._harness import Options, Report, ratio, time_interleaved
from ._isolated import measure, run_isolated

C, GAMMA = 100.0, 0.1
CANDIDATES = ("LSSVC", "leansvm Gram + cho_factor", "rbf_kernel + cho_factor")


def run(options: Options) -> Report:
    """Time the fit and measure its peak memory."""
    n_rows = options.pick(10_000, 600)
    X, y, *_ = ijcnn1(n_rows)
    report = Report("lssvc_cholesky", f"LSSVC(solver='cholesky'), {n_rows} rows of ijcnn1", options)
    candidates = {name: _candidate(name, X, y) for name in CANDIDATES}
    timings = time_interleaved(candidates, repeats=options.pick(5, 3))
    report.add_timings("fit", timings)
    for name in CANDIDATES:
        times = ratio(timings["LSSVC"], timings[name])
        report.rows.append(
            {
                "candidate": name,
                "seconds": f"{timings[name]:.3f}",
                "LSSVC / this": f"{times:.2f}",
                "peak / 8m²": round(_peak_share(name, n_rows), 3),
            }
        )
    own_gram = ratio(timings["LSSVC"], timings[CANDIDATES[1]])
    report.at_most("seconds, LSSVC / (own Gram + cho_factor)", own_gram.median, 1.25)
    report.at_most("peak memory of LSSVC / 8m² bytes", report.rows[0]["peak / 8m²"], 1.3)
    return report


def _candidate(name: str, X: np.ndarray, y: np.ndarray) -> Any:
    from leansvm import LSSVC
    from leansvm.kernels import Kernel

    kernel = Kernel("rbf", gamma=GAMMA)
    return {
        "LSSVC": lambda: LSSVC(C=C, gamma=GAMMA, solver="cholesky").fit(X, y),
        "leansvm Gram + cho_factor": lambda: _factor(kernel.block(X, X)),
        "rbf_kernel + cho_factor": lambda: _factor(rbf_kernel(X, gamma=GAMMA)),
    }[name]


def _factor(K: np.ndarray) -> Any:
    # K + I/C; K is symmetric, so its transpose is the column-major array LAPACK works in place on
    K.flat[:: len(K) + 1] += 1.0 / C
    return cho_factor(K.T, lower=True, overwrite_a=True, check_finite=False)


def _peak_share(name: str, n_rows: int) -> float:
    outcome = run_isolated("benchmarks.lssvc_cholesky:peak_of", name=name, n_rows=n_rows)
    if not outcome.ok:
        raise RuntimeError(f"peak memory of {name}: {outcome.status}")
    return outcome.value["peak_bytes"] / (8 * n_rows**2)


def peak_of(name: str, n_rows: int) -> dict[str, float]:
    """Measure one candidate; called in a fresh interpreter."""
    X, y, *_ = ijcnn1(n_rows)
    few = slice(None, None, max(1, n_rows // 300))
    _candidate(name, X[few], y[few])()  # compilation and thread buffers are not the fit's
    return measure(_candidate(name, X, y))
