"""`predict_quantiles`: left-out errors in units of a learned spread."""

import numpy as np
import pytest
from sklearn.metrics.pairwise import rbf_kernel

from leansvm import LSSVR
from leansvm.ridge.spread import LocalSpread
from tests.plain import PlainSparseLSSVR

LEVELS = (0.05, 0.5, 0.95)


def uneven_rows(n_rows, seed, kind="level", skewed=False):
    """Return rows and targets whose noise grows with the target, or along a feature."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n_rows, 3))
    f = np.sin(2 * X[:, 0]) + X[:, 1]
    noise = rng.exponential(size=n_rows) - 1 if skewed else rng.normal(size=n_rows)
    sigma = {"level": 0.1 * np.exp(0.6 * f), "feature": 0.1 + 0.2 * np.abs(X[:, 2])}[kind]
    return X, f + sigma * noise


def machine(**options):
    return PlainSparseLSSVR("loo", gamma=0.3, n_basis=80, random_state=0, **options)


@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("kind", ["level", "feature"])
def test_coverage_in_every_quarter_of_the_predictions(kind, skewed):
    X, y = uneven_rows(3000, 0, kind, skewed)
    new, targets = uneven_rows(8000, 1, kind, skewed)
    model = machine().fit(X, y)
    low, middle, high = model.predict_quantiles(new, LEVELS).T
    inside = (low <= targets) & (targets <= high)
    by = {"level": model.predict(new), "feature": np.abs(new[:, 2])}[kind]
    quarter = np.digitize(by, np.quantile(by, [0.25, 0.5, 0.75]))
    coverage = np.array([inside[quarter == k].mean() for k in range(4)])
    np.testing.assert_allclose(coverage, 0.9, atol=0.04)
    for level, found in zip(LEVELS, (low, middle, high), strict=True):
        assert abs(np.mean(targets < found) - level) < 0.03
    ends = model.predict_interval(new, adaptive=True)
    plain = (ends[:, 0] <= targets) & (targets <= ends[:, 1])
    spread = np.ptp([plain[quarter == k].mean() for k in range(4)])
    assert np.ptp(coverage) < 0.4 * spread


def test_even_errors_have_even_widths():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(2000, 2))
    y = X[:, 0] ** 2 + 0.3 * rng.normal(size=2000)
    low, high = machine().fit(X, y).predict_quantiles(X, (0.05, 0.95)).T
    assert np.std(high - low) < 0.1 * np.mean(high - low)
    assert abs(np.mean(high - low) - 2 * 1.645 * 0.3) < 0.06


def test_quantiles_are_in_order_and_in_the_shape_asked_for():
    X, y = uneven_rows(300, 0)
    model = machine().fit(X, y)
    levels = np.linspace(0.01, 0.99, 30)
    found = model.predict_quantiles(X[:20], levels)
    assert found.shape == (20, 30) and np.all(np.diff(found, axis=1) >= 0)
    np.testing.assert_allclose(model.predict_quantiles(X[:20], levels[::-1]), found[:, ::-1])
    assert model.predict_quantiles(X[:20], 0.5).shape == (20, 1)
    two = machine().fit(X, np.column_stack([y, 10 * y]))
    both = two.predict_quantiles(X[:20], levels)
    assert both.shape == (20, 2, 30)
    np.testing.assert_allclose(both[:, 1], 10 * both[:, 0], rtol=1e-6, atol=1e-6)


def test_units_of_the_target_do_not_matter():
    X, y = uneven_rows(300, 0)
    found = machine().fit(X, y).predict_quantiles(X[:9])
    moved = machine().fit(X, 1e3 * y + 50).predict_quantiles(X[:9])
    np.testing.assert_allclose(moved, 1e3 * found + 50, rtol=1e-4)


def test_weights_count_as_copies():
    X, y = uneven_rows(200, 0)
    counts = np.random.default_rng(1).integers(1, 4, 200)
    rows = np.repeat(np.arange(200), counts)
    points = X[:40].copy()
    weighted = PlainSparseLSSVR(5.0, gamma=0.3, basis=points).fit(X, y, sample_weight=counts)
    copied = PlainSparseLSSVR(5.0, gamma=0.3, basis=points).fit(X[rows], y[rows])
    np.testing.assert_allclose(
        weighted.predict_quantiles(X), copied.predict_quantiles(X), rtol=1e-5, atol=1e-6
    )


def test_quantiles_of_errors_are_order_statistics():
    errors = np.random.default_rng(0).normal(size=(41, 2))
    levels = np.array([0.05, 0.3, 0.5, 0.9])
    spread = LocalSpread(None, None, None, None, errors, np.ones(41))
    expected = np.quantile(errors, levels, axis=0, method="weibull").T
    np.testing.assert_allclose(spread.quantiles(levels), expected)


def test_all_rows_as_basis():
    X, y = uneven_rows(600, 0)
    new, targets = uneven_rows(4000, 1)
    low, high = LSSVR("loo", gamma=0.3).fit(X, y).predict_quantiles(new, (0.05, 0.95)).T
    assert abs(np.mean((low <= targets) & (targets <= high)) - 0.9) < 0.04


@pytest.mark.parametrize("levels", [(0.0, 0.5), 1.0, [], "half", [[0.5]], [np.nan], None])
def test_bad_quantiles_are_refused(levels):
    X, y = uneven_rows(90, 0)
    with pytest.raises(ValueError, match="quantiles must be numbers between 0 and 1"):
        machine().fit(X, y).predict_quantiles(X, levels)


def test_what_cannot_be_known_is_refused():
    X, y = uneven_rows(60, 0)
    with pytest.raises(ValueError, match=r"quantiles: 0.001 needs at least 999 training rows"):
        LSSVR(5.0, gamma=0.3).fit(X, y).predict_quantiles(X, 0.001)
    K = rbf_kernel(X, gamma=0.3)
    with pytest.raises(ValueError, match="predict_quantiles needs k\\(x, x\\) of new rows"):
        LSSVR(5.0, "precomputed").fit(K, y).predict_quantiles(K)
