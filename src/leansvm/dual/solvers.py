"""The solvers of the exact machines by name, what each of them needs, and which one "auto" takes.

`solve_dual` is the entry point of the estimators: it checks the needs of the solver that was asked
for, in this one place, and runs it. If left-out residuals are asked for and the solver has none,
they are those of models without a fold of the rows.

`solve_lssvm` prefers the Cholesky factorisation (m^3 / 3 flops at GEMM speed). It first tries a few
iterations of sequential updates (if the kernel is close to diagonal) or of conjugate gradients, and
stays with them if they will be cheaper. (An iteration counts as 32 m^2 flops: a kernel product with
few columns is bound by memory and takes the time of 32 flops per entry.) `solve_hinge` prefers
working sets, then the active set, unless a sample says that many rows are support vectors. Both
give up a solver as soon as its progress says that another one will be faster.
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
from leansvm.dual import cg
from leansvm.dual._hinge import left_out_loss
from leansvm.dual.active_set import ActiveSet, solve_newton
from leansvm.dual.cholesky import closed_form, solve_cholesky
from leansvm.dual.kernel_matrix import StoredMatrix, gram, least_sweep_bytes, values_between
from leansvm.dual.left_out import with_left_out
from leansvm.dual.problem import DualProblem
from leansvm.dual.sequential import minimise_with_bias, solve_penalty_flow, solve_sesqui, solve_sumt
from leansvm.dual.smo import Quadratic, solve_smo
from leansvm.dual.working_sets import WorkingSets
from leansvm.kernels import Kernel
from leansvm.ridge.criteria import ALIKE, first_of_the_best
from leansvm.ridge.kernel_factor import factor_bytes
from leansvm.rows import Block, class_numbers, row_hashes, tile_rows_for
from leansvm.solution import Solution

Array = NDArray[np.float64]
_C_FOLDS, _ENOUGH_LEFT_OUT = 5, 1000  # folds; no more are solved after this many left-out rows

_ROWS_TO_FACTOR = 4000  # below, a factorisation takes a fraction of a second
_ROWS_FOR_TWO = 12_000  # above, a second iterative solver may be tried too
_ENTRY_FLOPS = 32

_SAMPLE_ROWS, _SAMPLE_COLUMNS = 64, 2048
# rows that a row overlaps with, beyond which conjugate gradients are tried first (measured): a
# share of all, and a number if rows are computed anew in every sweep
_MOST_OVERLAP, _MOST_OVERLAP_UNSTORED = 0.05, 50.0
_SWEEP_FLOPS = 60  # time of a kernel entry in a sweep, in flops of a factorisation (measured)
_FEWEST_SWEEPS, _MOST_SWEEPS = 10, 100
_MOST_ROWS_UNSTORED = 200_000  # a sweep that computes its rows takes minutes there

_SWEEP_ROWS = 85  # rows for which a sweep more is affordable beside the active set (measured)
_FEW_SUPPORT = 1500  # support vectors beyond which another fit, without a fold, takes less time
_MANY_SUPPORT = 0.4
_SUPPORT_SAMPLE, _SUPPORT_TOL, _SUPPORT_SWEEPS = 500, 1e-2, 50


# ---------------------------------------------------------------------------- "auto"


def solve_lssvm(
    problem: DualProblem,
    C: float | Array,
    *,
    tol: float,
    max_iter: int,
    left_out: bool = False,
    criterion: str = "loo",
) -> Solution:
    """Solve the LS-SVM by whichever solver is expected to be the fastest.

    Left-out residuals, and a choice among several C, come with a factorisation alone.
    """
    m, n_outputs = problem.Y.shape
    if isinstance(C, np.ndarray) or m < _ROWS_TO_FACTOR:
        return solve_cholesky(problem, C, left_out=left_out, criterion=criterion)
    on_device = foreign_namespace(problem.X) is not None
    needed = factor_bytes(m, n_outputs, left_out=left_out, on_device=on_device)
    k = cg.preconditioner_columns(m)
    with_cg = needed + cg.preconditioner_bytes(m, n_outputs, k)
    matrix = None
    if problem.fits(needed):
        needed = with_cg if problem.fits(with_cg) else needed
        problem = problem.reserve(needed, "The fit")
        matrix = StoredMatrix(gram(problem))
    sweeps = None
    if not on_device:  # sequential updates are for the host
        sweeps = _affordable_sweeps(problem, C, matrix)
    if sweeps is not None:
        solution = solve_smo(
            problem, C, tol=tol, max_iter=max_iter, matrix=matrix, give_up_after=sweeps
        )
        if solution is not None:
            return solution
    if matrix is None:
        return solve_cholesky(problem, C, left_out=left_out)  # its error names the memory it needs
    # where sequential updates are slow so is CG, and trying it takes a share of a factorisation
    if problem.fits(with_cg) and (sweeps is None or m >= _ROWS_FOR_TWO):
        affordable = int(m / 3 / max(2 * (n_outputs + 1), _ENTRY_FLOPS))
        solution = cg.precondition_and_iterate(
            problem, matrix, C, k, tol=tol, max_iter=max_iter, give_up_after=affordable
        )
        if solution is not None:
            return solution
    return closed_form(problem, matrix.values, C, left_out=left_out)


def solve_hinge(
    problem: DualProblem, C: float | Array, *, max_support: int | None = None, **options: Any
) -> Solution:
    """Solve the squared-hinge SVM on working sets, else by SesquiSMO or the active set.

    SesquiSMO has no left-out residuals. The active set takes bounded support sets and the linear
    kernel, for which it has a smaller system.

    Working sets give up if conjugate gradients are slow (a large C) or K_WW does not fit. An active
    set of k rows then takes some k^3 flops and k kernel rows, while sweeps need all kernel rows. So
    sweeps pay only if many rows are support vectors; a sample tells how many.
    """
    if problem.kernel.name == "linear" or max_support is not None:
        return solve_active_set(problem, C, max_support=max_support, **options)
    sets = WorkingSets(problem)
    if isinstance(C, np.ndarray):
        return _best_left_out(problem, C, sets, None, **options)
    left_out = options.get("left_out", False)
    solution = sets.solve(C, **options | {"left_out": _FEW_SUPPORT if left_out else 0})
    if solution is not None:
        return solution
    problem = sets.problem
    del sets  # its features
    m, sweeps = len(problem.weight), None
    if m >= _ROWS_TO_FACTOR:
        if problem.kernel.precomputed or problem.fits(8 * m * m):
            sweeps = m / _SWEEP_ROWS
        else:
            sweeps = _affordable_sweeps(problem, C, None)
    if sweeps is not None and _support_share(problem, C) >= _MANY_SUPPORT:
        stop = {"tol": options["tol"], "max_iter": options["max_iter"]}
        solution = solve_sesqui(problem, C, give_up_after=sweeps, **stop)
        if solution is not None:
            return solution
    return ActiveSet(problem).solve(C, **options)


def solve_active_set(
    problem: DualProblem, C: float | Array, *, max_support: int | None = None, **options: Any
) -> Solution:
    """Follow the support set; several C are compared by the left-out loss."""
    if isinstance(C, np.ndarray):
        return _best_left_out(problem, C, None, max_support, **options)
    return ActiveSet(problem, max_support=max_support).solve(C, **options)


def _best_left_out(
    problem: DualProblem,
    candidates: Array,
    sets: WorkingSets | None,
    max_support: int | None,
    **options: Any,
) -> Solution:
    """Return the solution, with left-out residuals, of the C whose left-out loss is the least.

    The loss is the squared hinge loss; if losses differ only by rounding, the first C is chosen.
    Working sets solve from the smallest C upward, until they give up. From there on (or from the
    start, if there are none) the active set continues, each time from its own last solution.
    """
    active: ActiveSet | None = None
    options["left_out"], whole = True, problem
    found, curve, reserved = dict[int, Solution](), np.empty(len(candidates)), 0
    for i in np.argsort(candidates, kind="stable").tolist():
        solution = None
        if sets is not None and active is None:
            solution = sets.solve(float(candidates[i]), **options | {"left_out": np.inf})
            problem = sets.problem
        if solution is None:
            active = active or ActiveSet(problem, max_support=max_support)
            solution = active.solve(float(candidates[i]), **options)
        solution = with_left_out(whole, solution)
        curve[i] = left_out_loss(problem, solution)
        found[i] = replace(solution, error=curve[i])
        errors = np.array([solution.error for solution in found.values()])
        if np.isfinite(errors).any():  # only those that may still be chosen stay in memory
            most = ALIKE * np.nanmin(errors)
            found = {place: one for place, one in found.items() if one.error <= most}
        reserved = max(reserved, solution.bytes)
    return replace(found[first_of_the_best(curve)], curve=curve, bytes=reserved)


def _affordable_sweeps(problem: DualProblem, C: float, matrix: StoredMatrix | None) -> float | None:
    """Return the sweeps in the time of a factorisation; None if updates would be too slow.

    ``matrix`` is the kernel matrix, None if it does not fit. Updates are slow if rows
    overlap: the mean over rows of sum_j |K_ij| / (K_ii + 1 / (C s_i)), estimated from a sample, is
    1 or less for a diagonal matrix; it is about the largest eigenvalue of the scaled system, and so
    the number of rows that an update of one multiplier disturbs.
    """
    m, n_outputs = problem.Y.shape
    most = _MOST_OVERLAP * m
    if matrix is None:
        most = _MOST_OVERLAP_UNSTORED
        if m > _MOST_ROWS_UNSTORED or not problem.fits(least_sweep_bytes(problem)):
            return None
    affordable = m / _SWEEP_FLOPS / 3 / n_outputs
    if affordable < _FEWEST_SWEEPS:
        return None
    columns = np.random.default_rng(0).permutation(m)[:_SAMPLE_COLUMNS]
    rows = columns[:_SAMPLE_ROWS]
    K = values_between(problem, rows, columns) if matrix is None else matrix.block(rows, columns)
    diag = K.diagonal()
    others = np.abs(K).sum(axis=1) - np.abs(diag)
    others *= (m - 1) / max(len(columns) - 1, 1)
    overlap = np.mean((np.abs(diag) + others) / (diag + 1.0 / (C * problem.weight[rows])))
    return min(affordable, _MOST_SWEEPS) if overlap <= most else None


def _support_share(problem: DualProblem, C: float) -> float:
    """Return the share of support vectors in a sample, the most of any output."""
    sample = np.random.default_rng(0).permutation(len(problem.weight))[:_SUPPORT_SAMPLE]
    matrix = StoredMatrix(values_between(problem, sample, sample))
    weight, shares = problem.weight[sample], []
    for y in np.ascontiguousarray(problem.Y[sample].T):
        quadratic = Quadratic(y, 1.0 / (C * weight), weight, bounded=True)
        state, _ = minimise_with_bias(
            matrix, quadratic, problem.bias_penalty, tol=_SUPPORT_TOL, max_sweeps=_SUPPORT_SWEEPS
        )
        shares.append(np.count_nonzero(state.beta) / len(sample))
    return max(shares)


# ---------------------------------------------------------------------------- by name


@dataclass(frozen=True)
class Solver:
    """A way to solve, and what it needs."""

    solve: Callable[..., Solution | None]  # (problem, C, and what it takes, by keyword)
    takes: tuple[str, ...] = ("tol", "max_iter")  # with "left_out" it takes several C, too
    free_bias: bool = False  # needs bias_penalty=0
    on_host: bool = False  # needs rows in the memory of the host


_ITERATES = ("tol", "max_iter", "left_out")
_FREE_BIAS: Any = {"free_bias": True, "on_host": True}
SOLVERS = {
    "lssvm": {
        "auto": Solver(solve_lssvm, (*_ITERATES, "criterion")),
        "cholesky": Solver(solve_cholesky, ("left_out", "criterion")),
        "cg": Solver(cg.solve_cg),
        "smo": Solver(solve_smo, on_host=True),
        "sumt": Solver(solve_sumt, **_FREE_BIAS),
        "substitution": Solver(partial(solve_smo, name="substitution"), **_FREE_BIAS),
        "penalty-flow": Solver(solve_penalty_flow, **_FREE_BIAS),
    },
    "hinge": {
        "auto": Solver(solve_hinge, (*_ITERATES, "max_support"), on_host=True),
        "active-set": Solver(solve_active_set, (*_ITERATES, "max_support"), on_host=True),
        "newton": Solver(solve_newton),
        "smo": Solver(solve_sesqui, on_host=True),
    },
}


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
    """Solve a dual problem by the solver of this name, a key of `SOLVERS`.

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
                f"C times sample_weight ranges from {least:.3g} to {most:.3g}; these numbers and "
                f"their inverses must be finite: scale sample_weight, or change C."
            )
    options |= {"left_out": left_out, "max_support": max_support}
    for unused in options.keys() - set(solver.takes):
        del options[unused]
    solve: Any = partial(solver.solve, C=C, **options)
    with explain_failure(problem.kernel):
        solution: Solution = solve(problem)  # never None: no solver was told when to give up
        if left_out and family == "hinge" and not isinstance(C, np.ndarray):
            solution = with_left_out(problem, solution)
        if left_out and solution.left_out is None:
            with problem.phases("left out"):
                needs_all_values = (family, name) != ("hinge", "auto")
                residuals = _residuals_of_folds(problem, solve, solution.bytes, needs_all_values)
                solution = replace(solution, left_out=residuals)
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


