"""Basis points of large quadratic Renyi entropy: the choice of fixed-size LS-SVM.

Maximise H = -log(V / r^2), V the sum of K_BB, by exchanges: a random member a leaves for a random
row c if V falls. With row sums rho of K_BB and rho_c = sum_{j != a} k(c, j) + k(c, c),
V' = V - 2 rho_a + k(a, a) + 2 rho_c - k(c, c) (Suykens et al., Least Squares SVM, 2002, ch. 6).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils._param_validation import Interval, StrOptions

from leansvm._array_api import namespace, rows_at
from leansvm._parallel import limited_blas
from leansvm.basis.cholesky.greedy import pivot_order
from leansvm.basis.cholesky.growing import diagonal, rank_floor
from leansvm.basis.selector import Basis, BasisSelector, Fit, OnStep
from leansvm.kernels import Kernel
from leansvm.rows import RowBlocks, WeightedSample, draw_by_weight, positive_rows

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
_EXCHANGES = 256  # exchanges whose kernel values are computed at once
_DRAWS = 16  # batches drawn and taken at once: both may go over all rows


class RenyiEntropy(BasisSelector):
    """Spread the basis over the data: exchange rows while the quadratic Renyi entropy grows.

    Starts from a random basis. An exchange costs about two kernel rows of the size of the basis;
    only drawing takes longer for more rows. Rows are drawn with probability proportional to their
    weight. The result is put in the order of pivoted Cholesky, without points that are numerically
    dependent on others.

    Parameters
    ----------
    n_trials : int or None, default=None
        Largest number of exchanges to try; None means the number of rows. The search also ends
        after 5 * n_basis rejections in a row.
    bandwidth : {"model", "density"}, default="model"
        Kernel of the entropy: that of the model, or a Gaussian one with the bandwidth of a
        density estimate, std * m^(-1 / (d + 4)) for m rows and d features.
    random_state : int, RandomState instance or None, default=None
        Seed; None takes that of the estimator.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm.basis.entropy import RenyiEntropy
    >>> from leansvm.rows import MemoryBlocks
    >>> from leansvm.kernels import Kernel
    >>> blocks = MemoryBlocks(np.linspace(0, 1, 101)[:, None])
    >>> selection = RenyiEntropy(random_state=0).select(blocks, Kernel("rbf", gamma=20.0), 4)
    >>> np.sort(selection.indices)
    array([ 0, 28, 62, 93])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_trials": [Interval(Integral, 0, None, closed="left"), None],
        "bandwidth": [StrOptions({"model", "density"})],
        "random_state": ["random_state"],
    }

    def __init__(
        self, n_trials: int | None = None, bandwidth: str = "model", random_state: Any = None
    ) -> None:
        self.n_trials = n_trials
        self.bandwidth = bandwidth
        self.random_state = random_state

    def _choose(
        self, blocks: RowBlocks, kernel: Kernel, n_basis: int, rng: Any, fit: Fit, on_step: OnStep
    ) -> Basis:
        start = WeightedSample(blocks, rng).first(n_basis)
        measure = _density_kernel(blocks, kernel) if self.bandwidth == "density" else kernel
        state = Exchange(measure, blocks.take(start), start)
        entropies = [state.entropy]
        trials, rejected, patience = 0, 0, 5 * len(start)
        most = positive_rows(blocks) if self.n_trials is None else self.n_trials
        for rows, X_c, leaving in _proposals(blocks, kernel, rng, len(start), most):
            with limited_blas():  # small products: threads would only wait for each other
                rejected = state.try_all(rows, X_c, leaving, rejected, patience)
            trials += len(rows)
            entropies.append(state.entropy)
            if rejected >= patience or on_step(len(start)):
                break
        X = blocks.take(state.rows)
        order = pivot_order(kernel, X, state.rows)
        report = {"trials": trials, "swaps": state.swaps, "entropy": np.array(entropies)}
        return Basis(state.rows[order], report=report)


def _proposals(
    blocks: RowBlocks, kernel: Kernel, rng: np.random.RandomState, r: int, most: int
) -> Iterator[tuple[Rows, Any, Rows]]:
    """Yield batches of (rows that may enter, these rows' X, members that would leave)."""
    batch = max(_EXCHANGES, r)
    for first in range(0, most, _DRAWS * batch):
        # always drawn in full, so that a smaller number of trials is a prefix of a larger one
        rows = draw_by_weight(blocks, rng, _DRAWS * batch)[: most - first]
        leaving = rng.randint(r, size=_DRAWS * batch)[: most - first]
        X = None if kernel.precomputed else blocks.take(rows)  # rows of a matrix are long
        for at in range(0, len(rows), batch):
            part = slice(at, min(at + batch, len(rows)))
            yield rows[part], blocks.take(rows[part]) if X is None else X[part, :], leaving[part]


