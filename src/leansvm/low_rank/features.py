"""The map x -> phi(x) of learned functions (fang2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import like_rows, to_host
from leansvm.basis.features import FeatureMap
from leansvm.linalg import dense64
from leansvm.low_rank import BasisFunction, SeparableFunction
from leansvm.rows import Block

Array = NDArray[np.float64]


@dataclass
class LearnedValues:
    """What a block keeps: the values of one map at its rows."""

    features: LearnedFeatures
    values: Any  # rows x functions


@dataclass(frozen=True, eq=False)
class LearnedFeatures(FeatureMap):
    """Functions phi_j with their centres and shapes; blocks remember the values of one map."""

    function: BasisFunction
    centers: Array  # functions x features
    shapes: Array
    constant: float | None = None
    order: ClassVar[Literal["C", "F"]] = "F"

    @property
    def size(self) -> int:
        """Number of functions."""
        return len(self.centers)

    def phi(self, X: Any, out: Any = None) -> Any:
        """Return phi_j(x_n); functions of a user's own know NumPy alone."""
        X = dense64(X)
        separable = isinstance(self.function, SeparableFunction)
        rows = X if separable else to_host(X)
        values = like_rows(self.function.values(rows, self.centers, self.shapes), X)
        if out is None:
            return values
        out[...] = values
        return out

    def values(self, block: Block) -> Any:
        """Return phi_j(x_n) of a block's rows, which the block keeps (`LearnedValues`)."""
        known = block.find(LearnedValues)
        if known is None or known.features is not self:
            known = LearnedValues(self, self.phi(block.X))
            block.keep(known)
        return known.values

    def of(self, block: Block, out: Any = None) -> Any:
        """Return all columns of a block's rows."""
        values = self.values(block)
        if out is None:
            if self.constant is None:
                return values
            out = self._empty(values)
        out[:, : self.size] = values
        if self.constant is not None:
            out[:, self.size] = self.constant
        return out

    def coefficients(self, theta: Array) -> Array:
        """Return the weights of the functions alone."""
        return np.ascontiguousarray(theta[: self.size])
