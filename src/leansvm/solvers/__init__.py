"""Solvers: one public module per method, each returns a `Solution`.

`table.solve` runs the solver of a name for the exact machines; `auto` picks one.
"""

from leansvm.solvers.problem import DualProblem
from leansvm.solvers.solution import Solution

__all__ = ["DualProblem", "Solution"]
