"""What holds in every fit also holds in batches and paths of C: memory, threads, messages."""

import warnings

import numpy as np
import pytest
from sklearn import get_config
from sklearn.exceptions import ConvergenceWarning

from leansvm import L2SVC, _parallel
from leansvm.model_selection import c_path
from tests.plain import PlainReducedSVC, PlainSparseLSSVC, PlainSparseLSSVR

rng = np.random.default_rng(0)
X = rng.normal(size=(90, 3))
Y = np.where(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=90) > 0, 1, 0)


class WatchedKernel:
    """A Gaussian kernel that notes the limits it is computed under, and fails where it shall."""

    def __init__(self):
        self.memory, self.limited, self.fails = [], [], False

    def __call__(self, A, B):
        if self.fails:
            raise OverflowError
        self.memory.append(get_config()["working_memory"])
        self.limited.append(len(_parallel._entries) > 0)
        return np.exp(-((A[:, None] - B) ** 2).sum(axis=2))

    def __deepcopy__(self, memo):  # by `clone`
        return self


def fit(model):
    model.fit(X, Y)


def one_batch(model):
    model.partial_fit(X[:50], Y[:50], classes=[0, 1])


def two_batches(model):
    one_batch(model)
    model.kernel.memory.clear()
    model.kernel.limited.clear()
    model.partial_fit(X[50:], Y[50:])


def path(model):
    c_path(model, X, Y, [1.0, 10.0])


WAYS = [
    (L2SVC, fit),
    (L2SVC, one_batch),
    (L2SVC, two_batches),
    (L2SVC, path),
    (PlainSparseLSSVC, one_batch),
    (PlainSparseLSSVC, two_batches),
    (PlainReducedSVC, path),
]


def machine(estimator):
    size = {} if estimator is L2SVC else {"n_basis": 10, "random_state": 0}
    return estimator(1.0, WatchedKernel(), cache_size=8, **size)


@pytest.mark.parametrize(("estimator", "way"), WAYS)
def test_tiles_and_threads_are_limited(estimator, way):
    model = machine(estimator)
    way(model)
    assert set(model.kernel.memory) == {2.0}  # a quarter of cache_size
    assert set(model.kernel.limited) == {True}
    assert get_config()["working_memory"] == 1024 and not _parallel._entries


@pytest.mark.parametrize(("estimator", "way"), WAYS)
def test_numbers_that_are_too_large_say_what_to_do(estimator, way):
    model = machine(estimator)
    if way is two_batches:
        one_batch(model)
        way = one_batch
    model.kernel.fails = True
    with pytest.raises(ValueError, match="too ill-conditioned for float64: lower C"):
        way(model)


@pytest.mark.parametrize("way", [fit, one_batch, two_batches, path])
def test_warnings_name_the_line_of_the_caller(way):
    model = L2SVC(100.0, WatchedKernel(), max_iter=1, solver="active-set")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        way(model)
    caught = [warning for warning in caught if warning.category is ConvergenceWarning]
    assert caught and {warning.filename for warning in caught} == {__file__}
    lines = {number for *_, number in way.__code__.co_lines()}
    lines |= {number for *_, number in one_batch.__code__.co_lines()}
    assert {warning.lineno for warning in caught} <= lines


def test_folds_that_begin_in_a_batch_are_within_the_budget():
    points = np.random.default_rng(1).normal(size=(120, 3))
    model = PlainSparseLSSVR(1.0, basis=points, gamma=0.5, cache_size=2).fit(X, X[:, 0])
    before = model.predict(X)
    with pytest.raises(MemoryError, match=r"A basis of 12\d points.*cache_size"):
        model.set_params(C="kfold").partial_fit(X, X[:, 0])
    np.testing.assert_array_equal(model.predict(X), before)
    model.set_params(C=1.0).partial_fit(X, X[:, 0])
    assert model.n_rows_seen_ == 2 * len(X)
