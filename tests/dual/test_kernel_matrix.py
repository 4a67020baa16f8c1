"""Kernel values stored, cached and computed again: always those of the kernel."""

import tracemalloc
from contextlib import nullcontext

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array

from leansvm import L2SVC
from leansvm.dual import DualProblem
from leansvm.dual.kernel_matrix import (
    GrowingRows,
    KernelMatrix,
    RecentRows,
    StoredMatrix,
    sweep_matrix,
    unstored,
    values_between,
)
from leansvm.dual.smo import Quadratic, minimise
from leansvm.kernels import Kernel

TOL = 1e-9
KERNEL = Kernel("rbf", gamma=0.5)
M = 60
X = np.random.default_rng(1).normal(size=(M, 4))
K = KERNEL.block(X, X)
A, B = np.array([3, 59, 3, 0]), np.array([7, 3, 8])
ROW = 8 * M  # bytes


def growing(rows=X, kept=()):
    matrix = GrowingRows(rows, KERNEL)
    for chunk in kept:
        matrix.ensure(np.array(chunk), 10**9)
    return matrix


KINDS = {
    "none kept": lambda rows: KernelMatrix(rows, KERNEL),
    "stored": lambda rows: StoredMatrix(K),
    "stored float32": lambda rows: StoredMatrix(K.astype(np.float32)),
    "recent": lambda rows: RecentRows(rows, KERNEL, 9 * ROW),
    "growing, empty": growing,
    "growing": lambda rows: growing(rows, [[3, 5], [0, 9, 59]]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sparse", [False, True])
def test_every_kind_gives_the_values_of_the_kernel(kind, sparse):
    matrix = KINDS[kind](csr_array(X) if sparse else X)
    slack = 1e-6 if "float32" in kind else 1e-12
    assert matrix.m == M
    assert_allclose(matrix.diag, K.diagonal(), atol=slack)
    assert_allclose(matrix.block(A, B), K[np.ix_(A, B)], atol=slack)
    v = np.random.default_rng(2).normal(size=M)
    v[::3] = 0.0
    assert_allclose(matrix.product(v), K @ v, atol=10 * slack)
    if "growing" not in kind:  # which takes a vector
        V = np.random.default_rng(2).normal(size=(M, 3))
        assert_allclose(matrix.product(V), K @ V, atol=10 * slack)
    if hasattr(matrix, "subtract"):
        assert_allclose(matrix.square(B), K[np.ix_(B, B)], atol=slack)
        r = np.ones(M)
        matrix.subtract(np.array([3, 7, 59]), np.array([1.0, -2.0, 0.5]), r)
        assert_allclose(r, 1 - K[3] + 2 * K[7] - 0.5 * K[59], atol=10 * slack)


def test_growing_rows_keep_within_the_budget_and_compute_each_row_once():
    calls = []

    def counted(P, Q):
        calls.append(len(P) * len(Q))
        return KERNEL.block(P, Q)

    matrix = GrowingRows(X, Kernel(counted))
    matrix.ensure(np.arange(10), 6 * ROW)
    assert matrix.bytes == 6 * ROW
    matrix.ensure(np.arange(6), 10**9)  # all of them are here
    assert calls == [6 * M]
    matrix.ensure(np.arange(10), 6 * ROW)  # full
    assert calls == [6 * M]
    matrix.block(np.arange(6), np.arange(M))
    assert calls == [6 * M]
    assert_allclose(matrix.block(np.arange(10), B), K[:10, B])
    assert calls == [6 * M, 4 * len(B)]


def test_growing_rows_are_extended_by_the_new_values_alone():
    matrix = growing(X[:50], [[3, 5], [0, 9]])
    matrix.extend(X, 10**9)
    assert (matrix.m, matrix.bytes) == (M, 4 * ROW)
    assert_allclose(matrix.block(np.array([3, 9, 55]), B), K[np.ix_([3, 9, 55], B)])
    matrix = growing(X[:50], [[3, 5], [0, 9]])
    matrix.extend(X, 3 * ROW)  # room for the first two
    assert matrix.bytes == 2 * ROW
    assert_allclose(matrix.block(A, B), K[np.ix_(A, B)])


def problem(rows=None, kernel=KERNEL, X=X, budget=10**9):
    count = M if rows is None else len(rows)
    targets, weight = np.ones((count, 1)), np.ones(count)
    return DualProblem(
        X, kernel, targets, weight, 0.0, budget, lambda name: nullcontext(), rows=rows
    )


@pytest.mark.parametrize("given", [False, True], ids=["rows", "precomputed"])
def test_a_problem_opens_its_matrix(given):
    options = {"kernel": Kernel("precomputed"), "X": K} if given else {}
    rows = np.arange(5, 45)
    part = K[np.ix_(rows, rows)]
    some = problem(rows, **options)
    assert_allclose(values_between(some, A[:1], B), part[np.ix_(A[:1], B)])
    taken, stored = sweep_matrix(some)
    assert isinstance(stored, StoredMatrix) and taken.rows is None
    assert some.rows is rows and some.bytes == 0 < taken.bytes  # the first one stays
    assert_allclose(stored.values, part)
    assert_allclose(unstored(taken).product(np.ones(40)), part.sum(axis=1))


def test_a_small_budget_gives_recent_rows():
    whole, _ = sweep_matrix(problem())
    small = problem(budget=whole.bytes - 1)
    assert isinstance(sweep_matrix(small)[1], RecentRows)
    with pytest.raises(MemoryError, match="cache of kernel rows"):
        sweep_matrix(problem(budget=1000))


@pytest.mark.parametrize(
    ("slots", "sparse"), [(1, False), (5, False), (40, False), (1000, False), (40, True)]
)
def test_recent_rows_give_the_solution_of_the_matrix(slots, sparse):
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(100, 4)), rng.uniform(0.5, 2.0, 100)
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=100) > 0.2, 1.0, -1.0)
    kernel = KERNEL
    quadratic = Quadratic(y, 1 / (3.0 * weight), weight, c=1e-4)
    rows = RecentRows(csr_array(X) if sparse else X, kernel, slots * 100 * 8)
    assert 1 <= rows.n_slots + rows.step_rows <= max(slots, 2) + 100 * (slots > 100)
    state = minimise(rows, quadratic, tol=TOL, max_sweeps=500)
    whole = minimise(StoredMatrix(kernel.block(X, X)), quadratic, tol=TOL, max_sweeps=500)
    assert state.status == "done"
    np.testing.assert_allclose(state.beta, whole.beta, atol=1e-7)


