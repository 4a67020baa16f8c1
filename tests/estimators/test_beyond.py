"""Predictions for rows beyond all training rows come with a warning."""

import warnings

import numpy as np
import pytest

import leansvm
from leansvm import SparseLSSVC, SparseLSSVR


@pytest.fixture(scope="module")
def walk():
    """A model of a random walk by its time, and the time that follows."""
    rng = np.random.default_rng(0)
    time = np.arange(300.0)
    X = np.column_stack([time, rng.normal(size=300)])
    model = SparseLSSVR(n_basis=100, random_state=0).fit(X, np.cumsum(rng.normal(size=300)))
    return model, X, X + np.array([300.0, 0.0])


def test_most_rows_beyond_a_feature(walk, tmp_path):
    model, _, later = walk
    with pytest.warns(UserWarning, match="100% of these rows lie outside .* in feature 0"):
        model.predict(later)
    model.save(tmp_path / "model")
    with pytest.warns(UserWarning, match="outside the range"):
        leansvm.load(tmp_path / "model").predict(later)


def test_ordinary_rows_and_a_few_far_ones_are_quiet(walk):
    model, X, later = walk
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(X)
        model.predict(np.vstack([X, later[:50]]))  # 50 of 350: less than 0.1 + 20 / 300
        model.predict(later[:19])  # few rows
        model.predict(X * [1.0, 100.0])  # noise: the model does not look at it


def test_a_quarter_of_the_rows_is_enough(walk):
    model, X, later = walk
    with pytest.warns(UserWarning, match="25% of these rows lie outside"):
        model.predict(np.vstack([X, later[:100]]))


def test_the_least_value_is_not_beyond():
    rng = np.random.default_rng(0)
    X = np.maximum(rng.normal(size=(200, 2)) - 1.5, 0.1) / 3.0  # most values are the least one
    y = np.sin(9 * X[:, 0]) + X[:, 1] ** 2
    model = SparseLSSVR(n_basis=50, random_state=0).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(X)


def test_a_straight_line_goes_on():
    X = np.random.default_rng(0).normal(size=(200, 2))
    model = SparseLSSVR(random_state=0).fit(X, X.sum(axis=1))
    with pytest.warns(UserWarning, match="100% of these .* a straight line.* continue it. Check"):
        assert model.score(X + 100.0, X.sum(axis=1) + 200.0) > 0.99
    few = SparseLSSVR(random_state=0).fit(X[:60], X[:60].sum(axis=1))
    with pytest.warns(UserWarning, match="predictions continue it, up to ten times the range"):
        few.predict(X + 100.0)


def test_a_linear_part_goes_on():
    X = np.random.default_rng(1).normal(size=(500, 3))
    model = SparseLSSVR(random_state=0).fit(X, 5 * X[:, 0] + np.sin(2 * X[:, 1]))
    assert {"linear"} < {part.kernel for part in model.kernel_.parts}
    with pytest.warns(UserWarning, match="the linear part of the kernel continues a trend, up to"):
        model.predict(X + 10.0)


def test_columns_are_named():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"day": np.arange(200.0), "kind": rng.choice(["a", "b"], 200)})
    y = (np.sin(frame["day"] / 9) + (frame["kind"] == "a") > 0.5).to_numpy()
    model = SparseLSSVC(n_basis=60, random_state=0).fit(frame, y)
    with pytest.warns(UserWarning, match="outside the range of the training rows in 'day'"):
        model.predict(frame.assign(day=frame["day"] + 500))
