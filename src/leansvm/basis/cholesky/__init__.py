"""Pivoted Cholesky K ~ P P' of a kernel matrix over row blocks, below selectors and solvers.

A basis grows in rounds (`growing`), pivots are taken greedily (`greedy`).
"""

from leansvm.basis.cholesky.greedy import pivot_order, pivoted_cholesky
from leansvm.basis.cholesky.growing import FactorRows

__all__ = ["FactorRows", "pivot_order", "pivoted_cholesky"]
