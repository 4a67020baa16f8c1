"""A fit or a batch that fails leaves the estimator as it was before."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.exceptions import NotFittedError

from leansvm import L2SVC, LSSVR, KernelBasis, LowRankLSSVR, ReducedSVR
from tests.plain import PlainSparseLSSVC, PlainSparseLSSVR

rng = np.random.default_rng(0)
X = rng.normal(size=(120, 3))
TARGET = X[:, 0] + X[:, 1] ** 2
LABELS = np.where(X[:, 0] > 0, "yes", "no")


def interrupt(*args):
    raise KeyboardInterrupt


def attributes(model):
    return {name: id(value) for name, value in vars(model).items()}


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (LSSVR(solver="cholesky"), TARGET),
        (L2SVC(solver="active-set"), LABELS),
        (PlainSparseLSSVR(n_basis=20), TARGET),
        (ReducedSVR(1.0, n_basis=20), TARGET),
        (KernelBasis(20, gamma=0.3), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_interrupted_fit_leaves_the_model(model, y):
    model.fit(X, y)
    model.set_params(kernel=interrupt, gamma=0.7, cache_size=50.0)
    before = attributes(model)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:, :2], y)
    assert attributes(model) == before


def test_refused_weights_leave_the_model():
    model = LowRankLSSVR(n_basis=2, tol=10.0).fit(X, TARGET)
    before, values = attributes(model), model.predict(X)
    with pytest.raises(ValueError, match="weight"):
        model.fit(X[:, :2], TARGET, sample_weight=np.zeros(len(X)))
    assert attributes(model) == before
    assert_array_equal(model.predict(X), values)


def test_a_fit_that_does_not_fit_into_memory_leaves_the_model():
    model = LSSVR(gamma=0.3, solver="cholesky").fit(X, TARGET)
    values = model.predict(X)
    with pytest.raises(MemoryError):
        model.set_params(gamma=50.0, cache_size=0.05).fit(X, TARGET)
    assert_array_equal(model.predict(X), values)


def test_batches_do_not_go_on_with_the_parameters_of_a_refused_fit():
    model = PlainSparseLSSVR(1.0, gamma=0.3, n_basis=20, random_state=0).fit(X, TARGET)
    many, targets = rng.normal(size=(1500, 3)), np.ones(1500)
    with pytest.raises(MemoryError):
        model.set_params(gamma=50.0, n_basis=1000, cache_size=1.0).fit(many, targets)
    model.set_params(n_basis=20, cache_size="auto")
    with pytest.raises(ValueError, match=r"gamma=50.0 was 0.3"):
        model.partial_fit(X, TARGET)
    assert model.set_params(gamma=0.3).partial_fit(X, TARGET).score(X, TARGET) > 0.8


def test_a_state_that_cannot_be_solved_leaves_the_model(monkeypatch):
    model = PlainSparseLSSVR(1.0, n_basis=10, random_state=0).fit(X, TARGET)
    other = PlainSparseLSSVR(1.0, n_basis=20, random_state=1).fit(X, TARGET).state()
    before = attributes(model)
    monkeypatch.setattr(PlainSparseLSSVR, "_basis_attributes", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit_from_state(other)
    assert attributes(model) == before


@pytest.mark.parametrize("model", [PlainSparseLSSVC(n_basis=5), L2SVC()], ids=str)
def test_a_first_fit_that_fails_leaves_no_model(model):
    for first in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match="class"):
            first(X, np.zeros(len(X)))
        assert "n_features_in_" not in vars(model)
        with pytest.raises(NotFittedError):
            model.predict(X)


def test_a_basis_that_was_not_found_transforms_nothing():
    basis = KernelBasis(5, gamma="learn")
    with pytest.raises(ValueError, match="pass y"):
        basis.fit(X)
    with pytest.raises(NotFittedError):
        basis.transform(X)
