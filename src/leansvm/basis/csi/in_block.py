"""What CSI computes in a block of rows: new columns, their orthogonal parts, scores.

A block keeps in `FactorRows` P = [G W] (selected columns, then the window of look-ahead columns)
and the residual diagonal D after G, and in `WindowRows` what else the scores need.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import dger

from leansvm.basis.cholesky.growing import FactorRows, start
from leansvm.kernels import Kernel
from leansvm.rows import Block, declare

Array = NDArray[np.float64]

# Scores are compared by 36 significant bits, so that rounding does not decide between equal ones.
_DROPPED_BITS = 17
_NOTHING = 1e-10  # a squared direction this small, relative to what it may be, is rounding
_TINY = float(np.finfo(np.float64).tiny)
_VISIBLE = 1e-6  # part of a row's residual that the window must show to say where it points


@dataclass
class WindowRows:
    """What a block keeps to score its rows; w is a row of W, R = Q_W'W_c."""

    s: Array  # weights
    root: Array  # their roots
    Q: Array  # an orthonormal basis of the centred columns of P
    E: Array  # residual diagonal after G and W: exactly 0 in the rows whose columns these are
    T: Any = None  # targets: root (y - mean)
    A1: Any = None  # |W w'|^2
    A3: Any = None  # |R w'|^2
    Z: Any = None  # (Q_W'T)'R w'


class GainCriterion(NamedTuple):
    """The weights of the two parts of a gain, a |g|^2 + c |q'T|^2, and how values compare."""

    a: float
    c: float
    floor: float  # residuals up to here are rounding
    scale: float  # residual diagonals are compared in units of 1 / scale
    unit: float  # scores in units of this


class Bounds(NamedTuple):
    """What a window allows: A1 <= |w|^2 gram, A3 <= |w|^2 directions, |Z|^2 <= A3 targets."""

    gram: float  # tr W'SW
    directions: float  # |R|^2
    targets: float  # |Q_W'T|^2


class ScoredRow(NamedTuple):
    """The best row of a block, with its row of P."""

    key: float
    row: int
    value: float  # score, or residual
    E: float
    factor: Array


class BestRows(NamedTuple):
    """The best rows of a block."""

    gain: ScoredRow | None  # largest expected gain; the row's column is known or can be computed
    dependent: ScoredRow | None  # the same over all rows, if the columns represent every row
    missed: ScoredRow | None  # largest residual


class Added(NamedTuple):
    """A column g that joined the window: the terms it adds to A1, A3 and Z."""

    scale: float  # norm of its orthogonal part, inverted; 0 when there is none
    square: float  # |g|^2
    centred: float  # |R's new column|^2
    gram: Array  # W'Sg
    cross: Array  # R'h
    targets: Array  # (h, rho)'(Q_W, q)'T


class Extraction(NamedTuple):
    """The step that moves row t from the window to the selected ones: W <- W (I - b v v')."""

    row: int
    added: Added | None
    right: tuple[Array, float]  # v, b for W
    left: tuple[Array, float]  # and for Q_W
    square: float  # |g|^2 of the extracted column
    gram: Array  # coefficients of W W'Sg
    along: Array  # coefficients of W R'q
    targets: Array  # q'T
    independent: bool  # whether g adds a direction to Q
    bounds: Bounds  # of the window that remains


# ---------------------------------------------------------------------------- start


@declare("X", "y", "weight", keeps=(FactorRows, WindowRows))
def begin(block: Block, kernel: Kernel, capacity: int) -> tuple[float, float, float, Array]:
    """Return the weighted trace, the largest k(x, x), the weight and the weighted sum of y."""
    if block.y is None:
        raise ValueError("CSI needs targets: the row blocks have no y.")
    total, largest = start(block, kernel, capacity)
    D = block.kept(FactorRows).D
    y = np.asarray(block.y, dtype=np.float64).reshape(len(D), -1)
    s = np.ones(len(D)) if block.weight is None else np.asarray(block.weight, dtype=np.float64)
    Q = np.empty((len(D), capacity), order="F")
    # E: 0 marks rows whose columns are in G or W
    block.keep(WindowRows(s, np.sqrt(s), Q, np.maximum(D, _TINY)))
    return total, largest, float(s.sum()), s @ y


