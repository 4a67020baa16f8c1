"""Decision values of rows that are left out, for any smooth loss: one Newton step each, or more.

Without row i the minimum moves by H^-1 phi_i g_i / (1 - w_i h_i), to first order, so

    f_i without row i  =  f_i - g_i h_i / (1 - w_i h_i),        h_i = phi_i' H^-1 phi_i,

with g = s side L', w = s L'' and Newton's matrix H. It is exact for the squared loss, and for
the squared hinge as long as no other row changes sides. Rows without a slope do not move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from leansvm._array_api import foreign_namespace, namespace, to_host
from leansvm.linalg import right_solve_in_place
from leansvm.losses import Loss, Squared
from leansvm.newton.matrix import NewtonFactor, Output, factored
from leansvm.newton.passes import COLUMNS, NewtonPass, NewtonRows
from leansvm.newton.solver import NewtonSolver
from leansvm.ridge.criteria import losses_of_classes
from leansvm.rows import Block, declare

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
_ROOM = 1e-12  # smallest 1 - w h: rounding may make it zero if a row is fitted exactly
# What further steps for single rows may take: numbers in Phi, and products in Phi Psi'
_FEW_NUMBERS, _FEW_PRODUCTS = 2**20, 2**25
_WIDTHS = (0.1, 0.03, 0.01)  # a sharp loss is smoothed over these, one after the other
_DIGITS = (3e-2, 1e-3)  # of the first gradient: what may remain before, and at, the last width
_STEPS = 8  # Newton's, for each width
_CG_STEPS, _CG_TOL = 20, 1e-3  # conjugate gradients of a Newton step, and their squared residual
_SEARCHES, _FLAT = 8, 0.4  # points on the line of a step, and the share of its slope to end at
_AT_ONCE = 512  # rows that are left out together
_TINY = float(np.finfo(np.float64).tiny)


def leave_out(solver: NewtonSolver, basis_rows: Rows | None = None) -> float:
    """Compute the decision value of every row without it; return the mean loss at these values.

    Blocks keep the values (`NewtonRows.without`). The solver must be at a minimum. The loss is
    summed over the outputs; ``basis_rows`` do not count (`leansvm.ridge.criteria.rows_inside`).
    The curvature of a sharp loss says little about a step of finite length, so for such a loss the
    steps are computed a second time, with a loss that is smooth over the mean first step.
    """
    outputs, copies, sharp = solver.outputs, [], False
    error, width = _leave_out_with(solver, outputs, basis_rows)
    for o in outputs:
        copies.append(replace(o, loss=o.loss.smoothed_over(width), gram=None))
        sharp = sharp or copies[-1].loss is not o.loss
    if sharp:
        solver.evaluate(copies)
        error, _ = _leave_out_with(solver, copies, basis_rows)
        for o in outputs:  # the marks of rows in Gram matrices now belong to the copies
            o.gram = None
    return error


def _leave_out_with(
    solver: NewtonSolver, curved: list[Output], basis_rows: Rows | None
) -> tuple[float, float]:
    """Leave rows out with the curvature of some losses; return mean loss and mean step."""
    total, starts = np.zeros(4), range(0, len(curved), solver.at_once)
    for start in starts:
        some = slice(start, start + solver.at_once)
        factors = solver.for_each(curved[some], solver.factor)
        tasks = solver.task(solver.outputs[some]), solver.task(curved[some])
        total += solver.blocks.sum(_leave_out, *tasks, factors, basis_rows)
    moved, slopes, losses, weight = total.tolist()
    return len(starts) * losses / weight, moved / max(slopes, _ROOM)  # every group counts all rows


@declare("X", "y", "weight", keeps=(NewtonRows, *COLUMNS), changes=("without",))
def _leave_out(
    block: Block,
    task: NewtonPass,
    curved: NewtonPass,
    factors: Sequence[NewtonFactor],
    basis_rows: Rows | None,
) -> Array:
    """Set the values without the row; return sums over the rows.

    These are: the sum of steps (each at most 1) and the number of rows that have a slope; over the
    rows that count, the sums of s L at these values and of s.
    """
    Phi, xp, kept = task.features.of(block), namespace(block.X), block.kept(NewtonRows)
    losses, steps, moving = xp.zeros_like(kept.f[0, :]), 0.0, 0.0
    if kept.without is None:
        kept.without = xp.zeros_like(kept.f)
    for (o, loss, side, _, s, u), (_, soft), factor in zip(
        task.slacks(block), curved.outputs, factors, strict=True
    ):
        g, w = s * side * loss.derivative(u), s * soft.second_derivative(u)
        if foreign_namespace(Phi) is None:
            move, rows = np.zeros_like(g), np.flatnonzero(g)
            h = factor.leverages(Phi if len(rows) == len(g) else Phi[rows])
            move[rows] = g[rows] * h / np.clip(1.0 - w[rows] * h, _ROOM, None)
        else:
            h = factor.leverages(Phi)
            move = g * h / xp.clip(1.0 - w * h, _ROOM, None)
        kept.without[o, :] = kept.f[o, :] - move
        losses = losses + s * loss.value(u + side * move)
        steps += float(xp.sum(xp.clip(abs(move), None, 1.0)))
        moving += float(xp.count_nonzero(g))
    losses, weight = to_host((losses, s))
    if basis_rows is not None:
        counts = np.ones(len(weight))
        counts[block.positions(basis_rows)[1]] = 0.0
        losses, weight = counts * losses, counts * weight
    return np.array([steps, moving, losses.sum(), weight.sum()])


def left_out_mistakes(solver: NewtonSolver) -> float:
    """Return the share of left-out rows that are misclassified, after `leave_out`.

    Rows near the boundary count in part, so that single rows decide little.
    """
    mistakes, weight = solver.blocks.sum(_mistakes, solver.task(solver.outputs))
    return float(mistakes / weight)


@declare("y", "weight")
def _mistakes(block: Block, task: NewtonPass) -> tuple[float, float]:
    """Return the sums of s times the mistake and of s."""
    (_, y, s), values = task.targets(block), block.kept(NewtonRows).without[:, :, None]
    xp = namespace(s)
    return float(xp.sum(losses_of_classes("accuracy", values, y, s))), float(xp.sum(s))


def left_out_residuals_of(solver: NewtonSolver) -> Array:
    """Return y minus the decision value without the row, rows x outputs, after `leave_out`.

    One step is exact for the squared loss. For other losses it may be wrong by one to three points
    of the error rate at large C, most of all if they are sharp. If rows are few, further Newton
    steps make these values exact to three digits.
    """
    task, (m, width) = solver.task(solver.outputs), (solver.blocks.n_rows, solver.features.width)
    if m * width > _FEW_NUMBERS:
        return np.asarray(solver.blocks.concatenate(_residuals, task))
    rows = np.asarray(solver.blocks.concatenate(_fitted_rows, task))
    Phi, s = rows[:, :width], rows[:, width]
    Y, F, without = np.split(rows[:, width + 1 :], 3, axis=1)
    residuals, used = Y - without, s > 0  # the others are in no model
    Phi, s, Y, F = np.ascontiguousarray(Phi[used]), s[used], Y[used], F[used]
    Side = Y if task.margin else np.ones_like(Y)
    U, slopes = Side * (Y - F), np.empty_like(Y)
    for o, loss in task.outputs:
        slopes[:, o] = Side[:, o] * s * loss.derivative(U[:, o])
    if np.count_nonzero(slopes) * m * width <= _FEW_PRODUCTS:
        ridge = solver.lam * solver.rho
        for o, loss in task.outputs:
            if type(loss) is Squared:  # one step is exact
                continue
            moves = moves_without(Phi, ridge, U[:, o], Side[:, o], s, slopes[:, o], loss)
            residuals[used, o] = Y[:, o] - F[:, o] - moves
    return residuals


@declare("y")
def _residuals(block: Block, task: NewtonPass) -> Array:
    y, without = task.targets(block)[1], block.kept(NewtonRows).without
    return np.asarray(to_host(y)) - np.asarray(to_host(without)).T


@declare("X", "y", "weight", keeps=COLUMNS)
def _fitted_rows(block: Block, task: NewtonPass) -> Array:
    """Return, side by side on the host, features, weight, y, and f with and without the row."""
    (_, y, s), kept = task.targets(block), block.kept(NewtonRows)
    columns = task.features.of(block), s[:, None], y, kept.f.T, kept.without.T
    return np.concatenate(to_host(columns), axis=1)


# ---------------------------------------------------------------------------- further steps


def moves_without(
    Phi: Array, ridge: Array, u: Array, side: Array, weight: Array, slopes: Array, loss: Loss
) -> Array:
    """Return by how much the decision value of every row changes in the model without it.

    One output is at its minimum, with slacks u, slopes g and ridge lam rho of every feature.
    """
    stages: list[_WithoutRows] = []
    for width in _WIDTHS:
        smooth = loss.smoothed_over(width)
        if not stages or smooth is not loss:
            stages.append(_WithoutRows(Phi, ridge, u, side, weight, slopes, smooth))
    every, moves = np.flatnonzero(slopes), np.zeros_like(u)
    for start in range(0, len(every), _AT_ONCE):
        rows = every[start : start + _AT_ONCE]
        D = stages[0].one_step(rows)
        for before, stage in zip([None, *stages], stages, strict=False):
            if before is not None:  # the same point in other coordinates
                D = stage.A.T @ solve_triangular(before.A, D, lower=True, trans="T")
            D = stage.minimised(rows, D, _DIGITS[stage is stages[-1]])
        moves[rows] = np.sum(stages[-1].Psi[rows] * D.T, axis=1)
    return moves


class _WithoutRows:
    """The left-out problems with one loss: Newton's method for many rows at once.

    Without the loss of row i the minimum moves by d. With e = Phi d and slopes g = s side L',

        lam rho d  =  sum_{j != i} (g_j(f_j + e_j) - g_j(f_j)) phi_j  -  g_i(f_i) phi_i .

    In the coordinates Psi = Phi A^-T, A A' = H the Newton matrix at the minimum with curvatures w,
    the matrix of this problem is I + Psi' diag(w(e) - w) Psi: the identity, but for rows that
    changed to another piece of the loss. So a few conjugate gradients give a Newton step. Columns
    of all matrices are rows that are left out; every pass is two matrix products for all of them.
    """

    def __init__(
        self,
        Phi: Array,
        ridge: Array,
        u: Array,
        side: Array,
        weight: Array,
        slopes: Array,  # of the loss that was minimised
        loss: Loss,
    ) -> None:
        # a floor that doubles the ridge at most: without curved rows a free bias has no curvature;
        # if the bias is all there is, the ridge is zero
        largest = float(ridge.max(initial=0.0)) or 1.0
        self.floor = largest / max(float(np.square(Phi).sum()), _TINY)
        self.w = weight * loss.second_derivative(u) + self.floor
        self.A, self.Psi = factored((Phi * self.w[:, None]).T @ Phi, ridge), Phi.copy()
        right_solve_in_place(self.Psi, self.A)
        self.u, self.side, self.weight = u[:, None], side[:, None], weight[:, None]
        self.slopes, self.loss = slopes, loss

    def one_step(self, rows: Rows) -> Array:
        """Return where one Newton step leads: -H^-1 phi_i g_i / (1 - w_i h_i)."""
        Psi = self.Psi[rows]
        room = np.maximum(1.0 - self.w[rows] * np.square(Psi).sum(axis=1), _ROOM)
        return -(Psi * (self.slopes[rows] / room)[:, None]).T

    def minimised(self, rows: Rows, D: Array, tol: float) -> Array:
        """Take Newton steps from the columns of D, until little of their gradients is left."""
        D, live = D.copy(), np.arange(len(rows))
        enough = tol * np.sqrt(np.square(self.Psi[rows]).sum(axis=1)) * np.abs(self.slopes[rows])
        for _ in range(_STEPS):
            E = self.Psi @ D[:, live]
            G = D[:, live] - self.Psi.T @ self._pull(rows[live], E)
            goes_on = np.sqrt(np.square(G).sum(axis=0)) > enough[live]
            live, E, G = live[goes_on], E[:, goes_on], G[:, goes_on]
            if not len(live):
                break
            P = self._newton_direction(rows[live], E, G)
            D[:, live] += P * self._step_lengths(rows[live], D[:, live], E, G, P)
        return D

    def _pull(self, rows: Rows, E: Array) -> Array:
        """Return q of the gradient d - Psi'q: w e and what the slopes have changed by."""
        q = self.w[:, None] * E - self.slopes[:, None]
        q += self.side * self.weight * self.loss.derivative(self.u - self.side * E)
        out = rows, np.arange(len(rows))  # rows that are left out have no slope
        q[out] = self.w[rows] * E[out] - self.slopes[rows]
        return q

    def _newton_direction(self, rows: Rows, E: Array, G: Array) -> Array:
        """Return -(I + Psi' diag(w(e) - w) Psi)^-1 G by conjugate gradients."""
        changed = self.weight * self.loss.second_derivative(self.u - self.side * E)
        changed[rows, np.arange(len(rows))] = 0.0
        changed -= self.w[:, None] - self.floor
        P, R, V = np.zeros_like(G), -G, -G
        first = square = np.square(R).sum(axis=0)
        for _ in range(_CG_STEPS):
            HV = V + self.Psi.T @ (changed * (self.Psi @ V))
            bend = np.sum(V * HV, axis=0)
            length = np.where(bend > 0, square / np.maximum(bend, _TINY), 0.0)
            P, R = P + length * V, R - length * HV
            before, square = square, np.square(R).sum(axis=0)
            if np.all(square <= _CG_TOL * first):
                break
            V = R + square / np.maximum(before, _TINY) * V
        return P

    def _step_lengths(self, rows: Rows, D: Array, E: Array, G: Array, P: Array) -> Array:
        """Return where the slope along P about vanishes: 1, if it is small enough there."""
        EP, t, live = self.Psi @ P, np.ones(len(rows)), np.arange(len(rows))
        first, linear, quadratic = np.sum(P * G, axis=0), np.sum(P * D, axis=0), np.sum(P * P, 0)
        low, at_low = np.zeros_like(t), first.copy()
        high, at_high = np.full_like(t, np.inf), np.ones_like(t)
        for _ in range(_SEARCHES):
            some = t[live]
            q = self._pull(rows[live], E[:, live] + some * EP[:, live])
            slope = linear[live] + some * quadratic[live] - np.sum(EP[:, live] * q, axis=0)
            beyond, before = live[slope > 0], live[slope <= 0]
            high[beyond], at_high[beyond] = t[beyond], slope[slope > 0]
            low[before], at_low[before] = t[before], slope[slope <= 0]
            live = live[np.abs(slope) > _FLAT * np.abs(first[live])]
            if not len(live):
                break
            # regula falsi, kept inside; four times as far as long as nothing is beyond
            share = np.clip(at_low[live] / (at_low[live] - at_high[live]), 0.1, 0.9)
            inside = np.isfinite(high[live])
            width = np.where(inside, high[live], 0.0) - low[live]
            t[live] = np.where(inside, low[live] + share * width, 4.0 * t[live])
        return t
