"""The interface of all basis selectors: choose rows of a RowBlocks, in order.

A selector is a scikit-learn `BaseEstimator` (its parameters can be searched) that keeps nothing
of the data. It works through `RowBlocks.map` and `RowBlocks.sum` alone, so that it runs wherever
the rows are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from leansvm._sklearn import Documented
from leansvm.kernels import Kernel
from leansvm.losses import Loss, Squared
from leansvm.rows import RowBlocks

OnStep = Callable[[int], bool]


@dataclass(frozen=True)
class Basis:
    """Basis points B in the order of choice, and what choosing them has already computed.

    A selector returns the row numbers; `leansvm.basis.choose.choose` adds the rows themselves.
    When ``L`` is given, K_BB = L L' and every block keeps its rows of the whitened basis
    P = K_MB L^-T (`leansvm.basis.cholesky.FactorRows`) in the first ``len(indices)`` columns.
    """

    # row numbers, -1 for points of an earlier fit that are no rows; None when points were given
    indices: Any
    rows: Any = None
    _: KW_ONLY
    L: Any = None  # lower triangular, on the host
    report: dict[str, Any] = field(default_factory=dict)

    def points(self, kernel: Kernel) -> Any:
        """Return the basis as `Kernel.block` takes it."""
        return self.indices if kernel.precomputed else self.rows


@dataclass(frozen=True)
class Fit:
    """What selectors defined by the model need to know of it (those with ``uses_targets``).

    Targets and weights are in the blocks (``y`` with one column for each output, ``weight``). The
    bias is free (``bias_penalty`` 0), penalised, or absent (inf): with n the sum of weights,
    centring is z - s'z / (n + bias_penalty / C). Selectors for the squared loss ignore the rest.
    """

    C: float
    bias_penalty: float = 0.0
    loss: Loss = field(default_factory=Squared)
    regularizer: str = "rkhs"  # alpha' K_BB alpha, or "coef": alpha' alpha
    margin: bool = False  # slack 1 - y f of labels +-1 instead of y - f
    # For selectors that fit while they choose (`leansvm.newton.refit.refit`):
    # refit(blocks, k, start, *, loss, C, bias_penalty, margin) -> (theta, objective) minimises over
    # the coefficients of the first k columns of P, and the bias in a last row, from start.
    refit: Callable[..., tuple[NDArray[np.float64], float]] | None = None


class BasisSelector(Documented):
    """Base class of selectors.

    A selector defines ``select``, or ``_choose``, which gets checked parameters, a random
    generator and a callback that is always there.

    Attributes
    ----------
    nested : bool
        Whether the first k rows of a choice are the choice of k rows.
    uses_targets : bool
        Whether the choice depends on y, C and the weights; `select` then needs ``fit``.
    """

    nested: ClassVar[bool] = False
    uses_targets: ClassVar[bool] = False
    _documented_in = "leansvm.basis"
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {}

    @property
    def runs_where_rows_are(self) -> bool:
        """Whether `select` takes rows of any array library; others get theirs on the host."""
        return False

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
            The rows, with targets and weights where the selector uses them.
        kernel : Kernel
            Kernel of the model.
        n_basis : int
            Most rows to choose; fewer when the kernel matrix has a lower rank.
        random_state : int, RandomState instance or None
            Used unless the selector has a ``random_state`` of its own.
        fit : Fit, optional
            The model's C and bias, for selectors with ``uses_targets``.
        on_step : callable, optional
            Called with the number of rows chosen so far; returns True to stop.
        """
        self._validate_params()
        if fit is None and self.uses_targets:
            name = type(self).__name__
            raise ValueError(f"{name} needs the model's loss and C: pass fit=Fit(C, ...).")
        rng = self._rng(random_state)
        return self._choose(blocks, kernel, n_basis, rng, fit or Fit(1.0), on_step or go_on)

    def _choose(
        self, blocks: RowBlocks, kernel: Kernel, n_basis: int, rng: Any, fit: Fit, on_step: OnStep
    ) -> Basis:
        raise NotImplementedError(f"{type(self).__name__} must define select.")

    def _rng(self, random_state: Any) -> np.random.RandomState:
        own = getattr(self, "random_state", None)
        return check_random_state(random_state if own is None else own)


def go_on(size: int) -> bool:
    """Never stop a choice."""
    return False
