"""Features whose squared coefficient norm is the regulariser: one problem for both of zhou2013's.

f = Phi theta + b with R = |theta|^2. Phi = K_MB L^-T, K_BB = L L', makes it alpha'K_BB alpha
("rkhs", M1); Phi = K_MB makes it alpha'alpha ("coef", M2). A bias is a last column of ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import as_float64, foreign_namespace, in_float64, namespace, rows_at
from leansvm.blocks import Block
from leansvm.kernels import Kernel

Array = NDArray[np.float64]


class BasisFeatures(Protocol):
    """What `WhitenedBasis` and `PlainBasis` share."""

    @property
    def kept(self) -> NDArray[np.intp]:
        """Positions of the points kept among those asked for."""

    @property
    def points(self) -> Any:
        """The points kept."""

    @property
    def size(self) -> int:
        """Number of points kept."""

    def transform(self, X: Any) -> Any:
        """Return Phi of rows, where they are."""

    def coefficients(self, theta: Array) -> Array:
        """Return alpha of the points kept."""


@dataclass
class PlainBasis:
    """Points whose kernel functions are the features themselves; none are dropped."""

    kernel: Kernel
    points: Any

    @property
    def size(self) -> int:
        """Number of points."""
        return int(self.points.shape[0])

    @property
    def kept(self) -> NDArray[np.intp]:
        """Positions of the points among those asked for: all."""
        return np.arange(self.size)

    def transform(self, X: Any) -> Any:
        """Return k(X, B), where the rows are."""
        values = self.kernel.block(in_float64(X), in_float64(self.points), dtype=np.float64)
        return as_float64(values)

    def coefficients(self, theta: Array) -> Array:
        """Return theta."""
        return theta[: self.size]


@dataclass
class Features:
    """[Phi, 1] of rows, kept by the blocks when ``keep``."""

    basis: BasisFeatures
    has_bias: bool
    keep: bool = True
    in_state: bool = False  # the selector has left Phi in state["P"]
    copies: bool = False  # and goes on with it

    @property
    def width(self) -> int:
        """Columns: the basis and, if there is a bias, one for it."""
        return self.basis.size + self.has_bias

    def of(self, block: Block) -> Any:
        """Return the features of all rows of a block, where they are."""
        found: Any = block.state.get("Phi")
        if found is None:
            found = self._with_bias(self._phi(block))
            if self.keep:
                block.state["Phi"] = found
        return found

    def of_rows(self, block: Block, rows: NDArray[np.intp]) -> Any:
        """Return the features of some rows of a block; only these are computed."""
        if "Phi" in block.state:
            return rows_at(block.state["Phi"], rows)
        return self._with_bias(self.basis.transform(rows_at(block.X, rows)))

    def _phi(self, block: Block) -> Any:
        if self.copies:
            return _row_by_row(block.state["P"][:, : self.basis.size])
        P = block.state.pop("P", None)
        if P is None or not self.in_state:
            return self.basis.transform(block.X)
        return _row_by_row(P[:, : self.basis.size])

    def _with_bias(self, Phi: Any) -> Any:
        if not self.has_bias:
            return Phi
        xp = namespace(Phi)
        return xp.concat([Phi, xp.ones_like(Phi[:, :1])], axis=1)


def _row_by_row(P: Any) -> Any:
    return np.ascontiguousarray(P) if foreign_namespace(P) is None else P
