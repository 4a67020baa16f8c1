"""Exact leave-one-out of the squared-hinge SVM.

With G = K + diag(1 / (C s)) and w = y - b - G beta, the solution has w_i = 0 in its support set S
and beta_i = 0 outside; theta = y beta >= 0 and y w <= 0 certify it. Let v_i be beta_i in S and w_i
outside. If the rows D change sides, v changes by H_D H_DD^-1 v_D, where H is G with S exchanged:

    H_SS = -T,   H_NS = -H_SN' = G_NS T + 1 t',   H_NN = G_NS H_SN - G_NN + 1 t'G_SN + tau 1 1',

T is the inverse of G_SS bordered by the bias, (t, tau) its last column. So a model without row i is
the solution whose D has i and the rows on the wrong side of their set. These are exchanged all at
once, and one by one if that does not end: block principal pivoting, which ends if G is positive
definite (Judice and Pires, 1994).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import to_host
from leansvm.dual._hinge import Hinge
from leansvm.dual.kernel_matrix import gram
from leansvm.dual.problem import DualProblem
from leansvm.solution import Solution

Array = NDArray[np.float64]

_MOST_ROWS, _MATRICES = 1000, 5  # rows for which this takes a second or less; m x m matrices
_AT_ONCE, _MOST = 5, 300  # exchanges of all wrong rows that do not lower their number; exchanges
_ROUNDING = 1e-10  # of a residual in units of the targets, of a coefficient in units of the largest


def with_left_out(problem: DualProblem, solution: Solution) -> Solution:
    """Return the solution with the residuals of models without each row.

    It stays as it is if there are many rows or little memory, if it is not that of the whole
    problem, or if the kernel is indefinite and a model is not found.
    """
    m = len(problem.weight)
    needed = _MATRICES * 8 * m * m
    whole = solution.converged and not solution.details.get("rows_kept_out")
    if m > _MOST_ROWS or not whole or not problem.fits(needed):
        return solution
    problem = problem.reserve(needed, "Leaving out each row")
    K, cost, residuals = to_host(gram(problem)), solution.C * problem.weight, []
    with problem.phases("left out"), np.errstate(all="ignore"):
        try:
            for y, beta in zip(problem.Y.T, solution.coef.T, strict=True):
                hinge = Hinge(y, cost, problem.bias_penalty)
                residuals.append(exact_left_out(K.copy(), hinge, beta))
        except np.linalg.LinAlgError:
            return solution
    found = np.column_stack(residuals)
    if not np.isfinite(found).all():
        return solution
    return replace(solution, left_out=found, bytes=max(solution.bytes, problem.bytes))


def exact_left_out(K: Array, hinge: Hinge, beta: Array) -> Array:
    """Return y - f of models without each row, given the solution's coefficients.

    K is overwritten. A row whose model is not found gets NaN.
    """
    y, inside, A = hinge.y, beta != 0, hinge.bias_penalty
    S, N = np.flatnonzero(inside), np.flatnonzero(~inside)
    K[np.diag_indices_from(K)] += 1.0 / hinge.cost
    T, G_NS, border = np.linalg.inv(K[np.ix_(S, S)]), K[np.ix_(N, S)], float(np.isfinite(A))
    u = border * T.sum(axis=0)
    tau = -border / (A + u.sum()) if border else 0.0
    t = -tau * u
    T -= np.outer(u, t)
    b = float(t @ y[S]) if len(S) else 0.0
    coef = T @ y[S]
    H_NS = G_NS @ T + t
    v = np.empty(len(y))
    v[S], v[N] = coef, y[N] - b - G_NS @ coef
    H = K  # in its memory
    H[np.ix_(N, N)] = H_NS @ G_NS.T - K[np.ix_(N, N)] + border * ((G_NS @ t)[:, None] + tau)
    H[np.ix_(S, S)], H[np.ix_(N, S)], H[np.ix_(S, N)] = -T, H_NS, -H_NS.T
    result = v.copy()
    for i in S.tolist():
        result[i] = _without(i, H, v, y, inside)
    return result


def _without(i: int, H: Array, v: Array, y: Array, inside: NDArray[np.bool_]) -> float:
    """Return w_i of the model without the support vector i."""
    exchanged = np.zeros(len(y), np.bool_)
    exchanged[i] = True
    fewest, patience = len(y) + 1, _AT_ONCE
    of_coef = _ROUNDING * np.abs(v[inside]).max()
    for _ in range(_MOST):
        D = np.flatnonzero(exchanged)
        change = np.linalg.solve(H[np.ix_(D, D)], -v[D])
        now = y * (v + H[:, D] @ change)
        now[D] = y[D] * change
        wrong = np.where(inside ^ exchanged, now < -of_coef, now > _ROUNDING)
        wrong[i] = False
        count = int(np.count_nonzero(wrong))
        if count == 0:
            return float(change[np.searchsorted(D, i)])
        patience = _AT_ONCE if count < fewest else patience - 1
        fewest = min(count, fewest)
        if patience < 0:  # the last one alone
            wrong[: np.flatnonzero(wrong)[-1]] = False
        exchanged ^= wrong
    return np.nan
