"""Merging equal rows against a dictionary of tuples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from leansvm.rows import MemoryBlocks, merge_equal_rows


def grouped(X, Y, weight):
    """First row, group of every row and weight of every group, one row at a time."""
    X = X.toarray() if sparse.issparse(X) else np.asarray(X)
    first, group, total, numbers = [], [], [], {}
    for i in range(len(weight)):
        if not weight[i] > 0:
            group.append(-1)
            continue
        key = (*X[i].tolist(), *np.asarray(Y)[i].tolist())  # 0.0 == -0.0, with equal hashes
        if key not in numbers:
            numbers[key] = len(first)
            first.append(i)
            total.append(0.0)
        group.append(numbers[key])
        total[numbers[key]] += weight[i]
    return first, group, total


def merge(X, Y, weight):
    return merge_equal_rows(MemoryBlocks(X, Y, weight))


def check(X, Y, weight):
    merged = merge(X, Y, weight)
    first, group, total = grouped(X, Y, weight)
    assert_array_equal(merged.first, first)
    assert_array_equal(merged.group, group)
    assert_allclose(merged.weight, total, rtol=1e-12)
    return merged


VALUES = [0.0, -0.0, 1.0, -1.0, 0.5, 5e-324, 1e300, 0.1 + 0.2, 0.3]


@st.composite
def problems(draw):
    n, d, outputs = draw(st.integers(0, 25)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    values = [v for v in VALUES if dtype == np.float64 or abs(v) < 1e30]
    values = draw(st.lists(st.sampled_from(values), min_size=1, max_size=4))
    with np.errstate(under="ignore"):
        X = draw(hnp.arrays(np.float64, (n, d), elements=st.sampled_from(values))).astype(dtype)
    Y = draw(hnp.arrays(np.float64, (n, outputs), elements=st.sampled_from([-1.0, 0.0, -0.0, 1.0])))
    weight = draw(hnp.arrays(np.float64, n, elements=st.sampled_from([0.0, 1.0, 0.25, 3.0])))
    return X, Y, weight


@settings(max_examples=200, deadline=None)
@given(problem=problems())
def test_dense_rows(problem):
    check(*problem)


@settings(max_examples=200, deadline=None)
@given(problem=problems(), seed=st.integers(0, 99), kind=st.sampled_from(["array", "matrix"]))
def test_csr_rows_with_explicit_zeros_in_any_order(problem, seed, kind):
    X, Y, weight = problem
    rng = np.random.default_rng(seed)
    n, d = X.shape
    data, indices, indptr = [], [], [0]
    for row in X:
        stored = [j for j in rng.permutation(d) if row[j] != 0 or rng.random() < 0.5]
        data += [row[j] for j in stored]
        indices += stored
        indptr.append(len(indices))
    make = sparse.csr_array if kind == "array" else sparse.csr_matrix
    A = make((np.array(data, X.dtype), np.array(indices, np.int32), np.array(indptr)), shape=(n, d))
    merged = check(A, Y, weight)
    assert_array_equal(merged.group, merge(X, Y, weight).group)


def test_csr_entries_stored_in_several_parts():
    # 0.5 + 0.5 in one place is the number 1
    A = sparse.csr_array((np.array([0.5, 0.5, 1.0]), np.array([0, 0, 0]), np.array([0, 2, 3])))
    check(A, np.zeros((2, 1)), np.ones(2))


def test_the_matrix_is_left_as_it_was():
    A = sparse.csr_array(
        (np.array([2.0, 1.0, 0.0, 1.0]), np.array([1, 0, 1, 0]), np.array([0, 2, 4])), shape=(2, 2)
    )
    before = A.data.copy(), A.indices.copy(), A.indptr.copy()
    check(A, np.zeros((2, 1)), np.ones(2))
    for now, then in zip((A.data, A.indices, A.indptr), before, strict=True):
        assert_array_equal(now, then)


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_signed_zeros_are_equal(convert):
    X = convert(np.array([[0.0, 1.0], [-0.0, 1.0], [0.0, -1.0]]))
    Y = np.array([[-0.0], [0.0], [0.0]])
    assert_array_equal(check(X, Y, np.ones(3)).group, [0, 0, 1])


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_different_targets_keep_rows_apart(convert):
    X = convert(np.ones((4, 2)))
    Y = np.array([[1.0, 2.0], [1.0, 3.0], [1.0, 2.0], [2.0, 2.0]])
    merged = check(X, Y, np.array([1.0, 2.0, 4.0, 8.0]))
    assert_array_equal(merged.group, [0, 1, 0, 2])
    assert_array_equal(merged.weight, [5.0, 2.0, 8.0])


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_no_weight_no_group(convert):
    X, Y = convert(np.ones((3, 2))), np.zeros((3, 1))
    merged = check(X, Y, np.zeros(3))
    assert len(merged.first) == len(merged.weight) == 0
    # the first row of positive weight stands for the group
    assert_array_equal(check(X, Y, np.array([0.0, 2.0, 1.0])).first, [1])


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("shape", [(0, 3), (1, 3), (1, 1)])
def test_few_rows(shape, convert):
    check(convert(np.ones(shape)), np.ones((shape[0], 1)), np.ones(shape[0]))


def test_rows_that_are_empty_in_csr():
    check(sparse.csr_array((5, 3)), np.array([[0.0], [0], [1], [0], [1]]), np.ones(5))
    A = sparse.csr_array(np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]))
    check(A, np.zeros((4, 1)), np.ones(4))


def test_layouts():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, size=(40, 3)).astype(float)
    Y = rng.integers(0, 2, size=(40, 1))  # integer classes
    expected = check(X, Y, np.ones(40)).group
    for layout in (np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2], X[::-1].copy()[::-1]):
        assert_array_equal(check(layout, Y, np.ones(40)).group, expected)


def test_columns_do_not_cancel():
    # permuted and shifted columns: a weak hash would take many of these rows for equal
    grid = np.stack(np.meshgrid(*[np.arange(-8.0, 8.0)] * 3), axis=-1).reshape(-1, 3)
    for scale in (1.0, 2.0**-30, 1e-3):
        merged = merge(grid * scale, np.zeros((len(grid), 1)), np.ones(len(grid)))
        assert_array_equal(merged.group, np.arange(len(grid)))
    X, Y = grid[:, :2], grid[:, 2:]
    assert len(merge(X, Y, np.ones(len(grid))).first) == len(grid)


def test_more_rows_than_fit_in_a_tile():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, size=(3000, 2000)).astype(np.float32)
    X[1500:] = X[rng.permutation(1500)]
    weight = rng.uniform(0.5, 1.0, size=3000)
    for data in (X, sparse.csr_array(X)):
        merged = merge(data, np.zeros((3000, 1)), weight)
        assert len(merged.first) == 1500
        assert_array_equal(X[merged.first][merged.group], X)
        assert merged.weight.sum() == pytest.approx(weight.sum())
