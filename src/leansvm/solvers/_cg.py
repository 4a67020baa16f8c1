"""Conjugate gradients on K + diag(1 / (C s)), preconditioned by a pivoted-Cholesky factor.

All right-hand sides [1, y_1, ..] go together, one kernel product an iteration, each with its own
step lengths. With F F' ~ K and D = diag(C s)^1/2 the preconditioner is
(F F' + D^-2)^-1 v = D (w - F_s (I + F_s'F_s)^-1 F_s'w),  w = D v,  F_s = D F.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from leansvm._accelerated import gram
from leansvm._array_api import like_rows, to_host
from leansvm.blocks import Block, RowBlocks, declare
from leansvm.cholesky import PivotedFactor
from leansvm.solvers._dual import DualSolution, NotPositiveDefinite, bias_from, certify

Array = NDArray[np.float64]
_STALL = 50  # iterations without progress after which CG gives up
_RESTARTS = 4
_ROUNDING = 1e-15  # no recursion gets further


class Preconditioner:
    """Apply (F F' + diag(1 / (C s)))^-1, F being the factor kept in the blocks' state."""

    def __init__(self, blocks: RowBlocks, factor: PivotedFactor, weight: Array, C: float) -> None:
        self._blocks = blocks
        self._k = len(factor.indices)
        self._root = np.sqrt(C * weight)
        total = blocks.sum(_scaled_gram, self._root, self._k)
        total.flat[:: self._k + 1] += 1.0
        self._inner = cho_factor(total, lower=True, overwrite_a=True, check_finite=False)

    def __call__(self, v: Array) -> Array:
        w = self._root[:, None] * v
        inner = cho_solve(self._inner, self._blocks.sum(_project, w, self._root, self._k))
        return self._blocks.concatenate(_apply, w, self._root, inner, self._k)


@declare()
def _scaled_gram(block: Block, root: Array, k: int) -> Any:
    P = block.state["P"][:, :k]
    return gram(P * like_rows(root[block.rows, None], P))


@declare()
def _project(block: Block, w: Array, root: Array, k: int) -> Any:
    P = block.state["P"][:, :k]
    return P.T @ like_rows(root[block.rows, None] * w[block.rows], P)


@declare()
def _apply(block: Block, w: Array, root: Array, inner: Array, k: int) -> Array:
    rows, r, P = block.rows, root[block.rows, None], block.state["P"][:, :k]
    return np.asarray(r * (w[rows] - r * to_host(P @ like_rows(inner, P))))


def conjugate_gradients(
    product: Callable[[Array], Array],
    precondition: Callable[[Array], Array],
    Y: Array,
    weight: Array,
    C: float,
    bias_penalty: float,
    *,
    tol: float,
    max_iter: int,
    give_up_after: int | None = None,
    on_iteration: Callable[[int, float], bool] | None = None,
) -> DualSolution | None:
    """Solve (K + diag(1/(C s))) [u, V] = [1, Y] and put the bias together.

    Parameters
    ----------
    product : callable
        V -> K V.
    precondition : callable
        v -> M^-1 v.
    tol : float
        Relative residual of the whole system; columns are done at half of it, since the
        bias adds the residuals of u and V.
    give_up_after : int, optional
        Abandon the iteration as soon as it is expected to need more iterations than this.
    on_iteration : callable, optional
        Called with (iteration, largest relative residual); returns True to stop.

    Returns
    -------
    DualSolution or None
        None when the iteration was given up.
    """
    rhs = np.hstack([np.ones((len(Y), 1)), Y])
    ridge = 1.0 / (C * weight)[:, None]
    run = _Run(
        lambda V: product(V) + ridge * V,
        precondition,
        rhs,
        np.sqrt(weight)[:, None],
        max(tol / 2, _ROUNDING),
        max_iter,
        on_iteration,
    )
    x = np.zeros_like(rhs)
    for _ in range(_RESTARTS):  # from the true residual, where the recursion lost it
        state = run.improve(x, give_up_after)
        if state == "slow":
            return None
        u, V = x[:, :1], x[:, 1:]
        b = bias_from(float(u.sum()), V.sum(axis=0), bias_penalty)
        beta = V - u * b
        found = certify(product(beta), beta, b, Y, weight, C, bias_penalty)
        if state != "done" or found.residual <= tol:
            break
        run.tol = max(0.5 * run.tol * tol / found.residual, _ROUNDING)
    return DualSolution(
        beta,
        b,
        found.objective,
        found.residual,
        found.gap,
        None,
        run.iterations,
        found.residual <= tol,
    )


@dataclass
class _Run:
    """Conjugate gradients on many right-hand sides, each with its own step lengths."""

    operator: Callable[[Array], Array]
    precondition: Callable[[Array], Array]
    rhs: Array
    root: Array  # s^1/2: residuals count by the rows' weights
    tol: float
    max_iter: int
    on_iteration: Callable[[int, float], bool] | None
    iterations: int = 0

    def improve(self, x: Array, give_up_after: int | None) -> str:
        """Iterate on ``x`` in place; return "done", "slow" (given up), "stopped" or "stalled"."""
        norms = np.linalg.norm(self.root * self.rhs, axis=0)
        active = np.flatnonzero(norms > 0)
        r = self.rhs - self.operator(x) if self.iterations else self.rhs.copy()
        z = self.precondition(r)
        p, rz = z.copy(), np.sum(r * z, axis=0)
        best, best_at, best_x = np.inf, self.iterations, x.copy()
        active = active[np.linalg.norm(self.root * r[:, active], axis=0) > self.tol * norms[active]]
        while len(active):
            if self.iterations >= self.max_iter or self.iterations - best_at >= _STALL:
                x[...] = best_x
                return "stalled"
            self.iterations += 1
            P = p[:, active]
            Gp = self.operator(P)
            curvature = np.sum(P * Gp, axis=0)
            if not np.all(curvature > 0):
                raise NotPositiveDefinite(f"no positive curvature in iteration {self.iterations}")
            step = rz[active] / curvature
            x[:, active] += step * P
            r[:, active] -= step * Gp
            relative = np.linalg.norm(self.root * r[:, active], axis=0) / norms[active]
            worst = float(relative.max())
            if worst < best:
                best, best_at, best_x = worst, self.iterations, x.copy()
            if self.on_iteration is not None and self.on_iteration(self.iterations, worst):
                return "stopped"
            active = active[relative > self.tol]
            if len(active):
                expected = _expected(self.iterations, best, self.tol)
                if give_up_after is not None and self.iterations >= 8 and expected > give_up_after:
                    return "slow"
                z = self.precondition(r[:, active])
                new = np.sum(r[:, active] * z, axis=0)
                p[:, active] = z + (new / rz[active]) * p[:, active]
                rz[active] = new
        return "done"


def _expected(it: int, relative: float, tol: float) -> float:
    """Return the iterations to reach ``tol`` at the rate seen so far."""
    return it * np.log(tol) / np.log(relative) if relative < 1 else np.inf
