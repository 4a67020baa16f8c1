"""Partitioning around medoids against all subsets and against the package kmedoids."""

from itertools import combinations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist

from leansvm.low_rank.start import pam


def cost(distances, medoids, weight=None):
    nearest = distances[:, medoids].min(axis=1)
    return float(nearest.sum() if weight is None else weight @ nearest)


@pytest.mark.parametrize("seed", range(8))
def test_no_single_swap_improves_and_the_best_subset_is_near(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(25, 2)) + 4 * rng.integers(0, 3, size=(25, 1))
    D, weight = cdist(X, X), rng.integers(1, 4, size=25).astype(float)
    medoids = pam(D, 3, weight)
    reached = cost(D, medoids, weight)
    for j in range(3):
        for h in range(25):
            assert cost(D, [*np.delete(medoids, j), h], weight) >= reached - 1e-9
    best = min(cost(D, list(subset), weight) for subset in combinations(range(25), 3))
    assert reached <= 1.05 * best


def test_weights_count_as_repetitions():
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(30, 3)), rng.integers(1, 5, size=30)
    repeated = np.repeat(X, weight, axis=0)
    by_weight = X[pam(cdist(X, X), 4, weight.astype(float))]
    by_copies = repeated[pam(cdist(repeated, repeated), 4)]
    assert_allclose(np.unique(by_weight, axis=0), np.unique(by_copies, axis=0))


def test_all_rows_and_one_medoid():
    D = cdist(np.arange(5.0)[:, None], np.arange(5.0)[:, None])
    assert_array_equal(np.sort(pam(D, 5)), np.arange(5))
    assert_array_equal(pam(D, 1), [2])


def test_as_good_as_the_package():
    kmedoids = pytest.importorskip("kmedoids")
    X = np.random.default_rng(3).normal(size=(300, 4))
    D = cdist(X, X)
    theirs = kmedoids.fasterpam(D, 6, random_state=0, n_cpu=1).loss
    assert cost(D, pam(D, 6)) <= 1.02 * theirs
