"""Effects, rows, intervals and bars of models whose kernel is a mixture."""

import numpy as np
import pytest

from leansvm import SparseLSSVR
from leansvm.inspection import effects, inspect_rows
from leansvm.kernels import Mixture

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 3))
Y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * RNG.normal(size=90)
_G = np.array([0.5, 0.2, 0.0, 0.3])
MIXTURE = Mixture(
    [(0.5, "rbf", _G), (0.3, "matern32", 2 * _G), (0.2, "linear", _G[:3])],
    clip=(np.full(3, -1.0), np.array([1.0, np.inf, 2.0])),
    knots=[(1, [-1.0, 0.0, 1.0], [-2.0, 0.5, 1.0])],
)


@pytest.fixture(scope="module")
def model():
    return SparseLSSVR(kernel=MIXTURE, n_basis=15, basis="random", random_state=0).fit(X, Y)


def test_effects(model):
    found = effects(model, X, grid_resolution=5)
    for f, grid in enumerate(found.grids):
        wanted = []
        for value in grid:
            rows = X.copy()
            rows[:, f] = value
            wanted.append(model.predict(rows).mean())
        np.testing.assert_allclose(np.ravel(found.average[f]), wanted, rtol=0, atol=1e-10)


def test_rows_and_intervals(model):
    found = inspect_rows(model, X, Y)
    assert len(found.leverage) == len(X)
    low, high = np.moveaxis(np.asarray(model.predict_interval(X)), -1, 0)
    assert np.isfinite(low).all()
    assert (low < high).all()


def test_bars_of_a_learned_mixture():
    pytest.importorskip("matplotlib").use("Agg")
    from leansvm.plotting import FeatureScalesDisplay

    model = SparseLSSVR(n_basis=30, random_state=0).fit(X, Y)
    display = FeatureScalesDisplay.from_estimator(model)
    assert len(display.bars_) == 3
