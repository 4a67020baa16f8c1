"""The interface of all basis selectors, and the default one: rows at random.

A selector is a scikit-learn `BaseEstimator` (its parameters can be searched) that keeps nothing
of the data. It works through `RowBlocks.map` and `RowBlocks.sum` alone, so that it runs wherever
the rows are. `RandomBasis` is zhou2016's RRP, Nystroem's choice, the cheapest there is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from leansvm._array_api import to_host
from leansvm._sklearn import Documented
from leansvm.kernels import Kernel
from leansvm.losses import Loss, Squared
from leansvm.rows import Block, RowBlocks, WeightedSample, declare, sample_weights

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
OnStep = Callable[[int], bool]
_MOST_CLASSES = 1000


@dataclass(frozen=True)
class Basis:
    """Basis points B in the order of choice, and what choosing them has already computed.

    ``Basis(rows)`` with an array of row numbers is enough for a selector of your own;
    `leansvm.basis.choose.choose` adds the rows themselves. If a selector also gives ``L``, then
    K_BB = L L', and every block keeps its rows of the whitened basis P = K_MB L^-T
    (`leansvm.basis.cholesky.FactorRows`) in the first ``len(indices)`` columns.
    """

    # row numbers; -1 for points of an earlier fit that are not rows now; None if points were given
    indices: Any
    rows: Any = None
    _: KW_ONLY
    L: Any = None  # lower triangular, on the host
    report: dict[str, Any] = field(default_factory=dict)

    def points(self, kernel: Kernel) -> Any:
        """Return the basis as `Kernel.block` takes it."""
        return kernel.points(self.rows, self.indices)


@dataclass(frozen=True)
class Fit:
    """The model for which a selector with ``uses_targets`` chooses rows.

    Targets and weights are in the blocks (``y`` with one column for each output, ``weight``).
    ``bias_penalty`` is A of the objective: 0 is a free bias, inf is no bias. With n the sum of
    weights s, a free or penalised bias is eliminated by centring columns z:
    z - s'z / (n + bias_penalty / C). Selectors for the squared loss ignore the other fields.
    """

    C: float
    bias_penalty: float = 0.0
    loss: Loss = field(default_factory=Squared)
    regularizer: str = "rkhs"  # alpha' K_BB alpha, or "coef": alpha' alpha
    margin: bool = False  # slack 1 - y f of labels +-1 instead of y - f
    # For selectors that fit while they choose (`leansvm.newton.refit.refit`):
    # refit(blocks, k, start, *, loss, C, bias_penalty, margin) -> (theta, objective) minimises over
    # the coefficients of the first k columns of P, and the bias in a last row, from start.
    refit: Callable[..., tuple[Array, float]] | None = None


class BasisSelector(Documented):
    """Base class of selectors; derive your own from it.

    A selector defines ``_choose(self, blocks, kernel, n_basis, rng, fit, on_step)``, which returns
    ``Basis(rows)``: an integer array of row numbers in the order of choice, each at most once.
    ``rng`` is a generator made from ``random_state``, and ``on_step`` is never None. Or it defines
    `select`, whose parameters are described below.

    Attributes
    ----------
    nested : bool
        Whether the first k rows of a choice are the choice of k rows.
    uses_targets : bool
        Whether the choice depends on y, C and the weights; `select` then needs ``fit``.
    """

    nested: ClassVar[bool] = False
    uses_targets: ClassVar[bool] = False
    runs_where_rows_are: bool | property = False  # takes any array library's rows, not just NumPy's
    _documented_in = "leansvm.basis"
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {}

    def state_columns(self, n_basis: int) -> int:
        """Numbers (8 bytes each) that `select` keeps for every row; 0 for none."""
        return 0

    def matrix_rows(self, n_basis: int) -> int:
        """Most rows of the square matrix that `select` makes; 0 for none."""
        return 0

    def select(
        self,
        blocks: RowBlocks,
        kernel: Kernel,
        n_basis: int,
        *,
        random_state: Any = None,
        fit: Fit | None = None,
        on_step: OnStep | None = None,
    ) -> Basis:
        """Choose up to ``n_basis`` rows.

        Parameters
        ----------
        blocks : RowBlocks
            The rows, with targets and weights if the selector uses them.
        kernel : Kernel
            Kernel of the model.
        n_basis : int
            Largest number of rows to choose; fewer are chosen if the kernel matrix has a lower
            rank.
        random_state : int, RandomState instance or None
            Used unless the selector has a ``random_state`` of its own.
        fit : Fit, optional
            The model's C and bias, for selectors with ``uses_targets``.
        on_step : callable, optional
            Called with the number of rows chosen so far; returns True to stop.

        Returns
        -------
        Basis
            The chosen row numbers, in the order of choice, and the rows.
        """
        self._validate_params()
        if fit is None and self.uses_targets:
            name = type(self).__name__
            raise ValueError(f"{name} needs the C and the loss of the model: pass fit=Fit(C, ...).")
        own = getattr(self, "random_state", None)
        rng = check_random_state(random_state if own is None else own)
        return self._choose(blocks, kernel, n_basis, rng, fit or Fit(1.0), on_step or go_on)

    def _choose(
        self, blocks: RowBlocks, kernel: Kernel, n_basis: int, rng: Any, fit: Fit, on_step: OnStep
    ) -> Basis:
        raise NotImplementedError(f"{type(self).__name__} must define _choose or select.")


def go_on(size: int) -> bool:
    """Never stop a choice."""
    return False


# ---------------------------------------------------------------------------- at random


class RandomBasis(BasisSelector):
    """Choose rows at random, without replacement.

    The next row is drawn with probability proportional to its weight among those not drawn yet:
    a row of weight w is as likely as w copies of it would be, and rows of zero weight are never
    chosen. Nothing is kept for each row, so this works for any number of rows.

    Parameters
    ----------
    stratify : bool, default=False
        Keep the classes in proportion to their weights, also among the first k rows for every k.
        Classes are the distinct rows of the targets.
    random_state : int, RandomState instance or None, default=None
        Seed; None takes that of the estimator.

    Attributes
    ----------
    nested : bool
        True: with the same seed, k rows are the first k of a larger choice.

    See Also
    --------
    leansvm.basis.RandomPivotedCholesky : Random rows, preferably unlike those chosen before.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm.basis import RandomBasis
    >>> from leansvm.rows import MemoryBlocks
    >>> from leansvm.kernels import Kernel
    >>> blocks = MemoryBlocks(np.arange(100.0)[:, None])
    >>> RandomBasis(random_state=0).select(blocks, Kernel("rbf"), 5).indices
    array([54, 71, 60, 42, 64])
    """

    nested = True
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "stratify": ["boolean"],
        "random_state": ["random_state"],
    }

    def __init__(self, stratify: bool = False, random_state: Any = None) -> None:
        self.stratify = stratify
        self.random_state = random_state

    @property
    def runs_where_rows_are(self) -> bool:  # type: ignore[override]
        """Whether rows of any array library will do."""
        return not self.stratify

    def _choose(
        self, blocks: RowBlocks, kernel: Kernel, n_basis: int, rng: Any, fit: Fit, on_step: OnStep
    ) -> Basis:
        sample = WeightedSample(blocks, rng)
        rows = _stratified(blocks, sample, n_basis) if self.stratify else sample.first(n_basis)
        on_step(len(rows))
        return Basis(rows)


def _stratified(blocks: RowBlocks, sample: WeightedSample, count: int) -> Rows:
    """Reorder a growing sample so that all classes are in proportion at every prefix."""
    classes, weights, sizes = _classes(blocks)
    # class c has its j-th turn at time (j - 1/2) / share (Sainte-Lague)
    per_class = np.minimum(sizes, count)
    c = np.repeat(np.arange(len(sizes)), per_class)
    j = np.concatenate([np.arange(n) for n in per_class])
    turns = c[np.argsort((j + 0.5) / weights[c], kind="stable")][:count]
    quota = np.bincount(turns, minlength=len(classes))
    labels = np.empty(0, np.intp)
    while (np.bincount(labels, minlength=len(classes)) < quota).any():
        if len(sample.first(len(labels) + 1)) == len(labels):
            break  # all rows are drawn
        new = sample.rows[len(labels) :]
        mine, values = blocks.collect(_labels_in_block, new, classes)
        labels = np.concatenate([labels, values[np.argsort(mine)]])
    result = np.empty(len(turns), np.intp)
    for k in range(len(classes)):
        result[turns == k] = sample.rows[labels == k][: quota[k]]
    return result


def _classes(
    blocks: RowBlocks,
) -> tuple[Array, Array, Rows]:
    """Return the distinct targets, the sample weight and the number of rows of each."""
    parts = blocks.map(_classes_in_block, blocks.class_weight)
    classes, place = np.unique(np.vstack([p[0] for p in parts]), axis=0, return_inverse=True)
    if len(classes) > _MOST_CLASSES:
        raise ValueError(
            f"RandomBasis(stratify=True) needs classes as targets, but there are {len(classes)} "
            "different values; set stratify=False."
        )
    place = place.ravel()
    weights = np.bincount(place, np.concatenate([p[1] for p in parts])).astype(np.float64)
    sizes = np.bincount(place, np.concatenate([p[2] for p in parts])).astype(np.intp)
    return classes, weights, sizes


@declare("y", "weight")
def _classes_in_block(block: Block, class_weight: Array | None) -> tuple[Array, Array, Rows]:
    if block.y is None:
        raise ValueError("RandomBasis(stratify=True) needs targets, but the rows have none.")
    y, weight = _targets(block), to_host(sample_weights(block, class_weight))
    y, weight = y[weight > 0], weight[weight > 0]
    if y.shape[1] == 1:
        values, place = np.unique(y, return_inverse=True)
        classes = values[:, None]
    else:
        classes, place = np.unique(y, axis=0, return_inverse=True)
    place = place.ravel()
    return classes, np.bincount(place, weight).astype(np.float64), np.bincount(place)


def _targets(block: Block) -> Array:
    y = np.asarray(to_host(block.y), dtype=np.float64)
    return y.reshape(len(y), -1)


@declare("y")
def _labels_in_block(block: Block, indices: Rows, classes: Array) -> tuple[Rows, Rows]:
    mine, rows = block.positions(indices)
    same = (_targets(block)[rows][:, None, :] == classes[None, :, :]).all(axis=2)
    return mine, np.argmax(same, axis=1)
