"""Rows that are gone: what solvers get where sums alone are left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.rows._base import RowBlocks


class NoRows(RowBlocks):
    """No block at all: passes over the rows find nothing, and no row can be taken."""

    n_rows = 0
    weighted = False

    def __init__(self, n_features: int) -> None:
        self.n_features, self.dtype = n_features, np.dtype(np.float64)

    def each(self, function: Callable[..., Any], *args: Any) -> Iterator[Any]:
        """Yield nothing."""
        return iter(())

    def take(self, indices: NDArray[np.intp]) -> Any:
        """Refuse: the rows are not there."""
        raise ValueError("The rows are not there any more: a state holds sums over them alone.")

    def targets_of(self, indices: NDArray[np.intp]) -> tuple[Any, Any]:
        """Return no targets and no weights."""
        return None, None
