"""The exact machines: all rows as basis, one public module per method.

`table.solve` runs the solver of a name; `auto` picks one.
"""

from leansvm.dual.problem import DualProblem

__all__ = ["DualProblem"]
