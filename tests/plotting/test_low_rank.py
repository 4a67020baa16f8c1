"""Displays draw what the models say."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from leansvm import LowRankLSSVC, LowRankLSSVR
from leansvm.plotting import LowRankDisplay

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

rng = np.random.default_rng(2)
X = rng.normal(size=(80, 3))
LABELS = X[:, 0] + X[:, 1] > 0


def test_decision_values_functions_and_centres():
    model = LowRankLSSVC(n_basis=3).fit(X, LABELS)
    display = LowRankDisplay.from_estimator(model, X, LABELS, features=(1, 0), grid_resolution=30)
    assert display.figure_ is display.ax_.figure
    assert display.ax_.get_xlabel() == "x1" and display.ax_.get_ylabel() == "x0"
    point = np.median(X, axis=0)
    point[[1, 0]] = display.x0[7], display.x1[11]
    assert_allclose(display.response[11, 7], model.decision_function(point[None])[0])
    assert_allclose(display.functions.max(axis=(1, 2)), 1.0)
    assert_allclose(display.centers, model.centers_[:, [1, 0]])
    assert display.boundary_ is not None
    matplotlib.pyplot.close(display.figure_)


def test_several_classes_regression_and_given_axes():
    _, axes = matplotlib.pyplot.subplots(1, 2)
    many = LowRankLSSVC(n_basis=3).fit(X, np.digitize(X[:, 0], [-0.5, 0.5]))
    display = LowRankDisplay.from_estimator(many, X, ax=axes[0], grid_resolution=20)
    assert display.ax_ is axes[0] and display.boundary_ is None
    assert set(np.unique(display.response)) <= {0, 1, 2}
    regressor = LowRankLSSVR(n_basis=3).fit(X, X[:, 0] ** 2)
    display = LowRankDisplay.from_estimator(regressor, X, X[:, 0] ** 2, ax=axes[1], cmap="magma")
    assert display.n_classes == 0
    matplotlib.pyplot.close("all")


def test_the_two_features_that_matter_most_are_chosen_and_named():
    wide = np.random.default_rng(1).normal(size=(200, 6))
    model = LowRankLSSVC(n_basis=4).fit(wide, wide[:, 4] * wide[:, 1] > 0)
    display = LowRankDisplay.from_estimator(model, wide, grid_resolution=10)
    assert display.feature_names == ("x1", "x4")
    title = display.ax_.get_title()
    assert title == "x1 and x4 matter most; the other 4 held at their medians"
    given = LowRankDisplay.from_estimator(model, wide, features=(0, 2), grid_resolution=10)
    assert given.ax_.get_title() == "The other 4 held at their medians"
    plane = LowRankLSSVC(n_basis=2).fit(wide[:, :2], wide[:, 0] > 0)
    assert LowRankDisplay.from_estimator(plane, wide[:, :2], grid_resolution=10).note == ""
    line = LowRankLSSVC(n_basis=2).fit(wide[:, :1], wide[:, 0] > 0)
    with pytest.raises(ValueError, match="no plane to draw"):
        LowRankDisplay.from_estimator(line, wide[:, :1])
    matplotlib.pyplot.close("all")


def test_bad_features_are_named():
    model = LowRankLSSVC(n_basis=2).fit(X, LABELS)
    for features in ((0, 3), (1, 1), (0,)):
        with pytest.raises(ValueError, match="features must be two different numbers below 3"):
            LowRankDisplay.from_estimator(model, X, features=features)


def test_pipelines_are_drawn_in_the_units_of_the_columns():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X * [10, 1, 3] + 50, columns=["a", "b", "c"])
    model = LowRankLSSVC(n_basis=3)
    pipeline = make_pipeline(StandardScaler(), model).fit(frame, LABELS)
    display = LowRankDisplay.from_estimator(pipeline, frame, LABELS, grid_resolution=7)
    assert display.feature_names == ("a", "b")
    values = frame[["a", "b"]].to_numpy()
    assert_allclose(display.points[0], values)
    assert display.x0[0] < values[:, 0].min() and display.x0[-1] > values[:, 0].max()
    a, b = np.meshgrid(display.x0, display.x1)
    plane = pandas.DataFrame({"a": a.ravel(), "b": b.ravel(), "c": frame["c"].median()})
    assert_allclose(display.response.ravel(), pipeline.decision_function(plane))
    named = LowRankDisplay.from_estimator(pipeline, frame, features=("b", "a"), grid_resolution=7)
    assert (named.ax_.get_xlabel(), named.ax_.get_ylabel()) == ("b", "a")
    with pytest.raises(ValueError, match="names of features"):
        LowRankDisplay.from_estimator(pipeline, frame, features=("a", "other"))
    mixed = make_pipeline(PCA(), model).fit(frame, LABELS)
    display = LowRankDisplay.from_estimator(mixed, frame, features=(0, 1), grid_resolution=7)
    assert display.feature_names == ("pca0", "pca1")


def test_tables_are_drawn_by_the_names_of_their_features():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(
        {"age": rng.normal(40.0, 9.0, 80), "city": rng.choice(["Oslo", "Rome"], 80)}
    )
    y = frame["age"] / 10 + (frame["city"] == "Rome")
    model = LowRankLSSVR(n_basis=2, random_state=0).fit(frame, y)
    display = LowRankDisplay.from_estimator(model, frame, y, grid_resolution=7)
    labels = sorted([display.ax_.get_xlabel(), display.ax_.get_ylabel()])
    assert labels[0] == "age" and labels[1].startswith("city")
