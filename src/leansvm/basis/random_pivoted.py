"""Basis points by randomly pivoted Cholesky (Chen, Epperly, Tropp, Webber), also accelerated.

A row is drawn with probability D_t / sum D, D = k(x, x) - |P_x|^2. Accelerated: many rows are
drawn at once from a stale D; one is accepted with probability (its D by now) / (its stale D).
This is rejection sampling, so the pivots have the same law as one at a time.
"""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval

from leansvm._array_api import foreign_namespace, like_rows, namespace, to_host
from leansvm.basis.cholesky.growing import FactorRows, GrowingBasis, PartialCholesky
from leansvm.basis.selector import Basis, BasisSelector, Fit, OnStep
from leansvm.kernels import Kernel
from leansvm.rows import Block, RowBlocks, declare, sample_weights

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
_FEWEST_DRAWS, _MOST_DRAWS = 32, 1000


class RandomPivotedCholesky(BasisSelector):
    """Draw rows with probability proportional to the part that the basis does not represent.

    A compromise: `RandomBasis` may choose rows that the basis already represents, and
    `PivotedCholesky` prefers outliers. In expectation this choice is close to the best low-rank
    approximation of the kernel matrix. A row of weight w is drawn like w copies of it.

    Parameters
    ----------
    accelerated : bool, default=True
        Draw many rows in a round and reject some: the distribution is the same as one by one, and
        it is several times faster.
    tol : float, default=0.0
        Stop when the (weighted) trace of the residual is at most this share of the trace of the
        kernel matrix. With 0 only the number of rows or the numerical rank ends the choice.
    random_state : int, RandomState instance or None, default=None
        Seed; None takes that of the estimator.

    Attributes
    ----------
    nested : bool
        True: with the same seed, k rows are the first k of a larger choice.

    References
    ----------
    Y. Chen, E. N. Epperly, J. A. Tropp, R. J. Webber, "Randomly pivoted Cholesky: Practical
    approximation of a kernel matrix with few entry evaluations", Communications on Pure and
    Applied Mathematics 78(5), 2025.

    E. N. Epperly, J. A. Tropp, R. J. Webber, "Embrace rejection: Kernel matrix approximation by
    accelerated randomly pivoted Cholesky", 2024.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm.basis.random_pivoted import RandomPivotedCholesky
    >>> from leansvm.rows import MemoryBlocks
    >>> from leansvm.kernels import Kernel
    >>> blocks = MemoryBlocks(np.linspace(0, 1, 101)[:, None])
    >>> selector = RandomPivotedCholesky(random_state=0)
    >>> selector.select(blocks, Kernel("rbf", gamma=4.0), 5).indices
    array([55, 60,  7, 95, 17])
    """

    nested = True
    runs_where_rows_are = True
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "accelerated": ["boolean"],
        "tol": [Interval(Real, 0, 1, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self, accelerated: bool = True, tol: float = 0.0, random_state: Any = None
    ) -> None:
        self.accelerated = accelerated
        self.tol = tol
        self.random_state = random_state

    def state_columns(self, n_basis: int) -> int:
        """P and the residual diagonal."""
        return n_basis + 1

    def _choose(
        self, blocks: RowBlocks, kernel: Kernel, n_basis: int, rng: Any, fit: Fit, on_step: OnStep
    ) -> Basis:
        basis = GrowingBasis(blocks, kernel, min(n_basis, blocks.n_rows))
        trace_tol = self.tol * basis.residual_trace
        draws, drawn, rounds = _FEWEST_DRAWS if self.accelerated else 1, 0, 0
        while basis.size < basis.capacity and basis.residual_trace > trace_tol:
            rows = draw_rows(blocks, rng, draws, basis.floor)
            if len(rows) == 0:
                break  # numerical rank exhausted
            candidates, order = np.unique(rows, return_inverse=True)
            H = PartialCholesky(basis.try_out(candidates), basis.capacity - basis.size)
            local = _accept(H, order, rng.random_sample(draws), basis.floor)
            if not local.picked:
                break  # what was left was rounding
            basis.accept(local)
            drawn, rounds = drawn + draws, rounds + 1
            if self.accelerated:
                # aims at doubling; depends on past rounds alone, so a smaller choice is a prefix
                aimed = basis.size / (len(local.picked) / draws)
                draws = int(np.clip(aimed, _FEWEST_DRAWS, _MOST_DRAWS))
            if on_step(basis.size):
                break
        indices, L, trace = basis.cut(trace_tol)
        return Basis(indices, L=L, report={"rounds": rounds, "draws": drawn, "trace": trace})


def _accept(local: PartialCholesky, order: Rows, uniform: Array, floor: float) -> PartialCholesky:
    """Go through the draws: accept t with probability (its residual by now) / (stale residual)."""
    stale = local.D.copy()
    for t, u in zip(order.tolist(), uniform.tolist(), strict=True):
        if len(local.picked) == local.most:
            break
        if local.D[t] > floor and u * stale[t] < local.D[t]:
            local.take(t)
    return local


# ---------------------------------------------------------------------------- drawing in blocks


def draw_rows(blocks: RowBlocks, rng: np.random.RandomState, count: int, floor: float) -> Rows:
    """Draw ``count`` rows with replacement by their mass, weight times residual.

    Two-level inverse CDF: the blocks send the sums of their masses, the host draws and says which
    block a draw falls into, the block finds the row. A seed gives the same rows whatever the
    blocks. No rows when there is no mass.
    """
    missed = floor, blocks.class_weight
    starts, totals = blocks.collect(_total, *missed)
    edges = np.cumsum(np.append(0.0, totals))
    if not edges[-1] > 0:
        return np.empty(0, np.intp)
    targets = rng.random_sample(count) * edges[-1]
    # the last block that begins at or before the target; blocks without mass begin and end there
    home = np.searchsorted(edges, targets, side="right") - 1
    home = np.minimum(home, np.flatnonzero(np.diff(edges))[-1])
    mine, rows = blocks.collect(_locate, *missed, starts[home], targets - edges[home])
    result = np.empty(len(targets), np.intp)
    result[mine] = rows
    return result


@declare("y", "weight")
def _total(block: Block, floor: float, class_weight: Array | None) -> tuple[Rows, Array]:
    edges = _running_mass(block, floor, class_weight)
    return np.array([block.start]), np.array([float(edges[-1]) if edges.shape[0] else 0.0])


@declare("y", "weight")
def _locate(
    block: Block, floor: float, class_weight: Array | None, home: Rows, targets: Array
) -> tuple[Rows, Rows]:
    mine = np.flatnonzero(home == block.start)
    if len(mine) == 0:
        return mine, mine
    edges = _running_mass(block, floor, class_weight)
    rows = _first_beyond(edges, targets[mine], "right")
    last = int(_first_beyond(edges, to_host(edges[-1:]), "left")[0])  # the last row with any mass
    return mine, np.minimum(rows, last) + block.start


def _running_mass(block: Block, floor: float, class_weight: Array | None) -> Any:
    """Add up, row by row, sample weight times residual, if that is more than rounding."""
    D = block.kept(FactorRows).D
    mass = namespace(D).where(floor < D, D, 0.0)
    if block.weight is not None:
        mass *= sample_weights(block, class_weight)
    xp = foreign_namespace(mass)
    return np.cumsum(mass) if xp is None else xp.cumulative_sum(mass)


def _first_beyond(edges: Any, targets: Array, side: Any) -> Rows:
    xp = foreign_namespace(edges)
    if xp is None:
        return np.searchsorted(edges, targets, side=side)
    found = xp.searchsorted(edges, like_rows(targets, edges), side=side)
    return np.asarray(to_host(found), dtype=np.intp)
