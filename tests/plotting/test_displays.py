import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import make_moons
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from leansvm.basis import PivotedCholesky
from leansvm.model_selection import basis_path
from leansvm.plotting import SparsityPathDisplay
from tests.plain import PlainSparseLSSVC

X, y = make_moons(200, noise=0.2, random_state=0)
MODEL = PlainSparseLSSVC(10.0, gamma=1.0, n_basis=12, basis="pivoted-cholesky")


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def test_draws_the_path_it_is_given():
    path = basis_path(MODEL, X, y, X_score=X, y_score=y)
    for metric in ("score", "loo", "gcv", "objective"):
        display = SparsityPathDisplay(path).plot(metric=metric)
        assert_allclose(display.line_.get_ydata(), getattr(path, metric))
        assert_allclose(display.line_.get_xdata(), path.sizes)
    assert_allclose(
        SparsityPathDisplay(path).plot(level="percent").line_.get_xdata(), path.sizes / 2
    )


def test_from_estimator_scores_where_it_can():
    _, ax = plt.subplots()
    first = SparsityPathDisplay.from_estimator(MODEL, X, y, ax=ax)
    assert ax.get_ylabel() == "leave-one-out squared error"
    scored = SparsityPathDisplay.from_estimator(
        PlainSparseLSSVC(10.0, n_basis=5, basis=PivotedCholesky()), X, y, X_score=X, y_score=y, lw=3
    )
    assert (first.ax_, first.figure_) == (ax, ax.figure)
    assert scored.ax_ is not ax
    assert scored.ax_.get_ylabel() == "score"
    assert scored.line_.get_linewidth() == 3
    names = [text.get_text() for d in (first, scored) for text in d.ax_.get_legend().get_texts()]
    assert names == ["pivoted-cholesky", "PivotedCholesky"]


def test_says_what_is_wrong():
    path = basis_path(MODEL, X, y)
    with pytest.raises(ValueError, match="X_score"):
        SparsityPathDisplay(path).plot(metric="score")
    with pytest.raises(ValueError, match="metric must be one of"):
        SparsityPathDisplay(path).plot(metric="accuracy")
    with pytest.raises(ValueError, match="level must be"):
        SparsityPathDisplay(path).plot(level="share")
    assert np.all(np.isfinite(path.loo))


def test_paths_of_pipelines_and_frames():
    frame = pd.DataFrame(X, columns=["a", "b"])
    pipeline = make_pipeline(StandardScaler(), MODEL)
    rows = StandardScaler().fit_transform(X)
    display = SparsityPathDisplay.from_estimator(pipeline, frame, y, X_score=frame, y_score=y)
    assert_allclose(display.path.score, basis_path(MODEL, rows, y, X_score=rows, y_score=y).score)
    assert display.ax_.get_legend().get_texts()[0].get_text() == "pivoted-cholesky"