def _residuals_of_folds(
    problem: DualProblem, solve: Callable[[DualProblem], Solution], known: int, shares: bool
) -> Array:
    """Return y - f of rows in the model without their fold; NaN for rows in no such fold.

    A fold is every fifth row, class by class; as many are solved as it takes for 1,000 rows. If
    there are several and ``shares``, they share one kernel matrix if that fits beside ``known``
    bytes, the need of the whole problem.
    """
    Y, m = problem.Y, len(problem.Y)
    fold, rows = np.empty(m, dtype=np.intp), np.arange(m) if problem.rows is None else problem.rows
    keys: Any = rows  # else by the values of a row, so that the order of rows decides nothing
    if not problem.kernel.precomputed:
        keys = row_hashes(Block(0, m, rows_at(problem.X, rows), Y, None))
        on_host, shared = foreign_namespace(problem.X) is None, 8 * m * m
        if (
            shares
            and m < _C_FOLDS * _ENOUGH_LEFT_OUT
            and on_host
            and known + 2 * shared <= problem.budget
        ):
            K = gram(problem.reserve(shared, "The fit"))
            left = problem.budget - shared
            problem = replace(problem, X=K, kernel=Kernel("precomputed"), rows=None, budget=left)
            rows = np.arange(m)
    fold[np.lexsort([keys, class_numbers(Y)])] = np.arange(m) % _C_FOLDS
    residuals, step = np.full(Y.shape, np.nan), max(1, tile_rows_for(8 * m))
    for number in range(_C_FOLDS):
        rest, out = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        part = replace(problem, Y=Y[rest], weight=problem.weight[rest], rows=rows[rest])
        found = solve(replace(part, phases=Phases(), on_iteration=None))
        for start in range(0, len(out), step):
            some = out[start : start + step]
            residuals[some] = Y[some] - values_between(problem, some, rest) @ found.coef - found.b
        if np.isfinite(residuals).sum() >= _ENOUGH_LEFT_OUT * Y.shape[1]:
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
