"""The solvers of the exact machines by name, with what each of them needs.

`solve_dual` is the entry point of the estimators: it checks the needs of the solver that was asked
for, in this one place, and runs it. Where left-out residuals are asked for and the solver has none,
they are those of models without a fold of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import foreign_namespace, rows_at
from leansvm._phases import Phases
from leansvm.dual.auto import solve_active_set, solve_hinge, solve_lssvm
from leansvm.dual.cg import solve_cg
from leansvm.dual.cholesky import solve_cholesky
from leansvm.dual.free_bias import solve_penalty_flow, solve_substitution, solve_sumt
from leansvm.dual.kernel_matrix import values_between
from leansvm.dual.problem import DualProblem
from leansvm.dual.sesqui import solve_sesqui
from leansvm.dual.smo import solve_smo
from leansvm.dual.working_sets import solve_newton
from leansvm.kernels import Kernel
from leansvm.rows import Block, class_numbers, row_hashes, tile_rows_for
from leansvm.solution import Solution

Array = NDArray[np.float64]
_FOLDS, _ENOUGH = 5, 1000  # folds, and rows left out after which no more of them are solved


@dataclass(frozen=True)
class Solver:
    """A way to solve, and what it needs."""

    solve: Callable[..., Solution | None]  # (problem, C, and what it takes, by keyword)
    takes: tuple[str, ...] = ("tol", "max_iter")  # with "left_out" it takes several C, too
    free_bias: bool = False  # needs bias_penalty=0
    on_host: bool = False  # needs rows in the memory of the host


_ITERATES = ("tol", "max_iter", "left_out")
SOLVERS = {
    "lssvm": {
        "auto": Solver(solve_lssvm, (*_ITERATES, "criterion")),
        "cholesky": Solver(solve_cholesky, ("left_out", "criterion")),
        "cg": Solver(solve_cg),
        "smo": Solver(solve_smo, on_host=True),
        "sumt": Solver(solve_sumt, free_bias=True, on_host=True),
        "substitution": Solver(solve_substitution, free_bias=True, on_host=True),
        "penalty-flow": Solver(solve_penalty_flow, free_bias=True, on_host=True),
    },
    "hinge": {
        "auto": Solver(solve_hinge, (*_ITERATES, "max_support"), on_host=True),
        "active-set": Solver(solve_active_set, (*_ITERATES, "max_support"), on_host=True),
        "newton": Solver(solve_newton),
        "smo": Solver(solve_sesqui, on_host=True),
    },
}


def solver_names(family: str) -> frozenset[str]:
    """Return the values that ``solver=`` may take in a family, "lssvm" or "hinge"."""
    return frozenset(SOLVERS[family])


def solve_dual(
    family: str,
    name: str,
    problem: DualProblem,
    C: float | Array,
    *,
    left_out: bool,
    max_support: int | None = None,
    **options: Any,
) -> Solution:
    """Solve a dual problem by the solver of this name, one of `solver_names`.

    The family is "lssvm", squared loss, or "hinge", squared hinge loss with targets +-1. Of several
    C the best is taken: by ``criterion``, "gcv" or "loo", for "lssvm", by the left-out loss for
    "hinge". ``left_out`` asks for the residuals of models without each row; ``max_support`` bounds
    the support vectors ("hinge" alone); ``tol`` and ``max_iter`` say where iterative solvers stop.
    Raises ValueError when the solver cannot do what is asked, or the kernel is not positive
    definite.
    """
    solver, bounded = SOLVERS[family][name], max_support is not None
    check_solver(family, name, problem, several=isinstance(C, np.ndarray), bounded=bounded)
    with np.errstate(all="ignore"):
        least, most = np.min(C) * problem.weight.min(), np.max(C) * problem.weight.max()
        if not (np.isfinite(1.0 / least) and np.isfinite(most)):
            raise ValueError(
                f"C times sample_weight, {least:.3g} to {most:.3g}, and its inverse must be "
                f"finite: scale sample_weight, or change C."
            )
    options |= {"left_out": left_out, "max_support": max_support}
    for unused in options.keys() - set(solver.takes):
        del options[unused]
    solve: Any = partial(solver.solve, C=C, **options)
    with explain_failure(problem.kernel):
        solution: Solution = solve(problem)  # there is nothing to give up for
        if left_out and solution.left_out is None:
            with problem.phases("left out"):
                solution = replace(solution, left_out=_residuals_of_folds(problem, solve))
    return solution


def check_solver(
    family: str, name: str, problem: DualProblem, *, several: bool = False, bounded: bool = False
) -> None:
    """Refuse what a solver cannot do.

    ``several`` C, a ``bounded`` support set, or a problem whose bias or rows it cannot take.
    """
    solver = SOLVERS[family][name]
    if "left_out" not in solver.takes and (several or bounded):
        if family == "hinge":
            raise ValueError(
                f"solver={name!r} is for one C, without max_support: use solver='active-set'."
            )
        raise ValueError(
            f"C='loo', C='gcv' or a list of C needs a factorisation of the kernel matrix, which "
            f"solver={name!r} avoids: use solver='auto' or 'cholesky', or SparseLSSVC."
        )
    if solver.free_bias and problem.bias_penalty != 0:
        raise ValueError(
            f"solver={name!r} is for the free bias: it needs fit_intercept=True and "
            f"bias_penalty=0. Use solver='smo' for a penalised bias or none."
        )
    if solver.on_host and foreign_namespace(problem.X) is not None:
        raise ValueError(f"solver={name!r} needs rows in the memory of the host.")


def _residuals_of_folds(problem: DualProblem, solve: Callable[[DualProblem], Solution]) -> Array:
    """Return y - f of rows in the model without their fold; NaN for rows in no such fold.

    A fold is every fifth row, class by class; as many are solved as it takes for 1,000 rows.
    """
    Y, m = problem.Y, len(problem.Y)
    fold, rows = np.empty(m, dtype=np.intp), np.arange(m) if problem.rows is None else problem.rows
    keys: Any = rows  # else by the values of a row, so that the order of rows decides nothing
    if not problem.kernel.precomputed:
        keys = row_hashes(Block(0, m, rows_at(problem.X, rows), Y, None))
    fold[np.lexsort([keys, class_numbers(Y)])] = np.arange(m) % _FOLDS
    residuals = np.full(Y.shape, np.nan)
    for number in range(_FOLDS):
        rest, out = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        part = replace(problem, Y=Y[rest], weight=problem.weight[rest], rows=rows[rest])
        found = solve(replace(part, phases=Phases(), on_iteration=None))
        step = max(1, tile_rows_for(8 * len(rest)))
        for start in range(0, len(out), step):
            some = out[start : start + step]
            residuals[some] = Y[some] - values_between(problem, some, rest) @ found.coef - found.b
        if np.isfinite(residuals).sum() >= _ENOUGH * Y.shape[1]:
            break
    return residuals


@contextmanager
def explain_failure(kernel: Kernel) -> Iterator[None]:
    """Turn a factorisation that fails inside into an error that names the kernel."""
    try:
        yield
    except np.linalg.LinAlgError as error:
        raise ValueError(
            f"kernel={kernel.name!r}: the kernel matrix plus 1/C on its diagonal is not positive "
            f"definite ({error}). Use a positive semidefinite kernel or a smaller C, or scale "
            f"X."
        ) from None
