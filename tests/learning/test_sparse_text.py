"""Wide sparse rows get one gamma or a linear kernel, and no scale for each feature."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from benchmarks.text import documents
from leansvm import SparseLSSVC
from leansvm.learning.sparse_text import _usual_gamma, is_text
from leansvm.probabilities import mapped
from leansvm.rows import MemoryBlocks

X, Y = documents(400, 60)


def test_rows_are_text_if_they_are_sparse_wide_and_mostly_empty():
    assert is_text(MemoryBlocks(X))
    assert not is_text(MemoryBlocks(X.toarray()))
    assert not is_text(MemoryBlocks(X[:, :1000]))
    assert not is_text(MemoryBlocks(sparse.random(50, 1500, 0.2, format="csr", random_state=0)))


@pytest.mark.parametrize("kernel", ["auto", "rbf", "matern32", "laplacian"])
def test_one_number_is_learned(kernel):
    model = SparseLSSVC(kernel=kernel, n_basis=50, random_state=0).fit(X[:200], Y[:200])
    names = ("linear", "rbf") if kernel == "auto" else (kernel,)
    assert model.kernel_ in names and np.ndim(model.gamma_) == 0
    assert not hasattr(model, "feature_scales_") and model.clip_ is None
    learning = model.fit_report_["learning"]
    assert "no scale for each feature" in learning["note"]
    assert len(learning["errors"]) == (5 if kernel == "auto" else 4)
    again = SparseLSSVC(kernel=model.kernel_, gamma=model.gamma_, n_basis=50, random_state=0)
    again.fit(X[:200], Y[:200])
    B = getattr(model, "class_map_", None)  # a given kernel combines no classes
    found = mapped(again.decision_function(X), B)
    assert_allclose(found, model.decision_function(X), rtol=1e-6, atol=1e-9)


def test_weights_are_repetitions():
    times = np.random.default_rng(0).integers(0, 3, 200)
    rows = np.repeat(np.arange(200), times)
    a, b = (SparseLSSVC(n_basis=50, random_state=0) for _ in range(2))
    a.fit(X[:200], Y[:200], sample_weight=times)
    b.fit(X[rows], Y[rows])
    assert a.kernel_ == b.kernel_
    assert_allclose(a.gamma_, b.gamma_)


def test_gamma_is_one_over_the_mean_squared_distance_of_rows():
    rows = X[:60].toarray()
    apart = np.square(rows[:, None] - rows).sum(axis=2)
    assert_allclose(_usual_gamma(X[:60], "rbf"), 1 / apart.mean())
