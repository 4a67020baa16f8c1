"""Decision values of rows that are left out, for any smooth loss: one Newton step each.

Without row i the minimum moves by H^-1 phi_i g_i / (1 - w_i h_i), to first order, so

    f_i without row i  =  f_i - g_i h_i / (1 - w_i h_i),        h_i = phi_i' H^-1 phi_i,

with g = s side L', w = s L'' and Newton's matrix H. It is exact for the squared loss, and for
the squared hinge as long as no other row changes sides. Rows without a slope do not move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import foreign_namespace, like_rows, namespace, to_host
from leansvm.basis import on_device
from leansvm.linalg import cholesky_in_place, right_solve_in_place
from leansvm.newton import passes
from leansvm.newton.left_out_newton import values_without
from leansvm.newton.matrix import (
    Job,
    NewtonMatrices,
    Output,
    factored,
    without_bias,
)
from leansvm.newton.passes import LeftOutRows, NewtonPass, NewtonRows
from leansvm.newton.solver import NewtonSolver
from leansvm.ridge.criteria import add_up_squares, mean_errors
from leansvm.rows import Block, declare

Array = NDArray[np.float64]
_ROOM = 1e-12  # 1 - w h, of which rounding leaves nothing where a row is fitted exactly
_BLURRED = 0.5  # margins between which a left-out row counts as a mistake in part
# What further steps for single rows may take: numbers in Phi, and products in Phi Psi'
_FEW_NUMBERS, _FEW_PRODUCTS = 2**20, 2**25


@dataclass(frozen=True)
class Leverages:
    """Computes h = phi' H^-1 phi, either from H = A A' or from the curved rows Z.

    With Z, A A' = lam I + Z Z' and Woodbury's identity gives h = (|phi|^2 - |A^-1 Z phi|^2) / lam.
    A free bias is eliminated: its mean is subtracted from the rows, and h grows by 1 / W.
    """

    A: Any  # lower triangular, on the host or where the rows are
    Z: Array | None = None
    mean: Array | float = 0.0
    scale: Array | float = 1.0
    lam: float = 1.0
    from_bias: float = 0.0  # 1 / W
    bias_is_free: bool = False  # its column takes no part

    def at(self, Phi: Any) -> Any:
        """Return h of the rows of Phi."""
        xp = namespace(Phi)
        if self.Z is None:
            return xp.sum(self._solved(Phi) ** 2, axis=1)
        if self.bias_is_free:
            Phi = Phi[:, :-1] - like_rows(np.asarray(self.mean), Phi)
        else:
            Phi = Phi * like_rows(np.asarray(self.scale), Phi)
        known = xp.sum(self._solved(Phi @ like_rows(self.Z.T, Phi)) ** 2, axis=1)
        return (xp.sum(Phi * Phi, axis=1) - known) / self.lam + self.from_bias

    def _solved(self, rows: Any) -> Any:
        """Return rows A^-T."""
        if foreign_namespace(rows) is not None:
            return on_device.placed(self.A, rows).apply(rows + 0.0)
        rows = np.array(rows)
        right_solve_in_place(rows, self.A)
        return rows


def _leverages(job: Job, matrices: NewtonMatrices, lam: float) -> Leverages:
    """Return the leverages of an output, from what its Newton matrix is made of."""
    o, plan, rows = job
    Z, rho = np.sqrt(o.loss.max_curvature) * matrices.bring_up_to_date(job), matrices.rho
    if plan.kind != "woodbury" and o.counts[0] > 0:
        return Leverages(_lower(factored(o.gram, lam * rho, o.loss.max_curvature)))
    mean: Array | float = 0.0
    scale, weight = np.sqrt(np.divide(1.0, rho, out=np.zeros_like(rho), where=rho > 0)), np.inf
    if not matrices.free_bias:
        Z = Z * scale
    elif len(Z):
        Z, mean, weight = without_bias(Z)
    else:  # no row is curved: a free bias does not move
        Z = Z[:, :-1]
    small = Z @ Z.T
    small.flat[:: len(small) + 1] += lam
    try:
        A = _lower(cholesky_in_place(small))
    except np.linalg.LinAlgError:  # lam is lost in rounding: by the system of all columns
        curved = np.sqrt(o.loss.max_curvature) * np.concatenate(rows[0])
        return Leverages(_lower(factored(curved.T @ curved, lam * rho)))
    return Leverages(A, Z, mean, scale, lam, 1.0 / weight, matrices.free_bias)


def _lower(A: Any) -> Any:
    """Put zeros above the diagonal, without a copy; on a device they are there."""
    if isinstance(A, np.ndarray):
        for i, row in enumerate(A):
            row[i + 1 :] = 0.0
    return A


def leave_out(solver: NewtonSolver, basis_rows: NDArray[np.intp] | None = None) -> float:
    """Compute the decision value of every row without it; return the mean loss at these values.

    Blocks keep the values (`LeftOutRows`). The solver must be at a minimum. The loss is summed over
    the outputs; if enough rows are outside of the basis, only those count
    (`leansvm.ridge.criteria`).
    The curvature of a sharp loss says little about a step of finite length, so for such a loss the
    steps are computed a second time, with a loss that is smooth over the mean first step.
    """
    outputs = solver.outputs
    error, width = _leave_out_with(solver, outputs, outputs, basis_rows)
    softer = [o.loss.smoothed_over(width) for o in outputs]
    if any(soft is not o.loss for soft, o in zip(softer, outputs, strict=True)):
        copies = [replace(o, loss=soft, gram=None) for soft, o in zip(softer, outputs, strict=True)]
        solver.evaluate(copies)
        error, _ = _leave_out_with(solver, outputs, copies, basis_rows)
        for o in outputs:  # marks of rows in Gram matrices are those of the copies now
            o.gram = None
    return error


def _leave_out_with(
    solver: NewtonSolver,
    outputs: list[Output],
    curved: list[Output],
    basis_rows: NDArray[np.intp] | None,
) -> tuple[float, float]:
    """Leave rows out with the curvature of some losses; return mean loss and mean step."""
    matrices, total, groups = solver.matrices, np.zeros((2, 5)), 0
    for start in range(0, len(outputs), matrices.at_once):
        some = slice(start, start + matrices.at_once)
        leverages = matrices.for_each(curved[some], _leverages, matrices, solver.lam)
        tasks = matrices.task(outputs[some]), matrices.task(curved[some])
        total += solver.blocks.sum(_leave_out, *tasks, leverages, basis_rows)
        groups += 1
    total[:, 3:] /= groups  # every group counts the same rows
    (moved, slopes), _ = total[:, :2]
    return float(mean_errors(total[:, 2:])[0]), float(moved / max(slopes, _ROOM))


@declare("X", "y", "weight", keeps=(LeftOutRows, *passes.COLUMNS), changes=("values",))
def _leave_out(
    block: Block,
    task: NewtonPass,
    curved: NewtonPass,
    leverages: Sequence[Leverages],
    basis_rows: NDArray[np.intp] | None,
) -> Array:
    """Set the values without the row; return sums over all rows, and over those outside the basis.

    Of steps up to 1, of the rows that have a slope (of all rows only), of s L at these values, of
    rows and of s.
    """
    (side, y, s), xp = passes.targets_of_block(block, task), namespace(block.X)
    Phi, losses, steps, moving = task.features.of(block), xp.zeros_like(s), 0.0, 0.0
    kept = block.kept(NewtonRows)
    if block.find(LeftOutRows) is None:
        block.keep(LeftOutRows(xp.zeros_like(kept.f)))
    without = block.kept(LeftOutRows).values
    for (o, loss), (_, soft), g, leverage in zip(
        task.outputs, curved.outputs, passes.slopes_at(block, task), leverages, strict=True
    ):
        f = kept.f[o, :]
        w = s * soft.second_derivative(side[:, o] * (y[:, o] - f))
        if foreign_namespace(Phi) is None:
            move, rows = np.zeros_like(f), np.flatnonzero(g)
            h = leverage.at(Phi if len(rows) == len(f) else Phi[rows])
            move[rows] = g[rows] * h / np.clip(1.0 - w[rows] * h, _ROOM, None)
        else:
            h = leverage.at(Phi)
            move = g * h / xp.clip(1.0 - w * h, _ROOM, None)
        without[o, :] = f - move
        losses = losses + s * loss.value(side[:, o] * (y[:, o] - f + move))
        steps += float(xp.sum(xp.clip(abs(move), None, 1.0)))
        moving += float(xp.count_nonzero(g))
    sums = to_host(add_up_squares(block, losses[:, None], xp.sqrt(s), basis_rows))
    return np.concatenate([[[steps, moving], [0.0, 0.0]], sums], axis=1)


def left_out_mistakes(solver: NewtonSolver) -> float:
    """Return the share of left-out rows that are misclassified, after `leave_out`.

    Rows near the boundary count in part, so that single rows decide little: from all to none over
    margins of -`_BLURRED` to `_BLURRED`.
    """
    mistakes, weight = solver.blocks.sum(_mistakes, solver.matrices.task(solver.outputs)).tolist()
    return float(mistakes / weight)


@declare("y", "weight")
def _mistakes(block: Block, task: NewtonPass) -> Array:
    """Return the sums of s times the mistake and of s."""
    (_, y, s), xp = passes.targets_of_block(block, task), namespace(block.X)
    values = block.kept(LeftOutRows).values.T
    if values.shape[1] == 1:
        margin = 2.0 * y[:, 0] * values[:, 0]
    else:  # the own class less the best of the others
        own = y > 0
        margin = xp.sum(xp.where(own, values, 0.0), axis=1)
        margin = margin - xp.max(xp.where(own, -xp.inf, values), axis=1)
    mistakes = xp.clip(0.5 - margin / (2.0 * _BLURRED), 0.0, 1.0)
    return np.array([float(s @ mistakes), float(xp.sum(s))])


def left_out_residuals_of(solver: NewtonSolver) -> Array:
    """Return y less the decision value without the row, rows x outputs, after `leave_out`.

    If rows are few, further Newton steps make these values exact to three digits: one step alone
    may be wrong by one to three points of the error rate at large C, most of all for sharp losses.
    """
    task = solver.matrices.task(solver.outputs)
    residuals = np.asarray(solver.blocks.concatenate(_residuals, task))
    m, width = solver.blocks.n_rows, solver.features.width
    if m * width > _FEW_NUMBERS:
        return residuals
    rows = np.asarray(solver.blocks.concatenate(_fitted_rows, task))
    used = rows[:, width] > 0  # the others are in no model
    rows = rows[used]
    Phi, s = np.ascontiguousarray(rows[:, :width]), rows[:, width]
    Y, F = np.split(rows[:, width + 1 :], 2, axis=1)
    Side = Y if task.margin else np.ones_like(Y)
    moving = sum(
        np.count_nonzero(s * loss.derivative(Side[:, o] * (Y[:, o] - F[:, o])))
        for o, loss in task.outputs
    )
    if moving * m * width <= _FEW_PRODUCTS:
        for o, loss in task.outputs:
            y, side, f, ridge = Y[:, o], Side[:, o], F[:, o], solver.lam * solver.rho
            residuals[used, o] = y - values_without(Phi, y, side, s, f, loss, ridge)
    return residuals


@declare("y")
def _residuals(block: Block, task: NewtonPass) -> Array:
    _, y, _ = passes.targets_of_block(block, task)
    return np.asarray(to_host(y)) - np.asarray(to_host(block.kept(LeftOutRows).values)).T


@declare("X", "y", "weight", keeps=passes.COLUMNS)
def _fitted_rows(block: Block, task: NewtonPass) -> Array:
    """Return features, weight, targets and decision values of rows, side by side on the host."""
    _, y, s = passes.targets_of_block(block, task)
    f = block.kept(NewtonRows).f
    columns = task.features.of(block), s[:, None], y[:, : f.shape[0]], f.T
    return np.concatenate([np.asarray(to_host(part)) for part in columns], axis=1)
