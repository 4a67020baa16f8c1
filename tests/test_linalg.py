"""The dense kernels against NumPy, around tile boundaries, in place and without large copies."""

from __future__ import annotations

import tracemalloc
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from leansvm.linalg import (
    LAPACK_SAFE_ROWS,
    cholesky_in_place,
    cholesky_solve,
    corner_inverses,
    inverse_diagonal,
    right_divide_in_place,
    right_solve_in_place,
    symmetric_matmul,
)
from leansvm.rows import available_memory
from tests.loops import case

FLOATS = (np.float32, np.float64)
TILE = 16
# below, at and above one, two and three tiles
SIZES = (1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49, 100)
every_path = pytest.mark.parametrize("lapack_rows", [0, 1000], ids=["tiled", "lapack"])


def positive_definite(m, *, seed=0, dtype=np.float64, noise=1.0):
    G = np.random.default_rng(seed).normal(size=(m, m))
    A = G @ G.T / m + noise * np.eye(m)
    return ((A + A.T) / 2).astype(dtype)


def tolerance(dtype):
    return 1e-12 if dtype == np.float64 else 1e-4


# ------------------------------------------------------------------ Cholesky


@every_path
def test_cholesky_equals_numpy(lapack_rows):
    for m, dtype in product(SIZES, FLOATS):
        with case(m=m, dtype=dtype):
            A = positive_definite(m, dtype=dtype)
            work = A.copy()
            assert cholesky_in_place(work, tile=TILE, lapack_rows=lapack_rows) is work
            assert work.dtype == dtype
            expected = np.linalg.cholesky(A.astype(np.float64))
            assert_allclose(np.tril(work), expected, rtol=0, atol=tolerance(dtype))
            # the strict upper triangle still is A's
            assert_array_equal(np.triu(work, 1), np.triu(A, 1))


@every_path
def test_cholesky_reads_the_lower_triangle_only(lapack_rows):
    for m in SIZES:
        with case(m=m):
            A = positive_definite(m)
            work = A.copy()
            upper = np.triu_indices(m, 1)
            work[upper] = np.nan
            cholesky_in_place(work, tile=TILE, lapack_rows=lapack_rows)
            assert_allclose(np.tril(work), np.linalg.cholesky(A), atol=1e-12)
            assert np.isnan(work[upper]).all()


@settings(max_examples=60, deadline=None)
@given(
    m=st.integers(0, 60),
    tile=st.integers(1, 70),
    seed=st.integers(0, 99),
    power=st.integers(-12, 12),
)
def test_cholesky_for_any_size_and_tile(m, tile, seed, power):
    A = positive_definite(m, seed=seed, noise=0.1) * 10.0**power
    work = cholesky_in_place(A.copy(), tile=tile, lapack_rows=0)
    L = np.tril(work)
    assert_allclose(L @ L.T, A, rtol=0, atol=1e-13 * np.abs(A).max(initial=0))
    assert_array_equal(np.triu(work, 1), np.triu(A, 1))


@every_path
def test_not_positive_definite_names_the_row(lapack_rows):
    for row in (0, 5, 15, 16, 17, 40, 49):
        A = positive_definite(50)
        A[row, row] = -1.0
        with pytest.raises(np.linalg.LinAlgError, match=rf"\brow {row}$"):
            cholesky_in_place(A, tile=TILE, lapack_rows=lapack_rows)


@every_path
def test_singular_is_not_positive_definite(lapack_rows):
    # rows 20 and 33 are equal, without rounding: the 33rd pivot is exactly zero
    A = np.eye(40)
    A[33, 20] = A[20, 33] = 1.0
    with pytest.raises(np.linalg.LinAlgError, match=r"\brow 33$"):
        cholesky_in_place(A, tile=TILE, lapack_rows=lapack_rows)


@every_path
def test_no_factor_of_what_is_not_finite(lapack_rows):
    for place, bad in product([(0, 0), (3, 3), (30, 30), (35, 2)], [np.nan, np.inf]):
        A = positive_definite(50)
        A[place] = bad
        refused = pytest.raises((np.linalg.LinAlgError, ValueError))
        with case(place=place, bad=bad), refused:
            cholesky_in_place(A, tile=TILE, lapack_rows=lapack_rows)