@declare("y", keeps=WindowRows)
def centre_targets(block: Block, mean: Array) -> float:
    """Keep T = sqrt(s) (y - mean); return |T|^2."""
    state = block.kept(WindowRows)
    y = np.asarray(block.y, dtype=np.float64).reshape(len(state.root), -1)
    state.T = state.root[:, None] * (y - mean)
    return float(np.sum(state.T * state.T))


@declare(keeps=(FactorRows, WindowRows))
def finish(block: Block, k: int) -> None:
    """Keep P and D of the selected rows alone."""
    factor = block.kept(FactorRows)
    factor.P = factor.P[:, :k].copy(order="F")
    block.state.pop(WindowRows, None)


# ---------------------------------------------------------------------------- a new column


@declare("X", keeps=(FactorRows, WindowRows), changes=("E",), appends=("P",))
def grow(
    block: Block, kernel: Kernel, point: Any, factor: Array, k: int, row: int, watched: int
) -> Array:
    """Append g = (K_Mc - P P_c') / nu to P; ``factor`` is the row [P_c, nu] of P.

    Return [Q'Sg, W'Sg, s'g, g'Sg, g of the watched row].
    """
    state, P = block.kept(WindowRows), block.kept(FactorRows).P
    n, E = len(factor) - 1, state.E
    g = np.asarray(kernel.block(block.X, point, dtype=np.float64), dtype=np.float64)[:, 0]
    g = (g - P[:, :n] @ factor[:n]) / factor[n]
    inside = E == 0.0
    g[inside] = 0.0  # nothing but rounding is left of these
    E -= g * g
    np.maximum(E, _TINY, out=E)
    E[inside] = 0.0
    if block.start <= row < block.stop:
        g[row - block.start], E[row - block.start] = factor[n], 0.0
    P[:, n] = g
    seen = g[watched - block.start] if block.start <= watched < block.stop else 0.0
    weighted = state.s * g
    rest = [weighted.sum(), weighted @ g, seen]
    return np.concatenate([(state.root * g) @ state.Q[:, :n], weighted @ P[:, k:n], rest])


@declare(keeps=WindowRows, changes=("Q",), light=False)
def orthogonalise(block: Block, h: Array, mean: float | None) -> Array:
    """Take Q h off the centred new column (``mean`` given) or off what is left of it.

    Return [Q'q, q'q, q'T].
    """
    state, n = block.kept(WindowRows), len(h)
    Q, new = state.Q, block.kept(FactorRows).P[:, n]
    start = Q[:, n] if mean is None else state.root * (new - mean)
    q = start - Q[:, :n] @ h
    Q[:, n] = q
    return np.concatenate([q @ Q[:, :n], [q @ q], q @ state.T])


@declare(keeps=WindowRows, changes=("Q",))
def normalise(block: Block, n: int, scale: float, criterion: GainCriterion) -> ScoredRow | None:
    """Scale the last column of Q; return the row that the n columns miss most."""
    if n:
        block.kept(WindowRows).Q[:, n - 1] *= scale
    return _most_missed(block, n, criterion)


# ---------------------------------------------------------------------------- scores


@declare(light=False)
def window_gram(block: Block, k: int, n: int) -> Array:
    """W'SW of this block."""
    W = block.kept(WindowRows).root[:, None] * block.kept(FactorRows).P[:, k:n]
    return np.asarray(W.T @ W)


@declare(keeps=(FactorRows, WindowRows), light=False)
def recompute(
    block: Block,
    k: int,
    gram: Array,
    R: Array,
    targets: Array,
    bounds: Bounds,
    criterion: GainCriterion,
) -> BestRows:
    """Compute D, A1, A3 and Z from the window; return the best rows."""
    state, factor = block.kept(WindowRows), block.kept(FactorRows)
    W = factor.P[:, k : k + len(gram)]
    # rows that count for nothing are never chosen
    factor.D = np.where(state.s > 0, state.E + np.einsum("ij,ij->i", W, W), 0.0)
    state.A1 = np.einsum("ij,ij->i", W @ gram, W)
    image = W @ R.T
    state.A3 = np.einsum("ij,ij->i", image, image)
    state.Z = image @ targets
    return _best(block, k + len(gram), bounds, criterion)


