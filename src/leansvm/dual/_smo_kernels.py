"""Compiled steps of `leansvm.dual.smo`; imported on first use, since numba takes a while.

A step: `choose` computes all violations and picks a pool of rows, `solve_block` picks a block from
the pool and minimises over it, `take_step` changes its multipliers, `subtract_rows` takes their
kernel rows from r = y - K beta - ridge beta. `run_on_matrix` loops over these for a matrix in
memory.
"""

import logging
from pathlib import Path
from typing import NamedTuple

import numpy as np

from leansvm._compile import compiled

Array = np.ndarray

_FAST = {"reassoc", "contract", "nsz", "arcp"}
_CHUNK = 1024  # entries of r that stay in the first-level cache while rows come by
_DEPENDENT = 1e-13  # a Schur complement below this share of its diagonal is rounding


class SweepTerms(NamedTuple):
    """Q_ij = K_ij + offset_i + offset_j + c + [i = j] ridge_i, and the bounds."""

    ridge: Array
    offset: Array
    sign: Array  # sign_i beta_i >= 0; 0 for a free multiplier
    weight: Array
    curvature: Array  # Q_ii
    priority: Array  # 1 / Q_ii: v^2 / Q_ii is twice the gain of a step
    c: float
    shifted: bool  # whether any offset is not 0
    bounded: bool  # whether any sign is not 0
    uniform: bool  # whether all rows have the same weight and priority


class SweepPoint(NamedTuple):
    """Where the iteration is."""

    beta: Array
    r: Array  # y - K beta - ridge beta
    sums: Array  # sum(beta), sum(offset beta)


class SweepWork(NamedTuple):
    """How a block is chosen, and arrays that steps overwrite."""

    block: int  # rows to pick; the pool has as many with the largest scores
    n_turn: int  # rows of the pool whose turn it is
    order: Array  # of the turns
    cursor: Array
    v: Array
    score: Array
    taken: Array
    pool: Array
    keys: Array
    L: Array
    picks: Array
    delta: Array


# Kernel rows stream through the cache between two scans of all rows, so a scan reads as few
# arrays as it can. Each loop writes one array: with more, the compiler cannot rule out that they
# overlap, and does not vectorise.


@compiled(fastmath=_FAST)
def _violations(terms: SweepTerms, point: SweepPoint, v: Array) -> None:
    """Write v = y - Q beta, zero where a bound forbids the step that v asks for."""
    r, offset, total = point.r, terms.offset, point.sums[0]
    shift = point.sums[1] + terms.c * total
    if terms.shifted:
        for j in range(len(r)):
            v[j] = r[j] - shift - offset[j] * total
    else:
        for j in range(len(r)):
            v[j] = r[j] - shift
    if terms.bounded:
        beta, sign = point.beta, terms.sign
        for j in range(len(r)):
            v[j] = 0.0 if (beta[j] == 0.0) & (v[j] * sign[j] < 0.0) else v[j]


@compiled(fastmath=_FAST)
def _scores(terms: SweepTerms, v: Array, score: Array) -> float:
    """Write the score v^2 * priority of every row; return sum(s v^2)."""
    norm = 0.0
    if terms.uniform:
        priority = terms.priority[0]
        for j in range(len(v)):
            square = v[j] * v[j]
            score[j] = square * priority
            norm += square
        return norm * terms.weight[0]
    priorities, weight = terms.priority, terms.weight
    for j in range(len(v)):
        square = v[j] * v[j]
        score[j] = square * priorities[j]
        norm += weight[j] * square
    return norm


@compiled()
def _sift(heap: Array, keys: Array, root: int, n: int) -> None:
    """Restore the min-heap of `keys` below `root`."""
    while True:
        child = 2 * root + 1
        if child >= n:
            return
        if child + 1 < n and keys[child + 1] < keys[child]:
            child += 1
        if keys[root] <= keys[child]:
            return
        keys[root], keys[child] = keys[child], keys[root]
        heap[root], heap[child] = heap[child], heap[root]
        root = child


