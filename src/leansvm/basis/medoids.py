"""Basis points as k-medoids of the data (FasterPAM, from the package kmedoids).

Medoids B keep sum_i min_j |phi(x_i) - phi(x_j)|^2 small, j in B: an upper bound of the trace of
K - P P', what the basis misses.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from leansvm._array_api import foreign_namespace
from leansvm.basis._base import BasisSelector, Fit, Selection
from leansvm.blocks import RowBlocks, WeightedSample
from leansvm.cholesky.greedy import pivot_order
from leansvm.kernels import Kernel

_ROWS_A_MEDOID = 4


class KMedoids(BasisSelector):
    """Choose the medoids of clusters of a random sample of the rows.

    Needs the package ``kmedoids`` (``pip install leansvm[medoids]``). The sample is drawn with
    probability proportional to the rows' weights. The result is put in the order of pivoted
    Cholesky, without points that the others determine.

    Parameters
    ----------
    metric : {"kernel", "euclidean"}, default="kernel"
        Squared distance to keep small: k(x, x) + k(z, z) - 2 k(x, z), or that of the features.
    sample_size : int, default=2000
        Rows to cluster, at least four for every medoid. Needs sample_size^2 numbers of memory.
    max_iter : int, default=100
        Most passes of FasterPAM over the sample.
    random_state : int, RandomState instance or None, default=None
        Seed; None takes that of the estimator.

    References
    ----------
    E. Schubert, P. J. Rousseeuw, "Fast and eager k-medoids clustering", Information Systems 101,
    2021.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm.basis.medoids import KMedoids
    >>> from leansvm.blocks import MemoryBlocks
    >>> from leansvm.kernels import Kernel
    >>> blocks = MemoryBlocks(np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]]))
    >>> selector = KMedoids(random_state=0)
    >>> np.sort(selector.select(blocks, Kernel("rbf"), 2).indices)  # doctest: +SKIP
    array([1, 4])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "metric": [StrOptions({"kernel", "euclidean"})],
        "sample_size": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 0, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        metric: str = "kernel",
        sample_size: int = 2000,
        max_iter: int = 100,
        random_state: Any = None,
    ) -> None:
        self.metric = metric
        self.sample_size = sample_size
        self.max_iter = max_iter
        self.random_state = random_state

    def select(
        self,
        blocks: RowBlocks,
        kernel: Kernel,
        n_basis: int,
        *,
        random_state: Any = None,
        fit: Fit | None = None,
        on_step: Callable[[int], bool] | None = None,
    ) -> Selection:
        """Choose up to ``n_basis`` rows; see `BasisSelector.select`."""
        self._validate_params()
        fasterpam = _fasterpam()
        rng = self._rng(random_state)
        sample = WeightedSample(blocks, rng).first(max(self.sample_size, _ROWS_A_MEDOID * n_basis))
        sample = np.sort(sample)
        X = blocks.take(sample)
        K = np.asarray(kernel.block(X, kernel.points(X, sample), dtype=np.float64), np.float64)
        distances = _kernel_distances(K) if self.metric == "kernel" else _distances(X, kernel)
        # one thread: with more the result depends on their number
        result = fasterpam(
            distances,
            min(n_basis, len(sample)),
            max_iter=self.max_iter,
            random_state=int(rng.randint(2**31 - 1)),
            n_cpu=1,
        )
        chosen = np.asarray(result.medoids, dtype=np.intp)
        chosen = chosen[pivot_order(np.ascontiguousarray(K[np.ix_(chosen, chosen)]))]
        if on_step is not None:
            on_step(len(chosen))
        report = {"sample": len(sample), "loss": float(result.loss), "n_iter": int(result.n_iter)}
        return Selection(sample[chosen], report=report)


def _fasterpam() -> Callable[..., Any]:
    try:
        return import_module("kmedoids").fasterpam
    except ImportError as error:
        raise ImportError(
            "the basis selector KMedoids needs the package kmedoids: pip install leansvm[medoids]"
        ) from error


def _kernel_distances(K: NDArray[np.float64]) -> NDArray[np.float64]:
    D = K.diagonal()
    return np.maximum(D[:, None] + D - 2 * K, 0.0)


def _distances(X: Any, kernel: Kernel) -> NDArray[np.float64]:
    if kernel.precomputed:
        raise ValueError('KMedoids(metric="euclidean") needs features, not a kernel matrix.')
    from sklearn.metrics.pairwise import euclidean_distances

    rows = X if foreign_namespace(X) is None else np.asarray(X)
    return np.asarray(euclidean_distances(rows, squared=True), dtype=np.float64)
