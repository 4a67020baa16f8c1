"""The pruned LS-SVM: rounds by hand, the three indices, copies and weights."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_iris, make_moons

from leansvm import LSSVC
from leansvm.datasets import make_linear_toy
from leansvm.papers.baselines import PrunedLSSVC


def moons(m=200, noise=0.35, seed=0):
    return make_moons(m, noise=noise, random_state=seed)


def prune_by_hand(X, y, C, gamma, step, trade_off):
    """The loop in terms of LSSVC alone."""
    kept = np.arange(len(X))
    sizes, errors, good = [], [], None
    while True:
        model = LSSVC(C, gamma=gamma, solver="cholesky").fit(X[kept], y[kept])
        sizes.append(len(kept))
        errors.append(1 - model.score(X, y))
        if trade_off * errors[-1] > errors[0] + 1e-12:
            return good, sizes, errors
        good = kept
        count = min(max(1, int(step * len(kept))), len(kept) - 5)
        if count <= 0:
            return good, sizes, errors
        order = np.argsort(np.linalg.norm(model.dual_coef_, axis=0), kind="stable")
        kept = kept[np.sort(order[count:])]


@pytest.mark.parametrize("step, trade_off", [(0.05, 0.75), (0.3, 0.9), (0.1, 1.0)])
@pytest.mark.parametrize("multiclass", [False, True])
def test_rounds_are_those_of_retraining_by_hand(step, trade_off, multiclass):
    X, y = load_iris(return_X_y=True) if multiclass else moons()
    X = X + np.random.default_rng(0).normal(scale=1e-3, size=X.shape)  # no copies
    model = PrunedLSSVC(2.0, gamma=1.0, step=step, trade_off=trade_off).fit(X, y)
    kept, sizes, errors = prune_by_hand(X, y, 2.0, 1.0, step, trade_off)
    assert_array_equal(model.support_, kept)
    assert_array_equal(model.fit_report_["sizes"], sizes)
    assert_allclose(model.fit_report_["errors"], errors, atol=1e-12)
    assert model.n_iter_ == len(sizes) > 2
    assert len(kept) < len(X)


@pytest.mark.parametrize("index", ["train", "loo", "validation"])
def test_result_is_the_dense_model_of_the_rows_that_are_left(index):
    X, y = moons()
    model = PrunedLSSVC(2.0, gamma=1.0, index=index, random_state=0).fit(X, y)
    B = model.support_
    dense = LSSVC(2.0, gamma=1.0).fit(X[B], y[B])
    assert_allclose(model.dual_coef_, dense.dual_coef_, atol=1e-10)
    assert_allclose(model.intercept_, dense.intercept_, atol=1e-10)
    assert_allclose(model.objective_, dense.objective_)


def test_leave_one_out_index_is_that_of_refitting():
    X, y = moons(60)
    model = PrunedLSSVC(2.0, gamma=1.0, index="loo", n_basis=50, trade_off=1e-6).fit(X, y)
    B = model.support_
    wrong = []
    for i in range(60):
        others = B[i != B]
        wrong.append(LSSVC(2.0, gamma=1.0).fit(X[others], y[others]).predict(X[[i]])[0] != y[i])
    assert len(B) == 50
    assert_allclose(model.fit_report_["errors"][-1], np.mean(wrong), atol=1e-12)


def test_validation_rows_are_held_out_of_every_class():
    X, y = moons(300)
    fit = lambda: PrunedLSSVC(  # noqa: E731
        index="validation", validation_fraction=0.4, random_state=0, trade_off=1.0
    ).fit(X, y)
    model = fit()
    assert model.fit_report_["sizes"][0] == 180
    assert_array_equal(model.support_, fit().support_)
    with pytest.raises(ValueError, match="validation_fraction"):
        PrunedLSSVC(index="validation", validation_fraction=0.01).fit(X[:20], y[:20])


def test_stays_above_n_basis():
    X, y = moons()
    for n_basis, expected in ((120, 120), (0.5, 100)):
        model = PrunedLSSVC(gamma=1.0, n_basis=n_basis, trade_off=1e-9).fit(X, y)
        assert len(model.support_) == expected
    assert len(PrunedLSSVC(gamma=1.0, trade_off=1e-9).fit(X, y).support_) == 5


def test_a_perfect_first_model_is_pruned_until_the_first_error():
    X, y = moons(noise=0.05)
    model = PrunedLSSVC(10.0, gamma=2.0).fit(X, y)
    assert model.fit_report_["errors"][0] == 0.0
    assert model.score(X, y) == 1.0
    assert len(model.support_) < 100


def test_weights_count_like_copies():
    X, y = moons(80)
    weight = np.random.default_rng(0).integers(0, 4, len(X))
    weighted = PrunedLSSVC(2.0, gamma=1.0).fit(X, y, sample_weight=weight)
    rows = np.repeat(np.arange(len(X)), weight)
    copies = PrunedLSSVC(2.0, gamma=1.0).fit(X[rows], y[rows])
    assert_array_equal(np.unique(rows[copies.support_]), weighted.support_)
    assert_allclose(copies.decision_function(X), weighted.decision_function(X), atol=1e-10)
    # with a row all its copies stay, and share its coefficient
    assert_array_equal(
        np.bincount(rows[copies.support_], minlength=80)[weighted.support_],
        weight[weighted.support_],
    )
    shared = np.bincount(rows[copies.support_], copies.dual_coef_[0], minlength=80)
    assert_allclose(shared[weighted.support_], weighted.dual_coef_[0], atol=1e-10)


def test_order_of_the_rows_does_not_matter():
    X, y = moons()
    order = np.random.default_rng(0).permutation(len(X))
    straight = PrunedLSSVC(2.0, gamma=1.0).fit(X, y)
    permuted = PrunedLSSVC(2.0, gamma=1.0).fit(X[order], y[order])
    assert_array_equal(np.sort(order[permuted.support_]), straight.support_)


def test_linear_toy_keeps_many_rows():
    """zhou2016, Fig. 3: two points would do, pruning leaves 93 of 400."""
    X, y = make_linear_toy(random_state=0)
    train, test = slice(400), slice(400, None)
    dense = LSSVC(kernel="linear").fit(X[train], y[train])
    for index in ("train", "loo"):
        model = PrunedLSSVC(kernel="linear", index=index).fit(X[train], y[train])
        assert 40 < len(model.support_) < 200
        assert model.score(X[test], y[test]) > dense.score(X[test], y[test]) - 0.02