@compiled()
def _largest(score: Array, n: int, heap: Array, keys: Array) -> int:
    """Put the rows of the n largest positive scores into `heap`; return how many there are."""
    filled = 0
    for j in range(len(score)):
        if score[j] <= 0.0:
            continue
        if filled < n:
            heap[filled], keys[filled] = j, score[j]
            filled += 1
            if filled == n:
                for root in range(n // 2 - 1, -1, -1):
                    _sift(heap, keys, root, n)
        elif score[j] > keys[0]:
            heap[0], keys[0] = j, score[j]
            _sift(heap, keys, 0, n)
    return filled


@compiled()
def choose(terms: SweepTerms, point: SweepPoint, work: SweepWork) -> tuple[int, float]:
    """Compute the violations and fill the pool.

    The pool has the rows with the largest scores and some rows in turn. If a kernel is smooth, the
    largest scores are close together; the rows in turn add other directions. Return the size of
    the pool and sum(s v^2).
    """
    score, pool, taken = work.score, work.pool, work.taken
    _violations(terms, point, work.v)
    norm = _scores(terms, work.v, score)
    m, cursor = len(score), work.cursor
    n = _largest(score, work.block, pool, work.keys)
    for k in range(n):
        taken[pool[k]] = True
    stop = n + work.n_turn
    for _ in range(m):
        if n == stop:
            break
        j = work.order[cursor[0]]
        cursor[0] = cursor[0] + 1 if cursor[0] + 1 < m else 0
        if score[j] > 0.0 and not taken[j]:
            taken[j] = True
            pool[n] = j
            n += 1
    for k in range(n):
        taken[pool[k]] = False
    return n, norm


@compiled(fastmath=_FAST)
def _schur_row(
    row: Array,
    columns: Array,
    n: int,
    shift: float,
    offset: Array,
    pool: Array,
    L: Array,
    t: int,
    j: int,
) -> None:
    """Write row t of L: row j of Q on the pool less what the picks before it explain."""
    target = L[t]
    for k in range(n):
        target[k] = row[columns[k]] + (offset[pool[k]] + shift)
    for s in range(t):
        past, a = L[s], L[s, j]
        for k in range(n):
            target[k] -= a * past[k]


# a row that the picks determine may have a Schur complement of zero; it is never picked
@compiled(fastmath=_FAST, error_model="numpy")
def _eliminate(
    row: Array, nu: float, z: float, g: Array, schur: Array, gain: Array, n: int
) -> float:
    """Scale the picked row of L; update gradient, Schur complements (return the least) and gain."""
    scale, least = 1.0 / nu, 0.0
    for k in range(n):
        row[k] *= scale
    for k in range(n):
        g[k] -= row[k] * z
    for k in range(n):
        schur[k] -= row[k] * row[k]
        least = min(least, schur[k])
    for k in range(n):
        gain[k] = g[k] * g[k] / schur[k]
    return least


@compiled()
def _best(score: Array, g: Array, state: Array, at: Array, side: Array, n: int) -> int:
    """Return the pool row of the largest score that may be picked, -1 when there is none."""
    best, winner = 0.0, -1
    for k in range(n):
        if score[k] > best and state[k] and not (at[k] == 0.0 and g[k] * side[k] > 0.0):
            best, winner = score[k], k
    return winner


@compiled()
def solve_block(
    M: Array, columns: Array, n: int, terms: SweepTerms, point: SweepPoint, work: SweepWork
) -> int:
    """Pick rows of the pool one after the other and minimise over them exactly.

    Each pick has the largest gain given the picks before it: a partial Cholesky factorisation
    of Q on the picked rows (M[columns[i], columns[j]] is k of pool rows i and j). Return the
    number of picks, negative when one of them proves Q not positive definite.
    """
    pool, L, picks, delta = work.pool, work.L, work.picks, work.delta
    g, schur, gain, at, side = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    floor, free, z = np.empty(n), np.ones(n, np.bool_), np.empty(work.block)
    for k in range(n):
        i = pool[k]
        g[k], schur[k], floor[k] = -work.v[i], terms.curvature[i], _DEPENDENT * terms.curvature[i]
        at[k], side[k], gain[k] = point.beta[i], terms.sign[i], work.score[i]
    count = 0
    while count < work.block:
        j = _best(gain, g, free, at, side, n)
        if j < 0:
            break
        if schur[j] < floor[j]:  # the picks so far determine it, or Q is not positive definite
            if schur[j] < -1e-8 * terms.curvature[pool[j]]:
                return -1 - pool[j]
            free[j] = False
            continue
        shift = terms.c + terms.offset[pool[j]]
        _schur_row(M[columns[j]], columns, n, shift, terms.offset, pool, L, count, j)
        L[count, j] = schur[j]
        nu = np.sqrt(schur[j])
        z[count] = g[j] / nu
        least = _eliminate(L[count], nu, z[count], g, schur, gain, n)
        free[j], schur[j] = False, np.inf
        if least < 0.0:
            for k in range(n):
                if free[k] and schur[k] < -1e-8 * terms.curvature[pool[k]]:
                    return -1 - pool[k]
        picks[count] = j
        count += 1
    # Q_SS = T'T with T[a, b] = L[a, picks[b]], and T delta = -z
    feasible = True
    for a in range(count - 1, -1, -1):
        total = -z[a]
        for b in range(a + 1, count):
            total -= L[a, picks[b]] * delta[b]
        delta[a] = total / L[a, picks[a]]
        k = picks[a]
        feasible = feasible and (at[k] + delta[a]) * side[k] >= 0.0
    if not feasible:
        _solve_bounded(L, picks, count, at, side, z, delta)
    for a in range(count):
        picks[a] = pool[picks[a]]
    return count


@compiled()
def _solve_bounded(
    L: Array, picks: Array, count: int, at: Array, side: Array, z: Array, delta: Array
) -> None:
    """Minimise over the block with side * (at + delta) >= 0 by coordinate descent inside it."""
    Q, g = np.empty((count, count)), np.empty(count)
    for a in range(count):  # Q = T'T and g = T'z at delta = 0
        total = 0.0
        for s in range(a + 1):
            total += L[s, picks[a]] * z[s]
        g[a] = total
        for b in range(a + 1):
            dot = 0.0
            for s in range(b + 1):
                dot += L[s, picks[a]] * L[s, picks[b]]
            Q[a, b] = dot
            Q[b, a] = dot
    delta[:count] = 0.0
    start = np.abs(g).max()
    for _ in range(100):
        worst = 0.0
        for a in range(count):
            k = picks[a]
            step = -g[a] / Q[a, a]
            if side[k] != 0.0 and (at[k] + delta[a] + step) * side[k] < 0.0:
                step = -at[k] - delta[a]
            if step != 0.0:
                worst = max(worst, abs(step) * Q[a, a])
                delta[a] += step
                for b in range(count):
                    g[b] += step * Q[a, b]
        if worst <= 1e-3 * start:
            break


@compiled()
def take_step(count: int, terms: SweepTerms, point: SweepPoint, work: SweepWork) -> None:
    """Add delta to the multipliers of the picked rows; leaves out what K adds to r."""
    beta, sums, delta = point.beta, point.sums, work.delta
    for a in range(count):
        i = work.picks[a]
        new = beta[i] + delta[a]
        if terms.sign[i] != 0.0 and new * terms.sign[i] <= 0.0:
            new, delta[a] = 0.0, -beta[i]
        beta[i] = new
        point.r[i] -= terms.ridge[i] * delta[a]
        sums[0] += delta[a]
        sums[1] += terms.offset[i] * delta[a]


@compiled(fastmath=_FAST)
def subtract_rows(rows: Array, slots: Array, delta: Array, r: Array) -> None:
    """r -= sum_a delta[a] rows[slots[a]], four rows at a time."""
    m, count = len(r), len(slots)
    for start in range(0, m, _CHUNK):
        stop = min(start + _CHUNK, m)
        part = r[start:stop]
        a = 0
        while a + 4 <= count:
            r0, r1 = rows[slots[a], start:stop], rows[slots[a + 1], start:stop]
            r2, r3 = rows[slots[a + 2], start:stop], rows[slots[a + 3], start:stop]
            d0, d1, d2, d3 = delta[a], delta[a + 1], delta[a + 2], delta[a + 3]
            for j in range(stop - start):
                part[j] -= d0 * r0[j] + d1 * r1[j] + d2 * r2[j] + d3 * r3[j]
            a += 4
        while a < count:
            r0, d0 = rows[slots[a], start:stop], delta[a]
            for j in range(stop - start):
                part[j] -= d0 * r0[j]
            a += 1


@compiled()
def run_on_matrix(
    K: Array, terms: SweepTerms, point: SweepPoint, work: SweepWork, target: float, budget: int
) -> tuple[int, float, int]:
    """Take steps until sum(s v^2) <= target or `budget` multipliers were updated.

    Return the updates, the last sum(s v^2), and -1 - row where Q is not positive definite.
    """
    used = 0
    while True:
        n, norm = choose(terms, point, work)
        if norm <= target or used >= budget or n == 0:
            return used, norm, 0
        count = solve_block(K, work.pool, n, terms, point, work)
        if count <= 0:
            return used, norm, count
        take_step(count, terms, point, work)
        subtract_rows(K, work.picks[:count], work.delta[:count], point.r)
        used += count


_folder = run_on_matrix.stats.cache_path  # None if nothing can be kept
if _folder is None or not any(Path(_folder).glob("_smo_kernels.run_on_matrix-*.nbi")):
    logging.getLogger("leansvm").warning(
        "solver='smo' is compiled for its first use, which takes some ten seconds%s",
        "" if _folder is None else "; later runs find it ready",
    )