@every_path
@pytest.mark.parametrize("layout", ["fortran", "strided", "view"])
def test_other_layouts_are_factored_or_refused(layout, lapack_rows):
    # BLAS would work on a copy: a silent no-op is the one thing that may not happen
    A = positive_definite(40)
    wide = np.zeros((40, 80))
    if layout == "fortran":
        work = np.asfortranarray(A)
    else:
        work = wide[:, ::2] if layout == "strided" else wide[:, :40]
        work[...] = A
    try:
        cholesky_in_place(work, tile=TILE, lapack_rows=lapack_rows)
    except ValueError as error:
        assert "contiguous" in str(error)
    else:
        assert_allclose(np.tril(work), np.linalg.cholesky(A), atol=1e-12)


def peak_bytes(function):
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("lapack_rows", [0, 5000], ids=["tiled", "lapack"])
def test_everything_happens_in_place(lapack_rows):
    m, tile = 1500, 64
    A = positive_definite(m)
    diagonal, V = A.diagonal().copy(), np.ones((m, 2))
    panel = 8 * m * tile
    assert peak_bytes(lambda: cholesky_in_place(A, tile=tile, lapack_rows=lapack_rows)) < 3 * panel
    assert peak_bytes(lambda: cholesky_solve(A, V)) < panel
    assert peak_bytes(lambda: symmetric_matmul(A, diagonal, V)) < panel
    assert peak_bytes(lambda: inverse_diagonal(A, tile=tile)) < 3 * panel


# ------------------------------------------------------------------ what the factor is for


@every_path
def test_solve(lapack_rows):
    for m, dtype in product(SIZES, FLOATS):
        with case(m=m, dtype=dtype):
            check_solve(m, dtype, lapack_rows)


def check_solve(m, dtype, lapack_rows):
    A = positive_definite(m, dtype=dtype)
    B = np.random.default_rng(1).normal(size=(m, 3)).astype(dtype)
    factor = cholesky_in_place(A.copy(), tile=TILE, lapack_rows=lapack_rows)
    before = factor.copy(), B.copy()
    X = cholesky_solve(factor, B)
    expected = np.linalg.solve(A.astype(np.float64), B.astype(np.float64))
    assert X.dtype == dtype
    assert X.flags.c_contiguous
    assert_allclose(X, expected, rtol=0, atol=10 * tolerance(dtype))
    for layout in (np.asfortranarray(B), np.repeat(B, 2, axis=1)[:, ::2]):
        kept = layout.copy()
        assert_allclose(cholesky_solve(factor, layout), X, rtol=0, atol=1e-5)
        assert_array_equal(layout, kept)
    assert_array_equal(factor, before[0])
    assert_array_equal(B, before[1])


def test_symmetric_matmul():
    for m, dtype in product(SIZES, FLOATS):
        with case(m=m, dtype=dtype):
            check_symmetric_matmul(m, dtype)


def check_symmetric_matmul(m, dtype):
    A = positive_definite(m, dtype=dtype)
    V = np.random.default_rng(1).normal(size=(m, 3)).astype(dtype)
    factor = cholesky_in_place(A.copy(), tile=TILE, lapack_rows=0)
    before = factor.copy(), V.copy()
    product = symmetric_matmul(factor, A.diagonal(), V)
    assert_allclose(product, A @ V, rtol=0, atol=10 * tolerance(dtype))
    # another diagonal: K from the factor of K + D
    other = np.arange(m, dtype=dtype)
    expected = (A - np.diag(A.diagonal()) + np.diag(other)) @ V
    assert_allclose(
        symmetric_matmul(factor, other, V), expected, rtol=0, atol=1e3 * tolerance(dtype)
    )
    assert_array_equal(factor, before[0])
    assert_array_equal(V, before[1])


def test_one_right_hand_side_as_a_vector():
    A = positive_definite(20)
    v = np.arange(20.0)
    factor = cholesky_in_place(A.copy())
    assert_allclose(cholesky_solve(factor, v), np.linalg.solve(A, v))
    assert_allclose(symmetric_matmul(factor, A.diagonal(), v), A @ v)


