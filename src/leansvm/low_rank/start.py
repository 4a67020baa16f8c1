"""Where functions start: at medoids of the rows or of every class, then where the error is.

A model of few functions grows by the function that lowers the leave-one-out error most. With the
columns Q of an orthonormal basis of [1, Phi], residuals e = (I - QQ')y and leverages h = diag(QQ'),
a candidate p adds q = (I - QQ')p / |(I - QQ')p| and changes them to e - q q'e and h + q^2; the
leave-one-out residuals are e / (1 - h).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import check_array

from leansvm._array_api import as_float64, like_rows, namespace, to_host
from leansvm.linalg import dense64
from leansvm.low_rank.functions import LearnedFeatures
from leansvm.low_rank.variable_projection import FeatureUnits
from leansvm.rows import (
    Block,
    RowBlocks,
    WeightedSample,
    class_numbers,
    declare,
    row_weights,
    weights_of_drawn,
)
from leansvm.solution import Solution

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Measures = tuple[float, Array, Array, Array, Array]

_MEDOID_ROWS, _ROWS_PER_MEDOID = 1000, 4  # rows that are clustered: a sample of more
_MOST_SWAPS = 100  # of medoids
_SAMPLE_ROWS, _SAMPLE_VALUES = 4000, 2**25  # rows that functions are added on, and their numbers
_TRIED_PER_FUNCTION, _MOST_TRIED = 8, 512  # rows at which a new function is tried
_SHAPES_TRIED = (1.0, 3.0)  # multiples of the shapes of the function that is strongest there
_FINALISTS = 8  # best candidates by the squared error, compared by leave-one-out


@dataclass(frozen=True)
class StartRows:
    """Rows on the host that functions start on: all rows, or a sample of them."""

    X: Array
    Y: Array  # one column per output
    weight: Array
    classes: Rows  # a number for every row; zeros if targets are not +-1

    def part(self, rows: Any) -> StartRows:
        """Return some of the rows."""
        return StartRows(self.X[rows], self.Y[rows], self.weight[rows], self.classes[rows])


def start_limits(n_basis: int, n_features: int) -> tuple[int, int]:
    """Return how many rows are clustered at most, and how many functions are added on."""
    clustered = max(_MEDOID_ROWS, _ROWS_PER_MEDOID * n_basis)
    return clustered, max(clustered, min(_SAMPLE_ROWS, _SAMPLE_VALUES // max(n_features, 1)))


def tried_functions(count: int) -> int:
    """Return how many functions are compared at most when ``count`` are added."""
    rows = max(count, min(_TRIED_PER_FUNCTION * count, _MOST_TRIED))
    return len(_SHAPES_TRIED) * rows


def draw_start_rows(blocks: RowBlocks, n_basis: int, rng: np.random.RandomState) -> StartRows:
    """Bring all rows to the host if they are few, else some drawn by their sample weights."""
    limit = start_limits(n_basis, blocks.n_features)[1]
    rows = WeightedSample(blocks, rng).first(limit + 1)
    whole = len(rows) <= limit
    rows = np.sort(rows) if whole else rows[:limit]
    Y, weight = blocks.targets_of(rows)
    weight = np.ones(len(rows)) if weight is None else np.asarray(weight, dtype=np.float64)
    X = np.ascontiguousarray(to_host(dense64(blocks.take(rows))))
    Y = np.asarray(Y, dtype=np.float64).reshape(len(rows), -1)
    if not whole:
        unit, costs = weights_of_drawn(blocks, Y, weight)
        weight = unit * costs
    classes = np.zeros(len(rows), dtype=np.intp)
    if np.all(np.abs(Y) == 1.0):
        classes = class_numbers(Y)
    return StartRows(X, Y, weight, classes)


def given_centers(points: Any, n_features: int) -> Array:
    """Return points that a user gave as centres, checked."""
    points = check_array(points, dtype=np.float64, input_name="init")
    if points.shape[1] != n_features:
        raise ValueError(f"init: points have {points.shape[1]} features, X has {n_features}.")
    return np.ascontiguousarray(points)


def initial_centers(
    blocks: RowBlocks, init: str, n_basis: int, rng: np.random.RandomState
) -> Array:
    """Return rows to start from: the medoids of (a sample of) the rows, or random ones."""
    limit = start_limits(n_basis, blocks.n_features)[0]
    rows = WeightedSample(blocks, rng).first(n_basis if init == "random" else limit + 1)
    if init == "random":
        return np.ascontiguousarray(to_host(dense64(blocks.take(rows))))
    weight = None
    if len(rows) <= limit:  # all of them: their weights count
        rows = np.sort(rows)
        _, weight = blocks.targets_of(rows)
    X = to_host(dense64(blocks.take(rows[:limit])))
    medoids = pam(np.asarray(euclidean_distances(X)), n_basis, weight)
    return np.ascontiguousarray(X[medoids])


def class_medoids(sample: StartRows, n_basis: int) -> Array:
    """Return the medoids of every class, about as many of each.

    If there are fewer functions than classes, or targets are numbers: the medoids of all rows.
    """
    classes = sample.classes
    present, sizes = np.unique(classes, return_counts=True)
    if n_basis < len(present):
        present, sizes, classes = np.array([0]), np.array([len(classes)]), 0 * classes
    shares = np.zeros(len(present), dtype=np.intp)
    for _ in range(n_basis):  # one more for the class with the fewest, the largest first
        shares[np.lexsort((-sizes, shares, shares >= sizes))[0]] += 1
    centers = []
    for label, share in zip(present, shares, strict=True):
        rows = np.flatnonzero(classes == label)
        limit = start_limits(int(share), sample.X.shape[1])[0] // 2  # there are other classes
        if len(rows) > limit:  # evenly over them: they may be in order
            rows = rows[np.linspace(0, len(rows) - 1, limit).astype(np.intp)]
        X = sample.X[rows]
        found = pam(np.asarray(euclidean_distances(X)), int(share), sample.weight[rows])
        centers.append(X[found])
    return np.ascontiguousarray(np.concatenate(centers))


def pam(distances: Array, n_medoids: int, weight: Array | None = None) -> Rows:
    """Return the positions of the medoids of symmetric ``distances``, in the order of BUILD.

    Partitioning around medoids: greedy BUILD, then the best SWAP until none helps. Minimises
    sum_n s_n min_j d(x_n, x_j) over medoids j (fang2019, eq. (30)). All swaps are valued at once as
    in FastPAM1 (Schubert, Rousseeuw 2021): O(n^2) per round, for tens of medoids.
    """
    weight = np.ones(len(distances)) if weight is None else weight
    medoids = np.empty(n_medoids, dtype=np.intp)
    # BUILD: each medoid is the row that lowers the sum of distances most
    medoids[0] = int(np.argmin(weight @ distances))
    nearest = distances[:, medoids[0]].copy()
    for j in range(1, n_medoids):
        change = weight @ np.minimum(distances - nearest[:, None], 0.0)
        change[medoids[:j]] = np.inf
        medoids[j] = int(np.argmin(change))
        np.minimum(nearest, distances[:, medoids[j]], out=nearest)
    # SWAP a medoid for another row as long as that lowers the sum
    none = np.full(len(distances), np.inf)  # the second choice if there is one medoid
    for _ in range(_MOST_SWAPS if n_medoids < len(distances) else 0):
        # the nearest medoid of every row, and the distances to it and to the next one
        to_medoids = np.column_stack([distances[:, medoids], none])
        near = to_medoids.argmin(axis=1)
        first, second = np.partition(to_medoids, 1, axis=1)[:, :2].T
        # change when a row becomes a medoid and none leaves: sum_n s_n min(d - d1, 0)
        joined = np.minimum(distances - first[:, None], 0.0)
        # and when medoid j leaves, its rows go to the newcomer or to their second choice
        moved = np.minimum(distances, second[:, None]) - first[:, None] - joined
        own = (near[:, None] == np.arange(n_medoids)) * weight[:, None]
        change = weight @ joined + own.T @ moved
        change[:, medoids] = np.inf
        leaving, entering = np.unravel_index(int(np.argmin(change)), change.shape)
        if not change[leaving, entering] < -1e-12 * float(weight @ first):
            break
        medoids[leaving] = entering
    return medoids


# ---------------------------------------------------------------------------- growing


def add_functions(
    sample: StartRows, basis: LearnedFeatures, solution: Solution, count: int
) -> LearnedFeatures:
    """Add functions one at a time, each the one that lowers the leave-one-out error most.

    Candidates sit at rows where the squared error is large, with the shapes of the function that
    is strongest there, or narrower ones.
    """
    X, root = sample.X, np.sqrt(sample.weight)[:, None]
    values = basis.phi(X)
    error = root * (sample.Y - values @ solution.coef - solution.b)
    rows = _rows_by_mass(np.square(error).sum(axis=1), tried_functions(count) // len(_SHAPES_TRIED))
    shapes = basis.shapes[values[rows].argmax(axis=1)]
    centers = np.ascontiguousarray(np.tile(X[rows], (len(_SHAPES_TRIED), 1)))
    shapes = np.ascontiguousarray(np.concatenate([scale * shapes for scale in _SHAPES_TRIED]))
    candidates = root * basis.function.values(X, centers, shapes)
    known = np.linalg.qr(root * np.column_stack([np.ones(len(X)), values]))[0]
    chosen = pick_columns(candidates, known, root * sample.Y, count, 1.0 / solution.C)
    return replace(
        basis,
        centers=np.concatenate([basis.centers, centers[chosen]]),
        shapes=np.concatenate([basis.shapes, shapes[chosen]]),
    )


def _rows_by_mass(mass: Array, count: int) -> Rows:
    """Return at most ``count`` rows, evenly over the running sum of their masses."""
    if len(mass) <= count:
        return np.arange(len(mass))
    edges = np.cumsum(mass + 1e-3 * mass.mean() + np.finfo(np.float64).tiny)
    targets = (np.arange(count) + 0.5) / count * edges[-1]
    rows = np.unique(np.searchsorted(edges, targets))
    if len(rows) < count:  # a row of much mass stands for several: fill up with the next
        others = np.setdiff1d(np.argsort(-mass, kind="stable")[:count], rows)
        rows = np.concatenate([rows, others[: count - len(rows)]])
    return rows


def pick_columns(P: Array, Q: Array, Y: Array, count: int, penalty: float) -> list[int]:
    """Return columns of P, in the order in which they lower the leave-one-out error of Y most.

    The candidates P are overwritten; Q are the orthonormal columns of the model so far. The penalty
    is added to the squared length of a column, so that a column nearly in their span gains nothing.
    """
    P -= Q @ (Q.T @ P)
    E = Y - Q @ (Q.T @ Y)
    leverage = np.square(Q).sum(axis=1)
    lengths, products = np.square(P).sum(axis=0), P.T @ E
    floor = 1e-10 * float(lengths.max(initial=0.0))  # shorter ones are rounding
    chosen: list[int] = []
    for _ in range(count):
        gain = np.square(products).sum(axis=1) / np.maximum(lengths + penalty, floor)
        gain[lengths <= floor] = -1.0  # known already
        gain[chosen] = -2.0
        finalists = np.argsort(-gain, kind="stable")[:_FINALISTS]
        best, least = int(finalists[0]), np.inf
        if lengths[best] <= floor:
            chosen.append(best)
            continue
        finalists = finalists[gain[finalists] >= 0.0]
        for j in finalists:
            q = P[:, j] / np.sqrt(lengths[j] + penalty)
            room = np.maximum(1.0 - leverage - q * q, 1e-2)
            error = float(np.sum(np.square((E - np.outer(q, q @ E)) / room[:, None])))
            if error < least:
                best, least = int(j), error
        chosen.append(best)
        q = P[:, best] / np.sqrt(lengths[best])
        along = q @ P
        products -= np.outer(along, q @ E)
        E -= np.outer(q, q @ E)
        P -= np.outer(q, along)
        lengths = np.maximum(lengths - along * along, 0.0)
        leverage += q * q
    return chosen


# ---------------------------------------------------------------------------- units of the rows


def feature_units(blocks: RowBlocks) -> FeatureUnits:
    """Measure the rows of positive weight: one pass over the rows."""
    # others may be far away
    origin = blocks.fold(min, _first_that_counts) if blocks.weighted else 0
    first = to_host(dense64(blocks.take(np.array([origin]))))[0]
    n, total, squares, low, high = blocks.fold(_merged, _measure, first)
    if not np.isfinite(squares).all():
        raise ValueError("The squares of the features overflow: scale X.")
    if ((squares == 0.0) & (high > low)).any():
        raise ValueError("The squares of the features underflow to zero: scale X.")
    spread = np.sqrt(np.maximum(squares / n - np.square(total / n), 0.0))
    # below rounding of the largest deviation there is nothing but noise
    constant = spread <= 1e-7 * np.maximum(np.abs(high - first), np.abs(low - first))
    spread = np.where(constant | (spread == 0.0), 1.0, spread)
    width = np.maximum(high - low, spread)
    return FeatureUnits(spread, (low - width, high + width))


@declare("weight")
def _first_that_counts(block: Block) -> int:
    """Return the number of the first row of positive weight, or a number beyond all."""
    rows = np.flatnonzero(to_host(row_weights(block)) > 0)
    return block.start + int(rows[0]) if len(rows) else sys.maxsize


@declare("X", "weight")
def _measure(block: Block, first: Array) -> Measures:
    """Return weight, sum and sum of squares of x - first, and the range of x."""
    X = dense64(block.X)
    if X.shape[0] == 0:
        return 0.0, 0 * first, 0 * first, first + np.inf, first - np.inf
    xp, deviation = namespace(X), X - like_rows(first, X)
    weight = xp.ones_like(X[:, 0]) if block.weight is None else as_float64(block.weight)
    used = weight[:, None] > 0
    low = xp.min(xp.where(used, X, np.inf), axis=0)
    high = xp.max(xp.where(used, X, -np.inf), axis=0)
    with np.errstate(over="ignore"):  # looked for in the sum
        sums = weight @ deviation, weight @ (deviation * deviation), low, high
    return float(xp.sum(weight)), *to_host(sums)


def _merged(a: Measures, b: Measures) -> Measures:
    """Return what `_measure` would of two blocks together."""
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], np.minimum(a[3], b[3]), np.maximum(a[4], b[4])
