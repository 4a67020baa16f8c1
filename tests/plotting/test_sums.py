import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_allclose

from leansvm.model_selection import KFoldSums, cross_val_from_sums, learning_curve_from_sums
from leansvm.plotting import GroupErrorsDisplay, LearningCurveDisplay
from tests.plain import PlainSparseLSSVR

rng = np.random.default_rng(0)
X = rng.normal(size=(120, 2))
y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=120)
GROUPS = np.array(["a", "$b$", "c"])[np.arange(120) % 3]
MODEL = PlainSparseLSSVR("gcv", n_basis=15, random_state=0)


@pytest.fixture(autouse=True)
def close():
    yield
    plt.close("all")


def test_bars_are_the_errors_of_the_groups():
    _, ax = plt.subplots()
    display = GroupErrorsDisplay.from_estimator(MODEL, X, y, groups=GROUPS, ax=ax, color="C3")
    found = cross_val_from_sums(MODEL, X, y, folds=KFoldSums(None, groups=GROUPS))
    best = int(np.argmin(found.mean))
    widths = [bar.get_width() for bar in display.bars_]
    assert_allclose(np.square(widths), found.errors[:, best], rtol=1e-9)
    assert_allclose(np.square(display.mean_.get_xdata()), found.mean[best], rtol=1e-9)
    # a name with dollars is no formula
    assert [t.get_text() for t in ax.get_yticklabels()] == [r"\$b\$", "a", "c"]
    assert display.ax_ is ax
    assert display.bars_[0].get_facecolor() == matplotlib.colors.to_rgba("C3")
    other = GroupErrorsDisplay(found).plot(C=found.C[7] * 1.01)
    widths = [bar.get_width() for bar in other.bars_]
    assert_allclose(np.square(widths), found.errors[:, 7], rtol=1e-9)


def test_bars_of_a_fitted_model_need_no_rows():
    model = PlainSparseLSSVR("kfold", n_basis=15, random_state=0).fit(X, y)
    assert len(GroupErrorsDisplay.from_estimator(model).bars_) == 5


def test_curves_are_means_over_the_folds():
    display = LearningCurveDisplay.from_estimator(MODEL, X, y, fractions=[0.5, 1.0], lw=3)
    curve = learning_curve_from_sums(MODEL, X, y, fractions=[0.5, 1.0])
    assert_allclose(display.test_line_.get_xdata(), curve.train_sizes)
    for line, errors in (
        (display.test_line_, curve.test_errors),
        (display.train_line_, curve.train_errors),
    ):
        assert_allclose(line.get_ydata(), np.sqrt(errors).mean(axis=1))
        assert line.get_linewidth() == 3
    edges = display.test_band_.get_paths()[0].vertices[:, 1]
    assert_allclose(
        [edges.min(), edges.max()],
        [np.sqrt(curve.test_errors).min(), np.sqrt(curve.test_errors).max()],
    )
    assert len(LearningCurveDisplay.from_estimator(MODEL, X, y).test_line_.get_xdata()) == 5
