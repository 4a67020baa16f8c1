"""Ways to solve: pure functions of (operators, targets, weights, C, bias) -> `DualSolution`."""

from leansvm.solvers._dual import DualSolution, NotPositiveDefinite
from leansvm.solvers._problem import (
    DualProblem,
    check_symmetric,
    solve_auto,
    solve_cg,
    solve_every,
    solve_exact,
)

__all__ = [
    "DualProblem",
    "DualSolution",
    "NotPositiveDefinite",
    "check_symmetric",
    "solve_auto",
    "solve_cg",
    "solve_every",
    "solve_exact",
]
