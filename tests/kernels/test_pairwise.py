"""Names of `sklearn.metrics.pairwise`: chi2, cosine, other spellings, and what is refused."""

from __future__ import annotations

import array_api_strict
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.metrics import pairwise

from leansvm.kernels import KERNELS, Kernel

CONVERT = {
    "dense": np.asarray,
    "csr": sparse.csr_array,
    "other library": array_api_strict.asarray,
}
every_form = pytest.mark.parametrize("convert", CONVERT.values(), ids=CONVERT)


def test_every_name_of_scikit_learn_is_taken_or_refused_with_a_reason():
    for name in pairwise.PAIRWISE_KERNEL_FUNCTIONS:
        if name == "additive_chi2":
            with pytest.raises(ValueError, match=r"additive_chi2.*only conditionally.*'chi2'"):
                Kernel(name)
        else:
            assert name in KERNELS
            Kernel(name)


def test_both_spellings_of_poly(points):
    X = points(9, 3)
    one, other = (Kernel(n, gamma=0.3, coef0=1.0) for n in ("poly", "polynomial"))
    assert_array_equal(one.block(X, X), other.block(X, X))
    assert_array_equal(one.diag(X), other.diag(X))


@every_form
@pytest.mark.parametrize("where", ["rows", "points"])
def test_chi2_refuses_negative_features(where, convert, points):
    X, Z = np.abs(points(30, 4)), np.abs(points(5, 4, seed=1))
    (X if where == "rows" else Z)[3, 2] = -1e-9
    with pytest.raises(ValueError, match=r"kernel='chi2' needs features.*>= 0.*rescale X"):
        Kernel("chi2").block(convert(X), convert(Z))


@every_form
def test_chi2_of_features_that_are_0_in_both(convert):
    X = np.array([[0.0, 1.0, 2.0], [0.0, 0.0, 0.0], [0.0, 3.0, 0.0]])
    K = Kernel("chi2", gamma=0.5).block(convert(X), convert(X))
    assert_allclose(np.asarray(K), pairwise.chi2_kernel(X, gamma=0.5), rtol=1e-13)


@every_form
def test_cosine_of_a_row_of_zeros_is_0(convert, points):
    X = points(6, 3)
    X[2] = 0.0
    kernel = Kernel("cosine")
    K = np.asarray(kernel.block(convert(X), convert(X)))
    assert_allclose(K, pairwise.cosine_similarity(X), atol=1e-13)
    assert_array_equal(np.asarray(kernel.diag(convert(X))), [1, 1, 0, 1, 1, 1])


def test_which_kernels_have_a_diagonal_of_ones(name, points, make):
    X = points(20, 3)
    kernel, _ = make(3)
    ones = np.allclose(kernel.block(X, X).diagonal(), 1.0, atol=1e-12)
    assert kernel.has_unit_diagonal == (ones and name != "cosine")
    assert not Kernel("precomputed").has_unit_diagonal
    assert not Kernel(lambda A, B: A @ B.T).has_unit_diagonal