def test_no_right_hand_side():
    factor = cholesky_in_place(positive_definite(20))
    empty = np.empty((20, 0))
    assert cholesky_solve(factor, empty).shape == (20, 0)
    assert symmetric_matmul(factor, np.ones(20), empty).shape == (20, 0)


def test_inverse_diagonal():
    for m, dtype, tile in product(SIZES, FLOATS, [1, 16, 512]):
        with case(m=m, dtype=dtype, tile=tile):
            A = positive_definite(m, dtype=dtype)
            factor = cholesky_in_place(A.copy(), tile=TILE, lapack_rows=0)
            before = factor.copy()
            diagonal = inverse_diagonal(factor, tile=tile)
            assert diagonal.shape == (m,)
            expected = np.linalg.inv(A.astype(np.float64)).diagonal()
            assert_allclose(diagonal, expected, rtol=10 * tolerance(dtype))
            assert_array_equal(factor, before)


@settings(max_examples=40, deadline=None)
@given(
    m=st.integers(1, 50),
    tile=st.integers(1, 20),
    seed=st.integers(0, 99),
    scales=st.integers(0, 4),
)
def test_identities_of_the_factor(m, tile, seed, scales):
    # badly scaled rows: D A D with D over many orders of magnitude
    rng = np.random.default_rng(seed)
    A = positive_definite(m, seed=seed)
    scale = 10.0 ** rng.uniform(-scales, scales, size=m)
    A *= scale[:, None] * scale
    factor = cholesky_in_place(A.copy(), tile=tile, lapack_rows=0)
    X = rng.normal(size=(m, 2)) / scale[:, None]
    B = symmetric_matmul(factor, A.diagonal(), X)
    assert_allclose(cholesky_solve(factor, B) * scale[:, None], X * scale[:, None], atol=1e-10)
    inverse = cholesky_solve(factor, np.eye(m))
    assert_allclose(inverse_diagonal(factor, tile=tile), inverse.diagonal(), rtol=1e-10)


def test_lapack_is_used_below_the_size_where_it_is_safe():
    # threaded LAPACK was seen to crash the interpreter from 17,000 rows; 14,000 worked
    assert LAPACK_SAFE_ROWS <= 14_000


@pytest.mark.slow
def test_twenty_thousand_rows():
    """A = D + U U' of 3.2 GB, whose solution the Woodbury identity gives exactly."""
    if available_memory() < 6e9:
        pytest.skip("needs 6 GB of free memory for a 3.2 GB matrix")
    m = 20_000
    rng = np.random.default_rng(0)
    D, U = rng.uniform(1.0, 10.0, size=m), rng.normal(size=(m, 5))
    A = np.empty((m, m))
    np.matmul(U, U.T, out=A)
    A[np.diag_indices(m)] += D
    rows = rng.integers(m, size=20)
    before = A[rows]
    B = rng.normal(size=(m, 2))
    # (D + U U')^-1 B = D^-1 B - D^-1 U (I + U' D^-1 U)^-1 U' D^-1 B
    scaled_B, scaled_U = B / D[:, None], U / D[:, None]
    small = np.linalg.solve(np.eye(5) + U.T @ scaled_U, U.T @ scaled_B)
    expected = scaled_B - scaled_U @ small

    assert cholesky_in_place(A) is A
    X = cholesky_solve(A, B)
    assert np.abs(X - expected).max() <= 1e-11 * np.abs(expected).max()
    for row, values in zip(rows, before, strict=True):
        assert_array_equal(A[row, row + 1 :], values[row + 1 :])
    product = symmetric_matmul(A, D + np.einsum("ij,ij->i", U, U), X)
    assert_allclose(product, B, rtol=0, atol=1e-9)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("r", [1, 64, 65, 200])
def test_triangular_solves_from_the_right(r, order):
    rng = np.random.default_rng(0)
    L = np.tril(rng.normal(size=(r, r))) / r**0.5 + 2 * np.eye(r)
    B = np.array(rng.normal(size=(30, r)), order=order)
    corners = corner_inverses(L)
    for known in (None, corners):
        solved = B.copy(order="K")
        right_solve_in_place(solved, L, corners=known)
        assert_allclose(solved @ L.T, B, atol=1e-12)
    divided = B.copy(order="K")
    right_divide_in_place(divided, L, corners)
    assert_allclose(divided @ L, B, atol=1e-12)
