"""The display of learned feature scales."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from leansvm import SparseLSSVC
from leansvm.plotting import FeatureScalesDisplay

SCALES = np.array([0.2, 1.0, 0.0, 0.5])
X = np.random.default_rng(0).normal(size=(60, 4))
Y = X[:, 1] > 0


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def fitted(rows, scales=SCALES):
    model = SparseLSSVC(1.0, kernel="rbf", gamma="scale", n_basis=5, random_state=0).fit(rows, Y)
    model.feature_scales_ = scales
    return model


def labels(display):
    return [label.get_text() for label in display.ax_.get_yticklabels()]


def lengths(display):
    return [bar.get_width() for bar in display.bars_]


def test_the_largest_comes_first_and_is_at_the_top():
    display = FeatureScalesDisplay.from_estimator(fitted(X))
    assert_allclose(lengths(display), [1.0, 0.5, 0.2, 0.0])
    assert labels(display) == ["x1", "x3", "x0", "x2"]
    bottom, top = display.ax_.get_ylim()
    assert bottom > top  # bar 0 is the highest
    assert display.ax_.get_xlim() == (0, 1)
    assert "how quickly" in display.ax_.get_xlabel()
    assert display.ax_.get_ylabel() == ""


def test_names_come_from_the_frame_or_the_caller():
    model = fitted(pd.DataFrame(X, columns=["age", "weight", "id", "height"]))
    assert labels(FeatureScalesDisplay.from_estimator(model))[:2] == ["weight", "height"]
    renamed = FeatureScalesDisplay.from_estimator(model, feature_names=list("abcd"))
    assert labels(renamed) == ["b", "d", "a", "c"]


def test_many_features_are_cut_and_it_says_so():
    display = FeatureScalesDisplay.from_estimator(fitted(X), max_features=2)
    assert labels(display) == ["x1", "x3"]
    assert display.ax_.get_ylabel() == "2 of 4 features"


def test_equal_scales_keep_the_order_of_the_features():
    display = FeatureScalesDisplay(np.full(30, 0.5), [f"x{i}" for i in range(30)])
    assert labels(display.plot(max_features=30)) == [f"x{i}" for i in range(30)]


def test_draws_where_it_is_told_and_passes_options_on():
    _, ax = plt.subplots()
    display = FeatureScalesDisplay.from_estimator(fitted(X), ax=ax, color="red")
    assert (display.ax_, display.figure_) == (ax, ax.figure)
    assert display.bars_[0].get_facecolor() == (1, 0, 0, 1)


def test_says_what_is_wrong():
    plain = SparseLSSVC(1.0, kernel="rbf", gamma="scale", n_basis=5).fit(X, Y)
    with pytest.raises(ValueError, match="fit it with gamma='learn'"):
        FeatureScalesDisplay.from_estimator(plain)
    with pytest.raises(NotFittedError):
        FeatureScalesDisplay.from_estimator(SparseLSSVC())
    with pytest.raises(ValueError, match="2 names for 4 features"):
        FeatureScalesDisplay.from_estimator(fitted(X), feature_names=["a", "b"])
    with pytest.raises(ValueError, match="max_features must be at least 1"):
        FeatureScalesDisplay.from_estimator(fitted(X), max_features=0)


@pytest.mark.parametrize("name", ["$x^{$", "$a$ and $b$", r"\$c$", "5 $"])
def test_names_are_drawn_as_they_are(name):
    display = FeatureScalesDisplay(np.array([1.0]), [name]).plot()
    label = display.ax_.get_yticklabels()[0]
    assert label._preprocess_math(label.get_text()) == (name, False)
    display.figure_.canvas.draw()
    plt.close(display.figure_)


def test_pipelines_name_their_features():
    frame = pd.DataFrame(X, columns=["age", "weight", "id", "height"])
    model = SparseLSSVC(1.0, kernel="rbf", gamma="learn", n_basis=5, random_state=0)
    for rows, first in ((frame, "weight"), (X, "x1")):
        pipeline = make_pipeline(StandardScaler(), model).fit(rows, Y)
        assert labels(FeatureScalesDisplay.from_estimator(pipeline))[0] == first
    nameless = make_pipeline(FunctionTransformer(), model).fit(X, Y)
    assert labels(FeatureScalesDisplay.from_estimator(nameless))[0] == "x1"
