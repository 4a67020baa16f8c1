"""Class weights are costs of errors: they steer no draw, and rare classes are left out like others.

Sample weights are repetitions, so rows are drawn in proportion to them.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.utils.class_weight import compute_sample_weight

from leansvm import LSSVR, ReducedSVC, SparseLSSVC
from leansvm.basis import RandomBasis
from leansvm.learning.sample import draw_sample
from leansvm.ridge.criteria import rows_inside
from leansvm.rows import MemoryBlocks, WeightedSample

SCALE = {"kernel": "rbf", "gamma": "scale", "random_state": 0}


def rare_class(seed, n_rows=6000, share=0.012, moved=1.2):
    """Return normal rows of which some, moved in three of five features, are positive; a test."""
    rng = np.random.RandomState(seed)
    y = (rng.random_sample(2 * n_rows) < share).astype(int)
    X = rng.normal(size=(2 * n_rows, 5))
    X[y == 1, :3] += moved
    return X[:n_rows], y[:n_rows], X[n_rows:], y[n_rows:]


def check_balanced(seed, machine=SparseLSSVC, **options):
    """Balanced weights must not lose what a fit without weights has, and C must be inside."""
    X, y, new, labels = rare_class(seed)
    plain = machine(**options).fit(X, y)
    balanced = machine(class_weight="balanced", **options).fit(X, y)
    aucs = [roc_auc_score(labels, model.decision_function(new)) for model in (plain, balanced)]
    assert aucs[1] >= aucs[0] - 0.01
    assert 1e-6 < balanced.C_ < 1e7


@pytest.mark.parametrize("seed", range(5))
def test_balanced_weights_do_not_lose_the_rare_class(seed):
    check_balanced(seed, **SCALE)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_balanced_weights_do_not_lose_the_rare_class_by_default(seed):
    check_balanced(seed, random_state=0)


@pytest.mark.slow
def test_scales_learned_from_few_positives():
    found = []
    for seed in range(12):
        rng = np.random.RandomState(seed)
        y = (rng.random_sample(12000) < 0.01).astype(int)
        X = rng.normal(size=(12000, 8))
        X[y == 1, :2] += 1.5
        machines = (
            SparseLSSVC(random_state=0),
            SparseLSSVC(class_weight="balanced", random_state=0),
            LogisticRegression(),
        )
        values = [m.fit(X[:2000], y[:2000]).decision_function(X[2000:]) for m in machines]
        found.append([roc_auc_score(y[2000:], value) for value in values])
    plain, balanced, linear = np.mean(found, axis=0)
    assert plain >= 0.85  # 0.815 with scales that nothing guards
    assert balanced >= linear - 0.03


@pytest.mark.parametrize("machine", [SparseLSSVC, ReducedSVC])
@pytest.mark.parametrize("seed", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2))])
def test_sample_weights_that_put_a_class_into_the_basis(machine, seed):
    X, y, new, labels = rare_class(seed, n_rows=1500)
    weight = compute_sample_weight("balanced", y)
    plain, weighted = machine(**SCALE).fit(X, y), machine(**SCALE).fit(X, y, sample_weight=weight)
    aucs = [roc_auc_score(labels, m.decision_function(new)) for m in (plain, weighted)]
    assert aucs[1] >= aucs[0] - 0.01


@pytest.mark.parametrize(
    "basis",
    ["random", RandomBasis(stratify=True), "random-pivoted-cholesky", "entropy", "medoids"],
    ids=str,
)
@pytest.mark.parametrize("select_on", ["auto", 300])
def test_class_weights_do_not_steer_the_basis(basis, select_on):
    X, y, *_ = rare_class(0, n_rows=600, share=0.1)
    y = np.where(X[:, 4] > 1, 2, y)  # three classes
    plain, weighted = (
        SparseLSSVC(
            1.0,
            kernel="rbf",
            gamma=0.2,
            basis=basis,
            n_basis=30,
            select_on=select_on,
            class_weight=class_weight,
            random_state=0,
        ).fit(X, y)
        for class_weight in (None, {0: 0.5, 1: 40.0, 2: 2.0})
    )
    assert_array_equal(plain.support_, weighted.support_)
    assert not np.allclose(plain.dual_coef_, weighted.dual_coef_)


def test_rows_of_a_class_without_weight_are_not_drawn():
    X, y, *_ = rare_class(0, n_rows=300, share=0.3)
    y = np.where(X[:, 4] > 1, 2, y)
    model = SparseLSSVC(1.0, n_basis=100, class_weight={0: 1.0, 1: 0.0, 2: 3.0}, **SCALE)
    assert not np.any(y[model.fit(X, y).support_] == 1)


def test_the_learning_sample_has_the_classes_as_they_are():
    X, y, *_ = rare_class(0, n_rows=2000, share=0.05)
    Y, by_class = np.where(y == 1, 1.0, -1.0)[:, None], np.array([0.5, 9.5])
    copies = np.where(np.arange(2000) % 3 == 0, 3.0, 1.0)
    plain, weighted = (
        draw_sample(
            MemoryBlocks(X, Y, weight, class_weight=class_weight),
            500,
            np.random.RandomState(0),
            free_bias=False,
            budget=2**30,
        )
        for weight, class_weight in ((copies, None), (copies * by_class[y], by_class))
    )
    assert_array_equal(weighted.Y, plain.Y)
    costs = by_class[(plain.Y[:, 0] > 0).astype(int)]
    assert_allclose(weighted.weight, costs / costs.mean())
    assert_allclose(weighted.unit_weight, plain.unit_weight * costs.mean())


def test_weights_are_repetitions_beside_class_weights():
    X, y, *_ = rare_class(0, n_rows=150, share=0.2)
    copies = np.arange(150) % 3
    options = {"class_weight": {0: 1.0, 1: 4.0}, "kernel": "rbf", "gamma": 0.3, "basis": "all"}
    weighted = SparseLSSVC(**options).fit(X, y, sample_weight=copies)
    repeated = SparseLSSVC(**options).fit(np.repeat(X, copies, axis=0), np.repeat(y, copies))
    assert weighted.C_ == repeated.C_
    assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=1e-8)


def test_basis_rows_of_a_class_with_few_others_count():
    X, y, *_ = rare_class(0, n_rows=1000, share=0.02)
    Y, positives, others = 2.0 * y[:, None] - 1.0, np.flatnonzero(y == 1), np.flatnonzero(y == 0)
    basis = np.concatenate([positives, others[:200]])
    weighted = MemoryBlocks(X, Y, compute_sample_weight("balanced", y))
    assert_array_equal(rows_inside(weighted, basis), others[:200])
    half = basis[len(positives) // 2 :]
    assert_array_equal(rows_inside(weighted, half), half)
    for same in (None, np.full(1000, 2.0)):  # equal weights: rows outside are enough
        assert_array_equal(rows_inside(MemoryBlocks(X, Y, same), basis), basis)
    numbers = MemoryBlocks(X, X[:, :1], compute_sample_weight("balanced", y))
    assert_array_equal(rows_inside(numbers, basis), basis)
    most = np.arange(501)  # less than half is outside: all count
    for blocks in (MemoryBlocks(X, Y), MemoryBlocks(X, Y, np.full(1000, 2.0)), numbers):
        assert len(rows_inside(blocks, most)) == 0 and len(rows_inside(blocks, most[:500])) == 500


def test_draws_by_weight_in_blocks_of_any_size():
    X, y, *_ = rare_class(0, n_rows=700, share=0.1)
    Y, by_class = np.where(y == 1, 1.0, -1.0)[:, None], np.array([1.0, 8.0])
    found = [
        WeightedSample(
            MemoryBlocks(X, Y, by_class[y], class_weight=by_class, tile_rows=tile),
            np.random.RandomState(0),
        ).first(100)
        for tile in (700, 64)
    ]
    assert_array_equal(*found)


def test_c_at_an_end_of_its_values_is_said():
    X = np.random.RandomState(0).uniform(-1, 1, (600, 2))
    with pytest.warns(UserWarning, match=r"C_=1e\+07 is the last value that C='loo' tries"):
        SparseLSSVC(**SCALE).fit(X, X[:, 0] > 0)
    wide = 1e3 * np.random.RandomState(1).normal(size=(80, 60))
    with pytest.warns(UserWarning, match=r"C_=1e-06 .*\(scale the features or the weights\)"):
        SparseLSSVC(kernel="linear", basis="all").fit(wide, wide[:, 0] > 0)
    x = np.random.default_rng(0).normal(size=(80, 2))
    message = "C='gcv' tries, and the criterion still falls there: the targets are without noise"
    with pytest.warns(UserWarning, match=message):
        LSSVR(C="gcv", gamma=0.01).fit(x, np.abs(x[:, 0]))


@pytest.mark.parametrize("targets", ["no noise", "noise"])
def test_c_at_an_end_is_not_said_where_it_is_right(targets, recwarn):
    rng = np.random.RandomState(0)
    X, y = rng.uniform(-1, 1, (600, 2)), rng.randint(0, 2, 600)
    if targets == "no noise":
        X += 10.0 * y[:, None]
    model = SparseLSSVC(**SCALE).fit(X, y)
    assert model.C_ in (1e-6, 1e7) and not len(recwarn)
