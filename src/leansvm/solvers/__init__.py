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
from leansvm.solvers._sequential import FREE_BIAS_ONLY, solve_sequential
from leansvm.solvers._sequential_hinge import solve_sesqui

__all__ = [
    "FREE_BIAS_ONLY",
    "DualProblem",
    "DualSolution",
    "NotPositiveDefinite",
    "check_symmetric",
    "solve_auto",
    "solve_cg",
    "solve_every",
    "solve_exact",
    "solve_sequential",
    "solve_sesqui",
]
