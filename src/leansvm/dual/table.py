"""The solvers of the exact machines by name, with what each of them needs.

`solve_dual` is the entry point of the estimators: it checks the needs of the solver that was asked
for, in this one place, and runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import foreign_namespace
from leansvm.dual import auto
from leansvm.dual.active_set import ActiveSet
from leansvm.dual.cg import solve_cg
from leansvm.dual.cholesky import solve_cholesky, solve_eigen
from leansvm.dual.folds import residuals_of_folds
from leansvm.dual.free_bias import solve_penalty_flow, solve_substitution, solve_sumt
from leansvm.dual.hinge_newton import solve_newton
from leansvm.dual.problem import DualProblem
from leansvm.dual.sesqui import solve_sesqui
from leansvm.dual.smo import solve_smo
from leansvm.kernels import Kernel
from leansvm.solution import Solution

Array = NDArray[np.float64]


def _solve_squared(
    problem: DualProblem,
    C: float | Array,
    *,
    criterion: str,
    left_out: bool,
    max_support: None,
    watch: bool = False,
    **options: Any,
) -> Solution:
    """Choose among several C by an eigen-decomposition, or solve for one by Cholesky.

    With ``watch`` iterative solvers are tried first.
    """
    if isinstance(C, np.ndarray):
        return solve_eigen(problem, C, criterion)
    if watch:
        return auto.solve_lssvm(problem, C, left_out=left_out, **options)
    return solve_cholesky(problem, C, left_out=left_out)


def _solve_hinge(
    problem: DualProblem,
    C: float | Array,
    *,
    criterion: str,
    left_out: bool,
    max_support: int | None,
    on_sets: bool = False,
    **options: Any,
) -> Solution:
    """Follow the support set; ``on_sets``, start on working sets unless the support is bounded.

    Several C are compared by the left-out loss.
    """
    on_sets = on_sets and max_support is None
    if isinstance(C, np.ndarray):
        options |= {"on_sets": on_sets, "max_support": max_support}
        return auto.solve_hinge_left_out(problem, C, **options)
    if on_sets:
        return auto.solve_hinge(problem, C, left_out=left_out, **options)
    return ActiveSet(problem, max_support=max_support).solve(C, left_out=left_out, **options)


@dataclass(frozen=True)
class Solver:
    """A way to solve, and what it needs."""

    # (problem, C, *, tol, max_iter) for one C; None where `solve_any` does that too
    solve_one: Callable[..., Solution | None] | None = None
    # for several C, left-out residuals or max_support too, which are keywords then as in
    # `solve_dual`; None: it can do none of these, and rows are left out in folds
    solve_any: Callable[..., Solution] | None = None
    free_bias: bool = False  # needs bias_penalty=0
    on_host: bool = False  # needs rows in the memory of the host


SOLVERS = {
    "lssvm": {
        "auto": Solver(None, partial(_solve_squared, watch=True)),
        "cholesky": Solver(None, _solve_squared),
        "cg": Solver(solve_cg),
        "smo": Solver(solve_smo, on_host=True),
        "sumt": Solver(solve_sumt, free_bias=True, on_host=True),
        "substitution": Solver(solve_substitution, free_bias=True, on_host=True),
        "penalty-flow": Solver(solve_penalty_flow, free_bias=True, on_host=True),
    },
    "hinge": {
        "auto": Solver(None, partial(_solve_hinge, on_sets=True), on_host=True),
        "active-set": Solver(None, _solve_hinge, on_host=True),
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
    criterion: str,
    left_out: bool,
    tol: float,
    max_iter: int,
    max_support: int | None = None,
) -> Solution:
    """Solve a dual problem by the solver of this name.

    Parameters
    ----------
    family : {"lssvm", "hinge"}
        Squared loss, or squared hinge loss with targets +-1.
    name : str
        Solver, one of `solver_names`.
    problem : DualProblem
        What to solve.
    C : float or ndarray
        Regularisation; of several candidates the best by ``criterion`` is taken.
    criterion : {"gcv", "loo"}
        How "lssvm" scores candidates; "hinge" always takes the left-out loss.
    left_out : bool
        Whether the residuals of models without each row are wanted; where the solver has none
        they are those of models without a fold of the rows (`folds`), NaN at other rows.
    tol, max_iter
        Where iterative solvers stop.
    max_support : int, optional
        Most support vectors ("hinge" alone).

    Raises
    ------
    ValueError
        When the solver cannot do what is asked, or the kernel is not positive definite.
    """
    solver, several = SOLVERS[family][name], isinstance(C, np.ndarray)
    bounded = max_support is not None
    _check_range(C, problem.weight)
    check_solver(family, name, problem, several=several, bounded=bounded)
    options: dict[str, Any] = {"tol": tol, "max_iter": max_iter}
    solve: Any = solver.solve_one
    if solve is None:
        assert solver.solve_any is not None
        limits = {"criterion": criterion, "max_support": max_support}
        solve = partial(solver.solve_any, left_out=left_out, **limits)
    with explain_failure(problem.kernel):
        solution: Solution = solve(problem, C, **options)  # there is nothing to give up for
        if left_out and solution.left_out is None:
            with problem.phases("left out"):
                residuals = residuals_of_folds(problem, partial(solve, C=C, **options))
            solution = replace(solution, left_out=residuals)
    return solution


def _check_range(C: float | Array, weight: Array) -> None:
    """Refuse C times weights that, or whose inverse, overflow."""
    with np.errstate(all="ignore"):
        least, most = np.min(C) * weight.min(), np.max(C) * weight.max()
        if not (np.isfinite(1.0 / least) and np.isfinite(most)):
            raise ValueError(
                f"C times sample_weight, {least:.3g} to {most:.3g}, and its inverse must be "
                f"finite: scale sample_weight, or change C."
            )


def check_solver(
    family: str,
    name: str,
    problem: DualProblem,
    *,
    several: bool = False,
    bounded: bool = False,
) -> None:
    """Refuse what a solver cannot do.

    ``several`` C, a ``bounded`` support set, or a problem whose bias or rows it cannot take.
    """
    solver = SOLVERS[family][name]
    if solver.solve_any is None and (several or bounded):
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
