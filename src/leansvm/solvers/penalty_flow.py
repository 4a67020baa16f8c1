"""The classical LS-SVM by the gradient system of an exact penalty (joshi, Appendix, (44)-(46)).

beta' = y - G beta - rho 1 sgn(1'beta) descends 1/2 beta'G beta - y'beta + rho |1'beta|, whose
minimum is the constrained one for rho >= |b|. An explicit step chatters about 1'beta = 0. The
penalty is taken implicitly instead: with z an explicit step of the smooth part in the metric M,

    beta = z - M^-1 1 b,   b = clip(1'z / 1'M^-1 1, -rho, rho),

that is, sgn takes the value in [-1, 1] that keeps 1'beta = 0 once it is reached, and b is the bias.
M = L diag(G), L found by trial; momentum with restarts makes it O(condition^1/2) steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_PATIENCE = 5  # saturated steps after which rho is doubled


@dataclass
class Flow:
    """Where the flow ended: one column an output."""

    beta: Array
    b: Array
    product: Array  # K beta
    iterations: int
    converged: bool


def penalty_flow(
    product: Callable[[Array], Array],
    diag: Array,
    Y: Array,
    ridge: Array,
    weight: Array,
    *,
    tol: float,
    max_iter: int,
    on_iteration: Callable[[int, float], bool] | None = None,
) -> Flow:
    """Follow the flow of every output to a relative residual of ``tol``.

    Parameters
    ----------
    product : callable
        V -> K V.
    diag, ridge, weight : ndarray of shape (m,)
        Diagonal of K, 1 / (C s), s.
    Y : ndarray of shape (m, n_outputs)
        Targets.
    tol : float
        (sum s r^2 / sum s y^2)^1/2 at which to stop, r = y - b - G beta.
    max_iter : int
        Most products with K.
    on_iteration : callable, optional
        Called with (iteration, largest relative residual); returns True to stop.
    """
    lam, s = ridge[:, None], weight[:, None]
    inverse = 1.0 / (diag + ridge)[:, None]  # M^-1 up to L
    scale = np.maximum(np.sum(s * Y**2, axis=0), np.finfo(np.float64).tiny)
    rho = 2.0 * np.abs(Y).max(axis=0)
    step = np.ones(Y.shape[1])  # 1 / L
    x, b = np.zeros_like(Y), np.zeros(Y.shape[1])
    Gx, Kx = np.zeros_like(Y), np.zeros_like(Y)
    ahead, G_ahead = x, Gx
    momentum, saturated = np.ones(Y.shape[1]), np.zeros(Y.shape[1], dtype=int)
    for it in range(1, max_iter + 1):
        metric = step * inverse
        z = ahead + metric * (Y - G_ahead)
        wanted = z.sum(axis=0) / metric.sum(axis=0)
        b = np.clip(wanted, -rho, rho)
        new = z - metric * b
        K_new = product(new)
        G_new = K_new + lam * new
        # the step is short enough where change' G change <= L change' M change
        change = new - ahead
        curvature = np.sum(change * (G_new - G_ahead), axis=0)
        allowed = np.sum(change**2 / metric, axis=0)
        long = curvature > allowed * (1 + 1e-12)
        if long.any():
            step[long] = np.minimum(0.5 * step, step * allowed / np.maximum(curvature, 1e-300))[
                long
            ]
        ok = ~long
        saturated = np.where(np.abs(wanted) > rho, saturated + 1, 0)
        rho[saturated > _PATIENCE] *= 2.0
        # momentum, restarted where it points uphill
        restart = np.sum((ahead - new) * (new - x) / inverse, axis=0) > 0
        t = np.where(restart, 1.0, momentum)
        t_new = 0.5 * (1 + np.sqrt(1 + 4 * t**2))
        factor = np.where(restart, 0.0, (t - 1) / t_new)
        ahead = np.where(ok, new + factor * (new - x), x)
        G_ahead = np.where(ok, G_new + factor * (G_new - Gx), Gx)
        momentum = np.where(ok, t_new, 1.0)
        x, Gx, Kx = np.where(ok, new, x), np.where(ok, G_new, Gx), np.where(ok, K_new, Kx)
        residual = np.sqrt(np.sum(s * (Y - b - Gx) ** 2, axis=0) / scale)
        worst = float(residual.max())
        if on_iteration is not None and on_iteration(it, worst):
            return Flow(x, b, Kx, it, False)
        if worst <= tol and ok.all() and not saturated.any():
            return Flow(x, b, Kx, it, True)
    return Flow(x, b, Kx, max_iter, False)