def test_recent_rows_evict_the_least_recently_used_rows():
    X = np.random.default_rng(0).normal(size=(10, 4))
    kernel = KERNEL
    K = kernel.block(X, X)
    pool = 8 * (4 * 1) ** 2
    rows = RecentRows(X, kernel, pool + 4 * 10 * 8)
    assert (rows.n_slots, rows.step_rows) == (3, 1)
    f = np.zeros(10)

    def add(*which):
        before = rows.computed
        rows.subtract(np.array(which), -np.ones(len(which)), f)
        return rows.computed - before

    assert add(0, 1, 2) == 3
    assert add(0) == 0
    assert add(3) == 1  # in the place of 1 or 2, the oldest
    assert add(0, 3) == 0
    assert add(4, 5) == 2
    assert add(3) == 0 or add(0) == 0
    assert add(6, 7, 8, 9) == 4  # more than there are slots
    counted = np.zeros(10)
    for which in [(0, 1, 2), (0,), (3,), (0, 3), (4, 5), (3,), (6, 7, 8, 9)]:
        counted[list(which)] += 1
    np.testing.assert_allclose(f, counted @ K)


@pytest.mark.parametrize(("n_classes", "C"), [(2, 1.0), (4, 10.0)])
def test_an_active_set_allocates_no_more_than_its_budget(n_classes, C):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1500, 8))
    values = X[:, 0] * X[:, 1] + X[:, 2] + 0.5 * rng.standard_normal(len(X))
    y = np.digitize(values, np.quantile(values, np.arange(1, n_classes) / n_classes))
    model = L2SVC(C=C, gamma=0.1, solver="active-set", cache_size=32)
    model.fit(X[:300], y[:300])  # loads the compiled swaps
    tracemalloc.start()
    try:
        model.fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 1.05 * 32 * 2**20
