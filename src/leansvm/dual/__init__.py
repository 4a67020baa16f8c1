"""The exact machines: all rows as basis, one public module per method.

`solvers.solve_dual` runs the solver of a name, or the one that "auto" picks.
"""

from leansvm.dual.problem import DualProblem

__all__ = ["DualProblem"]
