"""Validation from sums: folds, groups and learning curves against refitting."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from leansvm.model_selection import KFoldSums, cross_val_from_sums, learning_curve_from_sums
from leansvm.rows import Block, row_hashes
from tests.plain import PlainSparseLSSVC, PlainSparseLSSVR

rng = np.random.default_rng(5)
M = 150
X = rng.normal(size=(M, 3))
THREE = np.digitize(X[:, 0] + 0.3 * rng.normal(size=M), [-0.5, 0.5])
TWO = np.where(X[:, 1] > 0, "yes", "no")
TARGET = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 50
TARGETS = np.column_stack([TARGET, 10 * X[:, 2]])
WEIGHT = rng.uniform(0.3, 2.0, size=M)
GROUPS = np.array(["north", "south", "west", "east"])[rng.integers(0, 4, size=M)]
CASES = {
    "two": (PlainSparseLSSVC, TWO),
    "three": (PlainSparseLSSVC, THREE),
    "one target": (PlainSparseLSSVR, TARGET),
    "two targets": (PlainSparseLSSVR, TARGETS),
}
BIASES = {"free": {}, "penalised": {"bias_penalty": 0.3}, "absent": {"fit_intercept": False}}
OPTIONS = {"gamma": 0.5, "basis": X[:12]}
GRID = [0.1, 10.0, 1e4]


def encoded(model, y):
    """Targets as the model sees them, one column per output."""
    Y = np.asarray(y).reshape(M, -1)
    if isinstance(model, PlainSparseLSSVC):
        classes = np.unique(y)
        Y = np.where(classes == Y, 1.0, -1.0)
        return Y[:, 1:] if len(classes) == 2 else Y
    return Y.astype(float)


def error_of(model, y, weight, C, fit_on, test_on):
    """Mean squared error per output on some rows of the model fitted on others."""
    fitted = clone(model).set_params(C=C).fit(X[fit_on], y[fit_on], sample_weight=weight[fit_on])
    f = fitted.decision_function if isinstance(model, PlainSparseLSSVC) else fitted.predict
    residual = encoded(model, y)[test_on] - f(X[test_on]).reshape(len(X[test_on]), -1)
    return np.average(residual**2, axis=0, weights=weight[test_on])


def hashes_of(model, y):
    return row_hashes(Block(0, M, X, encoded(model, y), None))


# ---------------------------------------------------------------------------- folds


@pytest.mark.parametrize(("estimator", "y"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("bias", BIASES.values(), ids=BIASES)
def test_errors_of_groups_are_those_of_refitting(estimator, y, bias):
    model = estimator(1.0, **OPTIONS, **bias)
    folds = KFoldSums(None, groups=GROUPS)
    found = cross_val_from_sums(model, X, y, folds=folds, C=GRID, sample_weight=WEIGHT)
    assert not hasattr(model, "support_")  # cloned, not fitted
    assert found.names == ["east", "north", "south", "west"]
    for f, name in enumerate(found.names):
        out = name == GROUPS
        assert_allclose(found.weight[f], WEIGHT[out].sum(), rtol=1e-12)
        for k, C in enumerate(GRID):
            expected = error_of(model, y, WEIGHT, C, ~out, out)
            assert_allclose(found.by_output[f, :, k], expected, rtol=1e-8)
            assert_allclose(found.errors[f, k], expected.sum(), rtol=1e-8)
    assert_allclose(found.mean, found.weight @ found.errors / found.weight.sum(), rtol=1e-12)
    assert found.best_C == GRID[int(np.argmin(found.mean))]


def test_the_sums_of_a_fitted_model_are_enough():
    folds = KFoldSums(3, groups=GROUPS)
    model = PlainSparseLSSVR(folds, **OPTIONS).fit(X, TARGETS, sample_weight=WEIGHT)
    found = cross_val_from_sums(model)
    assert_allclose(found.mean, model.cv_curve_, rtol=1e-12)
    assert found.best_C == model.C_
    added = cross_val_from_sums(
        PlainSparseLSSVR("gcv", **OPTIONS), X, TARGETS, folds=folds, sample_weight=WEIGHT
    )
    assert_allclose(added.errors, found.errors, rtol=1e-9)
    assert added.names == found.names
    assert sorted(", ".join(found.names).split(", ")) == ["east", "north", "south", "west"]
    by_hash = cross_val_from_sums(PlainSparseLSSVR("kfold", **OPTIONS).fit(X, TARGETS))
    assert by_hash.names == ["0", "1", "2", "3", "4"]


def test_copies_of_a_row_in_two_groups_stay_in_their_groups():
    rows, twice = np.vstack([X, X]), np.concatenate([TARGET, TARGET])
    groups = np.repeat([0, 1], M)
    model = PlainSparseLSSVR("loo", gamma=0.5, n_basis="auto", random_state=0)  # merges copies
    found = cross_val_from_sums(model, rows, twice, folds=KFoldSums(None, groups=groups), C=GRID)
    fitted = model.fit(rows, twice)
    for k, C in enumerate(GRID):
        half = PlainSparseLSSVR(C, gamma=0.5, basis=fitted.support_vectors_).fit(X, TARGET)
        expected = np.mean((TARGET - half.predict(X)) ** 2)
        assert_allclose(found.errors[:, k], expected, rtol=1e-7)
    grouped = model.set_params(C=KFoldSums(None, groups=groups)).fit(rows, twice)
    C = np.logspace(-6, 7, 50)[25]
    half = PlainSparseLSSVR(C, gamma=0.5, basis=grouped.support_vectors_).fit(X, TARGET)
    assert_allclose(grouped.cv_curve_[25], np.mean((TARGET - half.predict(X)) ** 2), rtol=1e-7)


def test_a_fold_without_rows_has_no_error():
    few = np.flatnonzero(hashes_of(PlainSparseLSSVR(), TARGET) % np.uint64(5) != 2)
    model = PlainSparseLSSVR("kfold", **OPTIONS).fit(X[few], TARGET[few])
    found = cross_val_from_sums(model)
    assert np.isnan(found.errors[2]).all()
    assert not np.isnan(np.delete(found.errors, 2, axis=0)).any()
    assert_allclose(found.mean, model.cv_curve_)


def test_what_cannot_be_validated_is_said():
    plain = PlainSparseLSSVR(1.0, **OPTIONS).fit(X, TARGET)
    with pytest.raises(ValueError, match="have no folds"):
        cross_val_from_sums(plain)
    with pytest.raises(ValueError, match="not fitted"):
        cross_val_from_sums(PlainSparseLSSVR())
    with pytest.raises(ValueError, match="already have folds"):
        cross_val_from_sums(plain, folds=KFoldSums(3))
    with pytest.raises(ValueError, match="C must hold"):
        cross_val_from_sums(plain, X, TARGET, C=[-1.0])
    with pytest.raises(ValueError, match="one entry per row"):
        cross_val_from_sums(plain, X, TARGET, folds=KFoldSums(2, groups=GROUPS[:5]))


def test_validation_keeps_to_its_budget():
    wide = PlainSparseLSSVR(
        1.0, gamma=0.5, basis=np.random.default_rng(1).normal(size=(150, 3)), cache_size=8
    )
    wide.fit(X, TARGET)
    one_out = KFoldSums(None, groups=np.arange(M) % 75)
    with pytest.raises(MemoryError, match="cache_size"):
        cross_val_from_sums(wide, X, TARGET, folds=one_out)
    with pytest.raises(MemoryError, match="A learning curve with 375 sums of 152 columns"):
        learning_curve_from_sums(wide, X, TARGET, folds=one_out, fractions=[0.2, 0.4, 0.6, 0.8])


# ---------------------------------------------------------------------------- learning curves


@pytest.mark.parametrize(("estimator", "y"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("grouped", [False, True], ids=["hashed", "groups"])
def test_learning_curves_are_those_of_refitting(estimator, y, grouped):
    model, fractions = estimator(1.0, **OPTIONS), [0.4, 0.7, 1.0]
    folds = KFoldSums(None, groups=GROUPS) if grouped else KFoldSums(3)
    curve = learning_curve_from_sums(
        model, X, y, fractions=fractions, folds=folds, C=GRID, sample_weight=WEIGHT
    )
    assert not hasattr(model, "support_")
    hashes = hashes_of(model, y)
    fold = np.unique(GROUPS, return_inverse=True)[1] if grouped else hashes % np.uint64(3)
    place = (hashes >> np.uint64(11)).astype(float) / 2.0**53
    for k, share in enumerate(fractions):
        sizes = []
        for f in range(curve.test_errors.shape[1]):
            out, fit_on = fold == f, (fold != f) & (place < share)
            C = curve.C[k]
            tested = error_of(model, y, WEIGHT, C, fit_on, out).sum()
            trained = error_of(model, y, WEIGHT, C, fit_on, fit_on).sum()
            assert_allclose(curve.test_errors[k, f], tested, rtol=1e-8)
            assert_allclose(curve.train_errors[k, f], trained, rtol=1e-8)
            sizes.append(WEIGHT[fit_on].sum())
        assert_allclose(curve.train_sizes[k], np.mean(sizes), rtol=1e-12)
    assert_array_equal(curve.fractions, fractions)
    assert (np.diff(curve.train_sizes) > 0).all()


def test_every_size_takes_its_own_best_C():
    model = PlainSparseLSSVR("gcv", **OPTIONS)
    curve = learning_curve_from_sums(model, X, TARGET, fractions=[0.3, 0.8])
    grid = np.logspace(-6, 7, 50)
    assert np.isin(curve.C, grid).all()
    for k, share in enumerate(curve.fractions):
        for C in grid[::7]:
            single = learning_curve_from_sums(model, X, TARGET, fractions=[share], C=[C])
            weights = cross_val_from_sums(model, X, TARGET, C=[C]).weight
            best = np.average(curve.test_errors[k], weights=weights)
            assert best <= np.average(single.test_errors[0], weights=weights) * (1 + 1e-9)
    # the end of the curve is cross-validation
    whole = learning_curve_from_sums(model, X, TARGET, fractions=[1.0], C=[3.0])
    assert_allclose(
        whole.test_errors[0], cross_val_from_sums(model, X, TARGET, C=[3.0]).errors[:, 0], rtol=1e-9
    )


def test_weights_are_repetitions():
    copies = np.random.default_rng(1).integers(1, 4, size=M)
    model = PlainSparseLSSVR(1.0, **OPTIONS)
    weighted = learning_curve_from_sums(model, X, TARGET, sample_weight=copies)
    repeated = learning_curve_from_sums(model, np.repeat(X, copies, 0), np.repeat(TARGET, copies))
    assert_allclose(weighted.test_errors, repeated.test_errors, rtol=1e-8)
    assert_allclose(weighted.train_sizes, repeated.train_sizes, rtol=1e-12)


@pytest.mark.parametrize("fractions", [[], [0.0, 1.0], [0.5, 0.5], [0.5, 1.5], [[0.5]]], ids=str)
def test_fractions_must_increase(fractions):
    with pytest.raises(ValueError, match="fractions must be increasing"):
        learning_curve_from_sums(PlainSparseLSSVR(1.0), X, TARGET, fractions=fractions)


def test_a_size_without_rows_is_said():
    with pytest.raises(ValueError, match="none are left to fit on"):
        learning_curve_from_sums(PlainSparseLSSVR(1.0), X, TARGET, fractions=[1e-6, 1.0])
