"""Gaussian kernel block against scikit-learn's `rbf_kernel` and against the bare floor.

The floor is what any method must pay: one matrix product of the same shape and one exponential
per entry, in place. All candidates allocate their output.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import rbf_kernel
from threadpoolctl import ThreadpoolController

from ._harness import Options, Report, ratio, time_interleaved
from ._machine import usable_cores

WIDTHS = (2, 22, 123, 784)
# Speed-up over rbf_kernel that is expected at each number of features.
GOALS = {2: 2.0, 22: 2.0, 123: 1.7, 784: 1.0}


def run(options: Options) -> Report:
    """Time the block at every width and precision."""
    shape = options.pick((10_000, 1_000), (500, 100))
    title = f"Gaussian block {shape[0]} × {shape[1]}, gamma = 1/d"
    report = Report("gaussian_block", title, options)
    for dtype in (np.float64, np.float32):
        for width in WIDTHS:
            _one_width(report, shape, width, np.dtype(dtype))
    return report


def _one_width(report: Report, shape: tuple[int, int], width: int, dtype: np.dtype) -> None:
    from leansvm.kernels import Kernel

    rng = np.random.default_rng(width)
    X, Y = (rng.standard_normal((rows, width)).astype(dtype) for rows in shape)
    gamma = 1.0 / width
    kernel = Kernel("rbf", gamma=gamma)
    candidates = {
        "leansvm": partial(kernel.block, X, Y),
        "rbf_kernel": partial(rbf_kernel, X, Y, gamma=gamma),
        **_floors(X, Y, gamma),
    }
    repeats = report.options.pick(15, 3)
    timings = time_interleaved(candidates, repeats=repeats, warmup=2)
    label = f"d = {width}, {dtype}"
    report.add_timings(label, timings)
    speedup = ratio(timings["rbf_kernel"], timings["leansvm"])
    of_floor = ratio(timings["leansvm"], timings["floor, threads"])
    row = {"d": width, "dtype": str(dtype)}
    row |= {f"{name} [ms]": round(1e3 * t.median, 2) for name, t in timings.items()}
    row |= {"speed-up": f"{speedup:.2f}", "of floor": f"{of_floor:.2f}"}
    row["largest error"] = f"{_largest_error(kernel.block(X, Y), X, Y, gamma):.0e}"
    report.rows.append(row)
    report.at_least(f"rbf_kernel / leansvm, {label}", speedup.median, GOALS[width])


def _floors(X: np.ndarray, Y: np.ndarray, gamma: float) -> dict[str, Callable[[], np.ndarray]]:
    # Scaled beforehand, so that the product lies in the range of real exponents.
    A, B = np.sqrt(gamma) * X, np.sqrt(gamma) * Y
    A, B = A.astype(X.dtype), B.astype(Y.dtype)
    controller = ThreadpoolController()
    pool = _pool()

    def single() -> np.ndarray:
        with controller.limit(limits=1):
            K = A @ B.T
        return np.exp(K, out=K)

    def threaded() -> np.ndarray:
        K = A @ B.T
        list(pool.map(lambda part: np.exp(part, out=part), np.array_split(K, usable_cores())))
        return K

    return {"floor, threads": threaded, "floor, 1 thread": single}


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(usable_cores())


def _largest_error(K: np.ndarray, X: np.ndarray, Y: np.ndarray, gamma: float) -> float:
    """Compare some rows of the block with the definition, in float64."""
    some = X[:200].astype(np.float64)
    exact = np.exp(-gamma * cdist(some, Y.astype(np.float64), "sqeuclidean"))
    return float(np.abs(K[:200] - exact).max())
