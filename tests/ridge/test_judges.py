"""What leave-one-out averages to choose C: the curves are those of refitting without each row."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

from leansvm import SparseLSSVC
from tests.plain import PlainSparseLSSVC

rng = np.random.default_rng(0)
X = rng.normal(size=(70, 2))
TWO = np.where(X[:, 0] + 0.8 * rng.normal(size=70) > 0.4, "b", "a")
THREE = np.digitize(X[:, 0] + 0.5 * rng.normal(size=70), [-0.4, 0.5])
WEIGHT = rng.uniform(0.5, 2.0, size=70)
CANDIDATES = [0.01, 0.3, 10.0]


def mean_loss(criterion, f, y, weight):
    """Return the mean loss of decision values, written out for one row at a time."""
    f = np.column_stack([-f, f]) if f.ndim == 1 else f
    rows, two = np.arange(len(y)), f.shape[1] == 2
    own, rest = f[rows, y], f.copy()
    rest[rows, y] = -np.inf
    if criterion == "accuracy":
        margin = own - rest.max(axis=1)
        return np.average(np.clip(0.5 - margin / 1.0, 0, 1), weights=weight)
    losses = []
    for a in np.exp(np.arange(-1.0, 4.1, 0.5)):
        sigma = 1 / (1 + np.exp(-a * f))
        losses.append(np.average(-np.log(sigma[rows, y] / sigma.sum(axis=1)), weights=weight))
    assert not two or np.isfinite(losses).all()
    return min(losses)


@pytest.mark.parametrize(
    ("criterion", "y"),
    [("accuracy", TWO), ("log_loss", THREE)],
    ids=["accuracy-two", "log_loss-three"],
)
@pytest.mark.parametrize("size", [12, 60])  # by sums over rows; nearly all rows: in the dual
def test_curves_are_those_of_refitting(y, criterion, size):
    points = rng.normal(size=(size, 2))
    model = PlainSparseLSSVC(CANDIDATES, gamma=0.5, basis=points, criterion=criterion)
    model.fit(X, y, WEIGHT)
    numbers = np.searchsorted(model.classes_, y)
    for C, found in zip(CANDIDATES, model.cv_curve_, strict=True):
        values = []
        for i in range(70):
            rest = np.arange(70) != i
            other = clone(model).set_params(C=C, criterion="squared", calibrate=False)
            other.fit(X[rest], y[rest], WEIGHT[rest])
            values.append(other.decision_function(X[[i]])[0])
        expected = mean_loss(criterion, np.array(values), numbers, WEIGHT)
        assert_allclose(found, expected, rtol=1e-6)
    assert CANDIDATES[int(np.argmin(model.cv_curve_))] == model.C_


def test_rows_of_zero_weight_do_not_count():
    weight = np.where(np.arange(70) % 5, 1.0, 0.0)
    for criterion in ("accuracy", "log_loss"):
        model = PlainSparseLSSVC("loo", basis=X[:9], criterion=criterion)
        found = clone(model).fit(X, TWO, weight).cv_curve_
        assert_allclose(found, clone(model).fit(X[weight > 0], TWO[weight > 0]).cv_curve_)


def test_what_cannot_be_judged_is_said():
    with pytest.raises(ValueError, match=r"criterion='log_loss' needs C='loo' or a list"):
        SparseLSSVC("gcv", criterion="log_loss").fit(X, TWO)
    with pytest.raises(ValueError, match="partial_fit: criterion='accuracy'"):
        SparseLSSVC(criterion="accuracy", n_basis=5).partial_fit(X, TWO)
    with pytest.raises(ValueError, match="criterion"):
        SparseLSSVC(criterion="auc").fit(X, TWO)
