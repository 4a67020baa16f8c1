"""Pivoted Cholesky K ~ P P' of a kernel matrix over row blocks, below selectors and solvers.

The blocks keep their rows of P and the residual diagonal D (`rows`), a basis grows in rounds
(`growing`), pivots are taken greedily (`greedy`).
"""

from leansvm.basis.cholesky.greedy import pivot_order, pivoted_cholesky
from leansvm.basis.cholesky.growing import GrowingBasis, PartialCholesky, kernel_rounding
from leansvm.basis.cholesky.rows import FactorRows, factor_rows, rank_floor

__all__ = [
    "FactorRows",
    "GrowingBasis",
    "PartialCholesky",
    "factor_rows",
    "kernel_rounding",
    "pivot_order",
    "pivoted_cholesky",
    "rank_floor",
]
