"""K folds from sums against refitting without every fold."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GroupKFold

from leansvm import SparseLSSVC, SparseLSSVR
from leansvm.model_selection import KFoldSums
from leansvm.rows import Block, MemoryBlocks, row_hashes

rng = np.random.default_rng(3)
M = 150
X = rng.normal(size=(M, 3))
TARGETS = np.column_stack([np.sin(2 * X[:, 0]) + 50, X[:, 1] * X[:, 2]])
LABELS = np.digitize(X[:, 0] + X[:, 1] * X[:, 2], [-0.7, 0.7])
WEIGHT = rng.integers(1, 4, size=M).astype(float)
GROUPS = rng.integers(0, 9, size=M)
POINTS = X[:12]
BIASES = [{}, {"bias_penalty": 0.5}, {"fit_intercept": False}]
OPTIONS = {"kernel": "rbf", "gamma": 0.5, "basis": POINTS}


def folds_of(Y, n_splits):
    block = Block(0, M, X, np.asarray(Y, dtype=float).reshape(M, -1), None)
    return (row_hashes(block) % np.uint64(n_splits)).astype(int)


def refitted(model, y, fold, weight, C):
    """Weighted mean squared error on folds left out, by fitting without them."""
    s = np.ones(M) if weight is None else weight
    total = 0.0
    for f in np.unique(fold):
        rest = clone(model).set_params(C=C).fit(X[fold != f], y[fold != f], s[fold != f])
        predicted = rest.predict(X[fold == f])
        total += np.sum(s[fold == f] @ (y[fold == f] - predicted) ** 2)
    return total / s.sum()


@pytest.mark.parametrize("bias", BIASES, ids=["free", "penalised", "absent"])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_errors_are_those_of_refitting(bias, weight):
    model = SparseLSSVR(C=KFoldSums(4), **OPTIONS, **bias).fit(X, TARGETS, sample_weight=weight)
    grid = np.logspace(-6, 7, 50)
    for k in (20, 30, 40):
        expected = refitted(model, TARGETS, folds_of(TARGETS, 4), weight, grid[k])
        assert_allclose(model.cv_curve_[k], expected, rtol=1e-10)
    assert grid[np.argmax(model.cv_curve_ <= 1.000001 * model.cv_curve_.min())] == model.C_
    assert model.fit_report_["criterion"] == "kfold"


def test_groups_stay_together():
    model = SparseLSSVR(C=KFoldSums(3, groups=GROUPS), **OPTIONS).fit(X, TARGETS)
    fold = model.C.folds_of_groups(M)
    assert len(np.unique(fold)) == 3
    assert all(len(np.unique(fold[g == GROUPS])) == 1 for g in np.unique(GROUPS))
    assert np.ptp(np.bincount(fold)) <= np.bincount(GROUPS).max()
    sizes = sorted(len(test) for _, test in GroupKFold(3).split(X, groups=GROUPS))
    assert_array_equal(np.sort(np.bincount(fold)), sizes)
    grid = np.logspace(-6, 7, 50)
    assert_allclose(model.cv_curve_[30], refitted(model, TARGETS, fold, None, grid[30]), rtol=1e-10)
    one_out = SparseLSSVR(C=KFoldSums(None, groups=GROUPS), **OPTIONS).fit(X, TARGETS)
    expected = refitted(model, TARGETS, GROUPS, None, grid[30])
    assert_allclose(one_out.cv_curve_[30], expected, rtol=1e-10)


def test_weights_are_repetitions():
    copies = WEIGHT.astype(int)
    weighted = SparseLSSVC(C="kfold", **OPTIONS).fit(X, LABELS, sample_weight=WEIGHT)
    rows, labels = np.repeat(X, copies, axis=0), np.repeat(LABELS, copies)
    repeated = SparseLSSVC(C="kfold", **OPTIONS).fit(rows, labels)
    assert_allclose(weighted.cv_curve_, repeated.cv_curve_, rtol=1e-10)
    assert weighted.C_ == repeated.C_


@pytest.mark.parametrize("C", ["loo", "kfold", [0.1, 1.0, 10.0]], ids=str)
def test_batches_are_scored_by_folds(C):
    model = SparseLSSVC(C=C, **OPTIONS)
    for part in np.array_split(np.arange(M), 4):
        model.partial_fit(X[part], LABELS[part], classes=[0, 1, 2])
    assert model.fit_report_["criterion"] == "kfold"
    if isinstance(C, str):
        whole = SparseLSSVC(C="kfold", **OPTIONS).fit(X, LABELS)
        assert_allclose(model.cv_curve_, whole.cv_curve_, rtol=1e-9)
        assert_allclose(model.dual_coef_, whole.dual_coef_, rtol=1e-7, atol=1e-9)


def test_batches_after_a_fit_leave_its_rows_in_every_model():
    model = SparseLSSVR(C="loo", **OPTIONS).fit(X[:100], TARGETS[:100])
    model.partial_fit(X[100:], TARGETS[100:])
    fold = np.full(M, -1)
    fold[100:] = folds_of(TARGETS, 5)[100:]
    grid, total = np.logspace(-6, 7, 50), 0.0
    for f in range(5):
        rest = SparseLSSVR(C=grid[30], **OPTIONS).fit(X[fold != f], TARGETS[fold != f])
        total += np.sum((TARGETS[fold == f] - rest.predict(X[fold == f])) ** 2)
    assert_allclose(model.cv_curve_[30], total / 50, rtol=1e-9)


def test_folds_of_groups_do_not_go_on():
    half = slice(0, 75), slice(75, M)
    by_groups = KFoldSums(3, groups=GROUPS[:75])
    model = SparseLSSVR(C=by_groups, **OPTIONS).partial_fit(X[half[0]], TARGETS[half[0]])
    plain = SparseLSSVR(C=1.0, **OPTIONS).fit(X[half[0]], TARGETS[half[0]])
    for started in (model, plain):
        for C in (by_groups, KFoldSums(None, groups=GROUPS[75:])):
            with pytest.raises(ValueError, match=r"groups cannot be continued.*number or 'gcv'"):
                started.set_params(C=C).partial_fit(X[half[1]], TARGETS[half[1]])
    for C in ("kfold", "loo", KFoldSums(3)):
        with pytest.raises(ValueError, match="groups cannot be continued"):
            model.set_params(C=C).partial_fit(X[half[1]], TARGETS[half[1]])
    model.set_params(C=2.0).partial_fit(X[half[1]], TARGETS[half[1]])  # needs no folds
    whole = SparseLSSVR(C=2.0, **OPTIONS).fit(X, TARGETS)
    assert_allclose(model.predict(X), whole.predict(X), rtol=1e-9)


def test_the_number_of_folds_stays():
    model = SparseLSSVR(C=KFoldSums(10), **OPTIONS).partial_fit(X[:75], TARGETS[:75])
    for C in ("kfold", KFoldSums(7), KFoldSums(1)):
        with pytest.raises(ValueError, match=r"earlier batches have 10.*C=KFoldSums\(10\)"):
            model.set_params(C=C).partial_fit(X[75:], TARGETS[75:])
    model.set_params(C="loo").partial_fit(X[75:], TARGETS[75:])  # means the folds there are
    whole = SparseLSSVR(C=KFoldSums(10), **OPTIONS).fit(X, TARGETS)
    assert_allclose(model.cv_curve_, whole.cv_curve_, rtol=1e-9)
    plain = SparseLSSVR(C=1.0, **OPTIONS).fit(X[:75], TARGETS[:75])
    for C in (KFoldSums(None), KFoldSums(1)):
        with pytest.raises(ValueError, match="n_splits must be an integer >= 2"):
            plain.set_params(C=C).partial_fit(X[75:], TARGETS[75:])


def test_what_cannot_be_split_is_said():
    with pytest.raises(ValueError, match="n_splits must be an integer >= 2"):
        SparseLSSVR(C=KFoldSums(1), **OPTIONS).fit(X, TARGETS)
    with pytest.raises(ValueError, match="one entry per row"):
        SparseLSSVR(C=KFoldSums(3, groups=[1, 2]), **OPTIONS).fit(X, TARGETS)
    with pytest.raises(ValueError, match="must be between 2 and the number of groups"):
        SparseLSSVR(C=KFoldSums(30, groups=GROUPS), **OPTIONS).fit(X, TARGETS)
    fold = folds_of(TARGETS, 2)
    same = np.flatnonzero(fold == 0)[:3]
    few = SparseLSSVR(C=KFoldSums(2), kernel="rbf", gamma=1.0, n_basis=1).fit(
        X[same], TARGETS[same]
    )
    assert few.fit_report_["criterion"] == "gcv"  # nothing to leave out


def test_folds_where_the_rows_are_do_not_depend_on_the_blocks():
    whole = row_hashes(Block(0, M, X, TARGETS, None))
    parts = MemoryBlocks(X, TARGETS, tile_rows=11).map(row_hashes)
    assert_array_equal(np.concatenate(parts), whole)


def test_folds_that_score_nothing_leave_the_first_candidate(monkeypatch):
    from leansvm import SparseLSSVR

    nothing = np.full((1, 1, 50), np.nan), np.ones(1)
    monkeypatch.setattr("leansvm.ridge.primal.errors_of_folds", lambda *_: nothing)
    rows = np.linspace(0.0, 1.0, 20)[:, None]
    model = SparseLSSVR("kfold", "rbf", gamma=1.0, n_basis=5, random_state=0).fit(rows, rows[:, 0])
    assert model.C_ == 1e-6