@declare(keeps=(FactorRows, WindowRows), changes=("P", "Q", "A1", "A3", "Z", "D", "E"), light=False)
def extract(block: Block, k: int, step: Extraction, criterion: GainCriterion) -> BestRows:
    """Move the column of row ``step.row`` from the window to the selected ones, update scores."""
    state, factor = block.kept(WindowRows), block.kept(FactorRows)
    (v, b), (u, d) = step.right, step.left
    n = k + len(v)
    W, Q_W = factor.P[:, k:n], state.Q[:, k:n]
    A1, A3, Z = state.A1, state.A3, state.Z
    # all products with W at once: those of the reflection, of the column that leaves, ...
    factors = [v, step.gram, step.along]
    if step.added is not None:  # ... and of the one that joined
        factors += [np.append(step.added.gram, 0.0), np.append(step.added.cross, 0.0)]
    products = W @ np.column_stack(factors)
    if step.added is not None:
        g = W[:, -1]
        A1 += g * (step.added.square * g + 2.0 * products[:, 3])
        A3 += g * (step.added.centred * g + 2.0 * products[:, 4])
        Z += np.outer(g, step.added.targets)
        Q_W[:, -1] *= step.added.scale
    dger(-b, products[:, 0], v, a=W, overwrite_a=True)
    dger(-d, Q_W @ u, u, a=Q_W, overwrite_a=True)
    g = W[:, 0]
    A1 -= g * (2.0 * products[:, 1] - step.square * g)
    if step.independent:
        A3 -= np.square(products[:, 2])
        Z -= np.outer(products[:, 2], step.targets)
    else:
        Q_W[:, 0] = 0.0
    D = factor.D
    D -= g * g
    np.maximum(D, 0.0, out=D)
    if block.start <= step.row < block.stop:
        D[step.row - block.start] = state.E[step.row - block.start] = 0.0
    return _best(block, n, step.bounds, criterion)


def _best(block: Block, n: int, bounds: Bounds, criterion: GainCriterion) -> BestRows:
    """Return the rows with the largest expected gain and the one that the n columns miss most.

    A row with 0 < E <= floor (nearly a copy of a window row) is left to its twin: the window
    has its column only up to sqrt(E E_i). It may be chosen if no E_i is above the floor.
    """
    state, D = block.kept(WindowRows), block.kept(FactorRows).D
    E, A3 = state.E, state.A3
    usable = criterion.floor < D
    with np.errstate(divide="ignore", invalid="ignore"):
        # |g|^2 of the row's column, the window standing for what is off its diagonal
        A1 = np.minimum(np.maximum(state.A1, 0.0), bounds.gram * np.maximum(D - E, 0.0))
        norms = (A1 + state.s * E * (2.0 * D - E)) / D
        # |q'T|^2, if the window shows a direction at all
        explained = np.einsum("ij,ij->i", state.Z, state.Z) / A3
        shown = (_NOTHING * bounds.directions * D < A3) & (_VISIBLE * D < D - E)
        explained[~shown] = 0.0
        scores = criterion.a * norms + criterion.c * np.minimum(explained, bounds.targets)
        keys = _significant(np.rint(scores / criterion.unit))
    keys[~usable] = -1.0
    missed = _most_missed(block, n, criterion)
    dependent = _candidate(block, keys, scores, n) if missed is None else None
    keys[(E > 0.0) & (criterion.floor >= E)] = -1.0
    return BestRows(_candidate(block, keys, scores, n), dependent, missed)


def _most_missed(block: Block, n: int, criterion: GainCriterion) -> ScoredRow | None:
    E = block.kept(WindowRows).E
    keys = np.where(criterion.floor < E, np.rint(E * criterion.scale), -1.0)
    return _candidate(block, keys, E, n)


def _candidate(block: Block, keys: Array, values: Array, n: int) -> ScoredRow | None:
    i = int(np.argmax(keys)) if len(keys) else 0  # the first of equal ones
    if len(keys) == 0 or keys[i] < 0:
        return None
    E, row = float(block.kept(WindowRows).E[i]), block.kept(FactorRows).P[i, :n].copy()
    return ScoredRow(float(keys[i]), block.start + i, float(values[i]), E, row)


def _significant(values: Array) -> Array:
    """Round non-negative numbers to 36 significant bits."""
    bits = values.view(np.int64) + (1 << (_DROPPED_BITS - 1))
    return (bits >> _DROPPED_BITS << _DROPPED_BITS).view(np.float64)
