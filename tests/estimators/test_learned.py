"""gamma="learn" and kernel="auto" as users meet them: attributes, prediction, bad input."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from leansvm import (
    L2SVC,
    LSSVC,
    LSSVR,
    KernelBasis,
    ReducedSVC,
    ReducedSVR,
    SparseLSSVC,
    SparseLSSVR,
)
from leansvm.inspection import novelty
from leansvm.kernels import KERNELS, PER_FEATURE

rng = np.random.default_rng(5)
M = 300
X = rng.normal(size=(M, 6)) * [1.0, 100.0, 1.0, 1e-3, 1.0, 1.0] + [0, 5, 0, 0, 3, 0]
X[:, 4] = 7.0
TARGET = np.sin(2 * X[:, 0]) + (X[:, 1] / 100) ** 2 + 0.05 * rng.normal(size=M)
LABELS = np.where(np.median(TARGET) < TARGET, "up", "down")
LEARNERS = {
    "SparseLSSVC": (SparseLSSVC(kernel="matern32", n_basis=60, random_state=0), LABELS),
    "SparseLSSVR": (SparseLSSVR(kernel="matern32", n_basis=60, random_state=0), TARGET),
    "LSSVC": (LSSVC(kernel="matern32", gamma="learn"), LABELS),
    "LSSVR": (LSSVR(kernel="rbf", gamma="learn", C=10.0), TARGET),
    "L2SVC": (L2SVC(kernel="matern32", gamma="learn"), LABELS),
    "ReducedSVC": (
        ReducedSVC(kernel="laplacian", gamma="learn", n_basis=40, random_state=0),
        LABELS,
    ),
    "ReducedSVR": (ReducedSVR(100.0, gamma="learn", n_basis=60, random_state=0), TARGET),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_every_machine_learns_scales(name):
    model, y = LEARNERS[name]
    model = clone(model).fit(X, y)
    assert model.gamma_.shape == model.feature_scales_.shape == (6,)
    assert model.feature_scales_.max() == 1.0 and model.gamma_[4] == 0.0
    # two features matter, of very different size
    assert set(np.argsort(-model.feature_scales_)[:2]) == {0, 1}
    assert_array_equal(model.support_vectors_, X[model.support_])  # raw rows
    assert model.score(X, y) > 0.85
    assert model.fit_report_["seconds"]["learn"] > 0 and "learning" in model.fit_report_
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict(X), model.predict(X))


def test_a_model_with_the_gamma_that_was_learned_is_the_same_model():
    model = SparseLSSVR(kernel="matern32", n_basis=50, random_state=0).fit(X, TARGET)
    used = model.gamma_ > 0
    assert_array_equal(np.array(model.clip_)[:, used], [X.min(axis=0)[used], X.max(axis=0)[used]])
    given = clone(model).set_params(gamma=model.gamma_).fit(X, TARGET)
    assert_allclose(given.predict(X), model.predict(X), rtol=1e-9)
    assert not hasattr(given, "feature_scales_")


@pytest.mark.parametrize("kernel", ["auto", "matern32"])
def test_predictions_end_at_the_edge_of_the_training_rows(kernel):
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, size=(300, 3))
    target = np.sin(3 * rows[:, 0]) * np.cos(2 * rows[:, 1]) + 4.0
    model = SparseLSSVR(kernel=kernel, n_basis=80, random_state=0).fit(rows, target)
    edge = rows[:50].copy()
    edge[:, 0] = rows[:, 0].max()
    beyond = edge + np.array([5.0, 0.0, 0.0])
    assert_allclose(model.predict(beyond[:10]), model.predict(edge[:10]), rtol=1e-9)
    # but such rows are unlike the training rows, and their intervals are wider
    assert novelty(model, beyond).max() < 0.02 < np.median(novelty(model, rows))
    low, high = model.predict_interval(beyond, adaptive=True).T
    low_at, high_at = model.predict_interval(edge, adaptive=True).T
    assert np.all(high - low > 2 * (high_at - low_at))


def test_clipping_is_part_of_the_model():
    far = X.copy()
    far[0, 0] = 1e6
    model = SparseLSSVR(kernel="matern32", n_basis=50, random_state=0).fit(far, TARGET)
    _, high = model.clip_
    assert high[0] < 1e3
    edge = X[:1].copy()
    edge[0, 0] = high[0]
    beyond = edge.copy()
    beyond[0, 0] = 10 * high[0]
    assert_allclose(model.predict(beyond), model.predict(edge), rtol=1e-12)
    assert model.score(X, TARGET) > 0.8


def test_auto_is_a_mixture():
    model = SparseLSSVC(random_state=0).fit(X, LABELS)
    learning = model.fit_report_["learning"]
    assert set(learning["log_loo"]) == {"rbf", "matern32", "laplacian", "linear"}
    assert set(learning["weights"]) <= set(learning["log_loo"])
    assert model.get_params()["kernel"] == "auto"
    given = SparseLSSVC(gamma=0.5, n_basis=10, random_state=0).fit(X, LABELS)
    assert given.kernel_ == "rbf" and given.gamma_ == 0.5


def test_kernel_basis_learns_with_targets_only():
    features = KernelBasis(30, "matern32", gamma="learn", random_state=0).fit_transform(X, LABELS)
    assert features.shape[0] == M
    with pytest.raises(ValueError, match="needs the targets: pass y"):
        KernelBasis(30, gamma="learn").fit(X)


def own_kernel(A, B):
    return np.exp(-((A[:, None] - B) ** 2).sum(axis=2))


@pytest.mark.parametrize("kernel", ["rbf", "linear", "precomputed", own_kernel])
@pytest.mark.parametrize("machine", [SparseLSSVR, LSSVR, ReducedSVR, KernelBasis])
def test_the_kernel_used_is_named_where_it_was_given(machine, kernel):
    rows = own_kernel(X[:40], X[:40]) if kernel == "precomputed" else X[:40]
    options = {} if machine is LSSVR else {"n_basis": 5, "random_state": 0}
    model = machine(kernel=kernel, gamma=0.5, **options).fit(rows, TARGET[:40])
    assert model.kernel_ is model.kernel and model.clip_ is None
    if machine is not KernelBasis:  # the fit decides, not what is set later
        before = model.predict(rows)
        assert_array_equal(model.set_params(kernel="matern12").predict(rows), before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "rbf", "gamma": [1.0, 2.0]}, "gamma has 2 values, X has 6 features"),
        ({"kernel": "rbf", "gamma": [1.0, 2.0, -1.0, 1.0, 1.0, 1.0]}, ">= 0, got -1.0 for feature"),
        ({"kernel": "rbf", "gamma": [np.nan] * 6}, "finite"),
        ({"kernel": "poly", "gamma": np.ones(6)}, "takes one number as gamma"),
        ({"kernel": "additive_chi2", "gamma": "scale"}, "conditionally positive definite"),
    ],
)
def test_what_cannot_be_learned_is_said(options, message):
    with pytest.raises(ValueError, match=message):
        SparseLSSVC(n_basis=10, **options).fit(X, LABELS)


@pytest.mark.parametrize("kernel", [*KERNELS, own_kernel])
def test_every_kernel_works_without_a_word_about_gamma(kernel):
    rows = own_kernel(X, X) if kernel == "precomputed" else X**2
    model = SparseLSSVC(kernel=kernel, n_basis=30, random_state=0).fit(rows, LABELS)
    assert model.kernel_ is kernel and hasattr(model, "feature_scales_") == (kernel in PER_FEATURE)
    if kernel not in PER_FEATURE:  # nothing but one gamma, as "scale" has it
        scaled = SparseLSSVC(kernel=kernel, gamma="scale", n_basis=30, random_state=0)
        assert_array_equal(
            model.decision_function(rows), scaled.fit(rows, LABELS).decision_function(rows)
        )


@pytest.mark.parametrize("kernel", ["linear", "poly", "precomputed", own_kernel])
def test_a_basis_of_a_kernel_without_scales_needs_no_targets(kernel):
    rows = own_kernel(X, X) if kernel == "precomputed" else X
    learned, scaled = (
        KernelBasis(20, kernel=kernel, gamma=gamma, random_state=0).fit_transform(rows)
        for gamma in ("learn", "scale")
    )
    assert_array_equal(learned, scaled)


def test_one_row_per_class_and_constant_features():
    model = SparseLSSVC(C=1.0).fit(np.array([[0.0, 1.0], [1.0, 0.0]]), ["a", "b"])
    assert np.isfinite(model.decision_function([[0.5, 0.5]])).all()
    constant = SparseLSSVR().fit(np.full((40, 3), 2.0), np.arange(40.0))
    assert_allclose(constant.predict([[2.0, 2.0, 2.0], [9.0, 9.0, 9.0]]), 19.5, rtol=1e-8)