class Exchange:
    """A set of rows with K_BB, its row sums rho and their sum V, kept up to date by swaps."""

    def __init__(self, kernel: Kernel, X: Any, rows: Rows) -> None:
        self._kernel = kernel
        self._X = None if kernel.precomputed else X
        self.rows = rows.copy()
        self.K = _block(kernel, X, X, rows)
        self.rho = self.K.sum(axis=1)
        self.V = float(self.rho.sum())
        self.swaps = 0

    @property
    def entropy(self) -> float:
        """H = -log(V / r^2)."""
        return float(-np.log(max(self.V, np.finfo(np.float64).tiny) / len(self.rows) ** 2))

    def try_all(self, rows: Rows, X_c: Any, leaving: Rows, rejected: int, patience: int) -> int:
        """Try the exchanges ``leaving[i]`` -> ``rows[i]``, whose X is ``X_c``, in turn.

        Stops after ``patience`` rejections in a row; returns how many there were at the end.
        """
        before = self.rows.copy()
        rejected = self._try_in_turn(rows, X_c, leaving, rejected, patience)
        new = np.flatnonzero(self.rows != before)
        if self._X is not None and len(new):
            place = np.arange(len(before))
            last = {int(row): i for i, row in enumerate(rows)}
            place[new] = [len(before) + last[int(row)] for row in self.rows[new]]
            is_sparse = sparse.issparse(X_c)
            stack = partial(sparse.vstack, format="csr") if is_sparse else namespace(X_c).concat
            self._X = rows_at(stack([self._X, X_c]), place)
        return rejected

    def _try_in_turn(
        self, rows: Rows, X_c: Any, leaving: Rows, rejected: int, patience: int
    ) -> int:
        to_basis = _block(self._kernel, X_c, self._X, self.rows)
        among = _block(self._kernel, X_c, X_c, rows)
        k_cc = among.diagonal()
        # what k(x, x) + k(z, z) - 2 k(x, z) may be for x = z, from the error of k(x, x)
        floor = rank_floor(float(k_cc.max()))
        if not self._kernel.precomputed:
            floor += 8 * float(np.abs(k_cc - diagonal(self._kernel, X_c)).max())
        # copies of members are not candidates: their distance in feature space is zero
        near = k_cc[:, None] + self.K.diagonal() - 2 * to_basis <= floor
        near |= rows[:, None] == self.rows
        copies, sums = near.sum(axis=1), to_basis.sum(axis=1)
        trial = np.arange(len(rows))
        at = 0
        while at < len(rows):
            # all remaining trials at once, up to the first that is accepted
            i, a = trial[at:], leaving[at:]
            gain = 2 * self.rho[a] - self.K[a, a] - 2 * (sums[i] - to_basis[i, a]) - k_cc[i]
            good = np.flatnonzero((gain > 1e-14 * abs(self.V)) & (copies[i] == 0))
            passed = int(good[0]) if len(good) else len(i)
            if rejected + passed >= patience:
                return patience
            if not len(good):
                return rejected + passed
            at, rejected = at + passed, 0
            c, a_out = at, int(leaving[at])
            self._swap(int(rows[c]), a_out, to_basis[c], float(k_cc[c]))
            # column a of K_cB is now that of the new member
            close = (k_cc + k_cc[c] - 2 * among[:, c] <= floor) | (rows == rows[c])
            copies += close.astype(np.intp) - near[:, a_out]
            sums += among[:, c] - to_basis[:, a_out]
            near[:, a_out], to_basis[:, a_out] = close, among[:, c]
            at += 1
        return rejected

    def _swap(self, row: int, a: int, k_c: Array, k_cc: float) -> None:
        """Replace member a; ``k_c`` holds the kernel of the new row with the old members."""
        new = k_c.copy()
        new[a] = k_cc
        others = new - self.K[a]
        others[a] = 0.0
        self.rho += others
        self.rho[a] = new.sum()
        self.K[a], self.K[:, a] = new, new
        self.V = float(self.rho.sum())
        self.rows[a] = row
        self.swaps += 1


def _block(kernel: Kernel, X: Any, Z: Any, others: Rows) -> Array:
    """Return the kernel between rows X and rows Z with numbers ``others``, in float64."""
    values = kernel.block(X, kernel.points(Z, others), dtype=np.float64)
    return np.require(values, np.float64, "W")


def _density_kernel(blocks: RowBlocks, kernel: Kernel) -> Kernel:
    if kernel.precomputed:
        raise ValueError('RenyiEntropy(bandwidth="density") needs features, not a kernel matrix.')
    d = blocks.n_features
    variance = blocks.variance() * positive_rows(blocks) ** (-2.0 / (d + 4))  # bandwidth squared
    return Kernel("rbf", gamma=1.0 / (2.0 * variance) if variance > 0 else 1.0)
