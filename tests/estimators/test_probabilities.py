"""Probabilities after every fit: of every classifier, wherever its left-out values come from."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score, cross_validate

from leansvm import L2SVC, LSSVC, LowRankLSSVC, ReducedSVC, SparseLSSVC

rng = np.random.default_rng(0)
X = rng.normal(size=(120, 3))
TWO = np.where(X[:, 0] + 0.5 * rng.normal(size=120) > 0.5, "yes", "no")
THREE = np.digitize(X[:, 0] + 0.3 * rng.normal(size=120), [-0.5, 0.5])
SMALL = {"n_basis": 20, "random_state": 0}
GAUSS = {"kernel": "rbf", "gamma": 0.3, **SMALL}
MODELS = [
    SparseLSSVC(**SMALL),
    SparseLSSVC(1.0, **GAUSS),
    SparseLSSVC("kfold", **GAUSS),
    SparseLSSVC("gcv", **GAUSS),
    ReducedSVC(**SMALL),
    ReducedSVC(1.0, loss="squared_hinge", **GAUSS),
    ReducedSVC(1.0, loss="logistic", **GAUSS),
    LSSVC(),
    LSSVC("loo"),
    LSSVC(solver="cg"),
    L2SVC(),
    L2SVC(C=[0.1, 1.0]),
    L2SVC(solver="newton"),
    LowRankLSSVC(n_basis=3, random_state=0),
]


@pytest.mark.usefixtures("short_search")
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_scorers_of_probabilities_work(model):
    cases = (
        (TWO, {"neg_log_loss": -0.6, "roc_auc": 0.85}),
        (TWO == "yes", {"average_precision": 0.8}),
        (THREE, {"neg_log_loss": -0.6, "roc_auc_ovr": 0.85}),
    )
    for y, least in cases:
        found = cross_validate(model, X, y, scoring=list(least), cv=2, error_score="raise")
        for scoring, score in least.items():
            assert found[f"test_{scoring}"].mean() > score
        fitted = clone(model).fit(X, y)
        p = fitted.predict_proba(X)
        assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
        assert_array_equal(fitted.classes_[p.argmax(axis=1)], fitted.predict(X))


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_a_class_with_one_row_has_a_probability(model):
    y = THREE.copy()
    y[7] = 9
    fitted = clone(model).fit(X, y)
    p = fitted.predict_proba(X)
    assert p.shape == (120, 4) and np.isfinite(p).all()
    assert_array_equal(fitted.classes_[p.argmax(axis=1)], fitted.predict(X))


def test_switched_off_ranks_are_still_scored_by_decisions():
    model = SparseLSSVC(1.0, calibrate=False, **GAUSS)
    assert cross_val_score(model, X, TWO, scoring="roc_auc", cv=2).mean() > 0.85
    with pytest.raises(AttributeError, match="predict_proba needs calibrate=True"):
        model.fit(X, TWO).predict_proba(X)


# ---------------------------------------------------------------------------- rows in batches


def left_out(model):
    return model._left_out[:, :-3]


def test_batches_leave_out_their_rows_exactly():
    """A row of the last batch: its decision value in the model of all other rows."""
    model = SparseLSSVC(2.0, kernel="rbf", gamma=0.3, basis=X[:15])
    for rows in (slice(0, 50), slice(50, 100), slice(100, 120)):
        model.partial_fit(X[rows], TWO[rows])
    assert model._left_out.shape == (120, 4)
    for i in (100, 110, 119):
        rest = np.delete(np.arange(120), i)
        other = clone(model).fit(X[rest], TWO[rest])
        assert_allclose(left_out(model)[i], other.decision_function(X[[i]]), rtol=1e-8)
    # earlier rows: left out of what was there then
    whole = clone(model).fit(X, TWO)
    assert_allclose(left_out(model)[100:], left_out(whole)[100:], rtol=1e-8)
    assert model.calibration_scale_ == pytest.approx(whole.calibration_scale_, rel=0.1)


def test_a_stream_that_begins_with_one_row():
    model = SparseLSSVC(1.0, basis=X[:15], kernel="rbf", gamma=0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(X[:1], TWO[:1], classes=["no", "yes"])
    with pytest.raises(NotFittedError, match="one row"):
        model.predict_proba(X)
    assert not hasattr(model, "predict_proba")
    for i in range(1, 40):
        model.partial_fit(X[i : i + 1], TWO[i : i + 1])
    assert_array_equal(model.classes_[model.predict_proba(X).argmax(axis=1)], model.predict(X))


def test_batches_of_the_exact_machine():
    model = L2SVC(gamma=0.3)
    for rows in (slice(0, 50), slice(50, 120)):
        model.partial_fit(X[rows], TWO[rows])
    whole = L2SVC(gamma=0.3).fit(X, TWO)
    assert_allclose(model.predict_proba(X), whole.predict_proba(X), atol=1e-6)


def test_a_state_has_no_rows_to_leave_out():
    fitted = SparseLSSVC(1.0, **GAUSS).fit(X, TWO)
    model = SparseLSSVC(1.0).fit_from_state(fitted.state())
    with pytest.raises(NotFittedError, match=r"from a state.*keep_rows"):
        model.predict_proba(X)
    model.keep_rows(X, TWO)
    assert_allclose(model.predict_proba(X), fitted.predict_proba(X), rtol=1e-6)
