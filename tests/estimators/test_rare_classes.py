"""`ReducedSVC()`: logistic regression with a learned kernel, for probabilities and rare classes."""

import warnings

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import average_precision_score, log_loss
from sklearn.model_selection import cross_val_score

from leansvm import ReducedSVC, SparseLSSVC


def rare_positives(seed, n_rows=10_000, share=0.0055):
    """Return rows of which those with the largest of a curved, noisy score are positive."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 8))
    score = 1.5 * (X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2])) + X[:, 3] - 0.7 * X[:, 4] ** 2
    score = score + rng.logistic(size=n_rows) / 1.5
    return X, (score >= np.quantile(score, 1 - share)).astype(int)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0])
def test_average_precision_of_55_positives_in_10000(seed):
    X, y = rare_positives(seed)
    assert y.sum() == 55
    new, labels = rare_positives(seed + 1000, n_rows=40_000)
    ours = ReducedSVC(random_state=0).fit(X, y)
    trees = HistGradientBoostingClassifier(random_state=0).fit(X, y)
    shares = [model.predict_proba(new)[:, 1] for model in (ours, trees)]
    precision = [average_precision_score(labels, p) for p in shares]
    assert precision[0] >= precision[1] - 0.02
    assert log_loss(labels, shares[0]) < log_loss(labels, shares[1])
    # calibrated as a whole: the expected number of positives is the true one
    assert abs(shares[0].sum() / labels.sum() - 1) < 0.25


def test_probabilities_of_several_classes_and_their_scores():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 3))
    odds = 2 * np.column_stack([X[:, 0], np.sin(2 * X[:, 1]), np.zeros(900)])
    y = np.argmax(odds + rng.gumbel(size=odds.shape), axis=1)
    model = ReducedSVC(n_basis=60, random_state=0).fit(X[:600], y[:600])
    p = model.predict_proba(X[600:])
    np.testing.assert_array_equal(p.argmax(axis=1), model.predict(X[600:]))
    truth = np.exp(odds) / np.exp(odds).sum(axis=1, keepdims=True)
    assert log_loss(y[600:], p) < log_loss(y[600:], truth[600:]) + 0.06
    scores = cross_val_score(model, X[:300], y[:300], scoring="neg_log_loss", cv=2)
    assert np.isfinite(scores).all()


def test_C_is_that_of_the_lowest_log_loss_of_left_out_rows():
    X, y = rare_positives(0, n_rows=400, share=0.1)
    model = ReducedSVC(kernel="rbf", gamma=0.1, n_basis=30, random_state=0).fit(X, y)
    candidates = np.logspace(-6, 7, 27)
    seen = np.flatnonzero(np.isfinite(model.cv_curve_))
    losses = []
    for C in candidates[seen]:  # one model without each row, on the same basis
        held_out = []
        for i in range(0, 400, 16):
            rest = np.delete(np.arange(400), i)
            one = ReducedSVC(C, "rbf", gamma=0.1, basis=model.support_vectors_)
            held_out.append(one.fit(X[rest], y[rest]).predict_log_proba(X[[i]])[0, y[i]])
        losses.append(-np.mean(held_out))
    assert losses[list(seen).index(np.argmin(abs(candidates - model.C_)))] < min(losses) + 0.02


def test_a_class_that_is_never_predicted_is_told():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 3)), (rng.random(600) < 0.02).astype(int)
    options = {"kernel": "rbf", "gamma": 0.1, "n_basis": 40, "random_state": 0}
    with pytest.warns(UserWarning, match="predicts 0 for every training row"):
        model = SparseLSSVC(**options).fit(X, y)
    assert set(model.predict(X)) == {0}
    separate = X[:, 0] > 1.9  # rare, and found
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SparseLSSVC(**options).fit(X, separate)
