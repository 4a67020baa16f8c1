"""Left-out decision values of few rows to three digits: Newton's method for all of them at once.

Without the loss of row i the minimum moves by d. With e = Phi d and slopes g = s side L',

    lam rho d  =  sum_{j != i} (g_j(f_j + e_j) - g_j(f_j)) phi_j  -  g_i(f_i) phi_i .

In the coordinates Psi = Phi A^-T, A A' = H the Newton matrix at the minimum with curvatures w, the
matrix of this problem is I + Psi' diag(w(e) - w) Psi: the identity, but for rows that changed to
another piece of the loss. So a few conjugate gradients give a Newton step. Columns of all matrices
below are rows that are left out; every pass is two matrix products for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from leansvm.linalg import right_solve_in_place
from leansvm.losses import Loss
from leansvm.newton.matrix import factored

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

_WIDTHS = (0.1, 0.03, 0.01)  # a sharp loss is smoothed over these, one after the other
_DIGITS = (3e-2, 1e-3)  # of the first gradient: what may be left before the last width, and at it
_STEPS = 8  # Newton's, for each width
_CG_STEPS, _CG_TOL = 20, 1e-3  # conjugate gradients of a Newton step, and their squared residual
_SEARCHES, _FLAT = 8, 0.4  # points on the line of a step, and the share of its slope to end at
_AT_ONCE = 512  # rows that are left out together
_ROOM = 1e-12  # 1 - w h at least
_TINY = float(np.finfo(np.float64).tiny)


def values_without(
    Phi: Array, y: Array, side: Array, weight: Array, f: Array, loss: Loss, ridge: Array
) -> Array:
    """Return the decision value of every row from the model without it.

    One output is at its minimum: values f, slack u = side (y - f), ridge lam rho of every feature.
    """
    u, values = side * (y - f), f.copy()
    slopes = side * weight * loss.derivative(u)
    stages: list[_WithoutRows] = []
    for width in _WIDTHS:
        smooth = loss.smoothed_over(width)
        if not stages or smooth is not loss:
            stages.append(_without_rows(Phi, ridge, u, side, weight, slopes, smooth))
    every = np.flatnonzero(slopes)
    for start in range(0, len(every), _AT_ONCE):
        rows = every[start : start + _AT_ONCE]
        D = stages[0].one_step(rows)
        for before, stage in zip([None, *stages], stages, strict=False):
            if before is not None:  # the same point in other coordinates
                D = stage.A.T @ solve_triangular(before.A, D, lower=True, trans="T")
            D = stage.minimised(rows, D, _DIGITS[stage is stages[-1]])
        values[rows] += np.sum(stages[-1].Psi[rows] * D.T, axis=1)
    return values


def _without_rows(
    Phi: Array, ridge: Array, u: Array, side: Array, weight: Array, slopes: Array, loss: Loss
) -> _WithoutRows:
    # a floor that doubles the ridge at most: without curved rows a free bias has none
    floor = float(ridge.max(initial=0.0)) / max(float(np.square(Phi).sum()), _TINY)
    w = weight * loss.second_derivative(u) + floor
    A, Psi = np.tril(factored((Phi * w[:, None]).T @ Phi, ridge)), Phi.copy()
    right_solve_in_place(Psi, A)
    return _WithoutRows(A, Psi, w, floor, u, side, weight, slopes, loss)


@dataclass(frozen=True)
class _WithoutRows:
    """The left-out problems with one loss, in the coordinates of its Newton matrix."""

    A: Array  # Cholesky factor of the Newton matrix
    Psi: Array
    w: Array  # curvatures at the minimum, plus the floor
    floor: float
    u: Array
    side: Array
    weight: Array
    slopes: Array  # of the loss that was minimised
    loss: Loss

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
        slack = self.u[:, None] - self.side[:, None] * E
        q = self.w[:, None] * E - self.slopes[:, None]
        q += (self.side * self.weight)[:, None] * self.loss.derivative(slack)
        out = rows, np.arange(len(rows))  # rows that are left out have no slope
        q[out] = self.w[rows] * E[out] - self.slopes[rows]
        return q

    def _newton_direction(self, rows: Rows, E: Array, G: Array) -> Array:
        """Return -(I + Psi' diag(w(e) - w) Psi)^-1 G by conjugate gradients."""
        slack = self.u[:, None] - self.side[:, None] * E
        changed = self.weight[:, None] * self.loss.second_derivative(slack)
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
        first, linear, quadratic = (np.sum(P * other, axis=0) for other in (G, D, P))
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
