"""Basis points as k-medoids of the data (FasterPAM, from the package kmedoids).

Medoids B keep sum_i min_j |phi(x_i) - phi(x_j)|^2 small, j in B: an upper bound of the trace of
K - P P', what the basis misses.
"""

from __future__ import annotations

from importlib import import_module
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from leansvm._array_api import rows_at, to_host
from leansvm._extras import needs
from leansvm.basis.cholesky.greedy import pivot_order
from leansvm.basis.selector import Basis, BasisSelector, Fit, OnStep
from leansvm.kernels import Kernel
from leansvm.rows import RowBlocks, WeightedSample

_ROWS_A_MEDOID = 4


class KMedoids(BasisSelector):
    """Choose the medoids of clusters of a random sample of the rows.

    Needs the package ``kmedoids`` (the extra ``medoids``). The sample is drawn with probability
    proportional to the rows' weights. The result is put in the order of pivoted Cholesky, without
    points that are numerically dependent on others.

    Parameters
    ----------
    metric : {"kernel", "euclidean"}, default="kernel"
        Squared distance to keep small: k(x, x) + k(z, z) - 2 k(x, z), or |x - z|^2.
    sample_size : int, default=2000
        Rows to cluster, at least four for every medoid. Needs 8 sample_size^2 bytes of memory.
    max_iter : int, default=100
        Largest number of passes of FasterPAM over the sample.
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
    >>> from leansvm.rows import MemoryBlocks
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

    def matrix_rows(self, n_basis: int) -> int:
        """Return the size of the sample; see `BasisSelector.matrix_rows`."""
        self._validate_params()
        return max(self.sample_size, _ROWS_A_MEDOID * n_basis)

    def _choose(
        self, blocks: RowBlocks, kernel: Kernel, n_basis: int, rng: Any, fit: Fit, on_step: OnStep
    ) -> Basis:
        count = self.matrix_rows(n_basis)
        try:
            fasterpam = import_module("kmedoids").fasterpam
        except ImportError as error:
            what = "the basis selector KMedoids"
            raise ImportError(needs(what, "kmedoids", "medoids")) from error
        sample = np.sort(WeightedSample(blocks, rng).first(count))
        X = blocks.take(sample)
        distances = _distances(X, kernel, kernel.points(X, sample), self.metric)
        # one thread: with more the result depends on their number
        result = fasterpam(
            distances,
            min(n_basis, len(sample)),
            max_iter=self.max_iter,
            random_state=int(rng.randint(2**31 - 1)),
            n_cpu=1,
        )
        chosen = np.asarray(result.medoids, dtype=np.intp)
        chosen = chosen[pivot_order(kernel, rows_at(X, chosen), sample[chosen])]
        on_step(len(chosen))
        report = {"sample": len(sample), "loss": float(result.loss), "n_iter": int(result.n_iter)}
        return Basis(sample[chosen], report=report)


def _distances(X: Any, kernel: Kernel, points: Any, metric: str) -> NDArray[np.float64]:
    """Return the squared distances of all pairs, in the memory of the kernel matrix."""
    if metric == "euclidean":
        if kernel.precomputed:
            raise ValueError('KMedoids(metric="euclidean") needs features, not a kernel matrix.')
        from sklearn.metrics.pairwise import euclidean_distances

        # in float64 from the start: a matrix of float32 would lie beside the result
        return np.asarray(euclidean_distances(to_host(X).astype(np.float64), squared=True))
    K = np.asarray(to_host(kernel.block(X, points, dtype=np.float64)), np.float64)
    diagonal = K.diagonal().copy()
    K *= -2.0
    K += diagonal
    K += diagonal[:, None]
    return np.maximum(K, 0.0, out=K)
