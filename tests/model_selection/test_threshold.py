"""Thresholds chosen on left-out decision values: those of refitting, and usable as they are."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score, f1_score
from sklearn.model_selection import TunedThresholdClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from leansvm import L2SVC, LSSVC, LowRankLSSVC, ReducedSVC, SparseLSSVC
from leansvm.model_selection import tune_threshold

rng = np.random.default_rng(0)


def rare(n, share=0.08):
    y = rng.random(n) < share
    return rng.normal(size=(n, 3)) + 1.5 * y[:, None], np.where(y, "yes", "no")


X, y = rare(300)
X_TEST, Y_TEST = rare(2000)
SMALL = {"kernel": "rbf", "gamma": 0.2, "n_basis": 40, "random_state": 0}


def test_left_out_values_are_those_of_refitting():
    """The score at the threshold is the best of all thresholds on brute-force left-out values."""
    few, labels = X[:80], np.arange(80) % 4 == 0
    few = few + 1.0 * labels[:, None]
    model = LSSVC(1.0, gamma=0.2).fit(few, labels)
    values = np.empty(80)
    for i in range(80):
        rest = np.arange(80) != i
        values[i] = clone(model).fit(few[rest], labels[rest]).decision_function(few[[i]])[0]
    tuned = tune_threshold(model, "f1")
    best = max(f1_score(labels, values >= t) for t in values)
    assert f1_score(labels, values >= tuned.threshold) == pytest.approx(best)


@pytest.mark.parametrize(
    "model",
    [
        SparseLSSVC(**SMALL),
        LSSVC(),
        L2SVC(),
        ReducedSVC(1.0, **SMALL),
        LowRankLSSVC(n_basis=3, random_state=0),
        make_pipeline(StandardScaler(), SparseLSSVC(**SMALL)),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_tuned_model_predicts_at_once_and_better(model):
    fitted = clone(model).fit(X, y)
    tuned = tune_threshold(fitted, "balanced_accuracy")
    assert tuned.estimator.estimator is fitted
    predicted = tuned.predict(X_TEST)
    assert set(predicted) == {"no", "yes"}
    before = balanced_accuracy_score(Y_TEST, fitted.predict(X_TEST))
    assert balanced_accuracy_score(Y_TEST, predicted) > before + 0.02
    by_folds = TunedThresholdClassifierCV(model, scoring="balanced_accuracy", cv=2).fit(X, y)
    expected = balanced_accuracy_score(Y_TEST, by_folds.predict(X_TEST))
    assert balanced_accuracy_score(Y_TEST, predicted) > expected - 0.05


def test_a_function_sees_labels_and_class_weights_do_not_count():
    def gain(truth, predicted):
        return 5.0 * np.sum((truth == "yes") & (predicted == "yes")) - np.sum(predicted == "yes")

    model = SparseLSSVC(**SMALL).fit(X, y)
    found = tune_threshold(model, gain).threshold
    values = model._left_out[:, 0]
    gains = [gain(y, np.where(values >= t, "yes", "no")) for t in values]
    assert gain(y, np.where(values >= found, "yes", "no")) == max(gains)
    heavy = SparseLSSVC(class_weight={"no": 1.0, "yes": 7.0}, **SMALL).fit(X, y)
    np.testing.assert_allclose(heavy._left_out[:, -1], 1.0)


def test_bad_input_is_named():
    model = SparseLSSVC(**SMALL).fit(X, y)
    for metric in ("f2", "roc_auc", "neg_log_loss", 3):
        with pytest.raises(ValueError, match=f"metric={metric!r}.*balanced_accuracy"):
            tune_threshold(model, metric)
    with pytest.raises(ValueError, match="calibrate=True"):
        tune_threshold(SparseLSSVC(calibrate=False, **SMALL).fit(X, y))
    with pytest.raises(ValueError, match="two classes, got 3"):
        tune_threshold(SparseLSSVC(**SMALL).fit(X, np.arange(300) % 3))
    with pytest.raises(TypeError, match=r"LogisticRegression.*TunedThresholdClassifierCV"):
        tune_threshold(LogisticRegression().fit(X, y))


def test_the_rarer_class_is_the_positive_one_whatever_its_label():
    named = np.where(y == "yes", "fraud", "ok")  # "ok" comes last in the alphabet
    one, other = (SparseLSSVC(1.0, **SMALL).fit(X, labels) for labels in (y, named))
    expected = tune_threshold(one, "f1").predict(X_TEST) == "yes"
    assert 0 < expected.mean() < 0.5
    assert np.array_equal(tune_threshold(other, "f1").predict(X_TEST) == "fraud", expected)
    chosen = tune_threshold(other, "f1", pos_label="ok").predict(X_TEST)
    assert np.mean(chosen == "fraud") < expected.mean()
    with pytest.raises(ValueError, match="pos_label='no' is not one of"):
        tune_threshold(other, "f1", pos_label="no")
