"""Default fits on random problems, beside linear models and beside themselves.

A few examples here; a thousand others by ``make fuzz``.
"""

import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import leansvm
from leansvm import SparseLSSVC, SparseLSSVR
from leansvm.persistence import FitState

LONG = settings.default.max_examples >= 50_000  # as in the profile "slow"
EXAMPLES = 500 if LONG else 2  # of each task
BELOW = 0.05  # how much worse than a linear model a default fit may be


@st.composite
def problems(draw):
    """Return facts of a problem: rows, columns, noise, shape of the target, seed."""
    return {
        "n": draw(st.sampled_from((120, 200, 300))),
        "d": draw(st.integers(1, 6)),
        "noise": draw(st.sampled_from((0.1, 0.5))),
        "target": draw(st.sampled_from(("linear", "sine", "product"))),
        "seed": draw(st.integers(0, 10_000)),
    }


def rows_of(facts):
    """Return training rows, new rows and their targets, numbers of spread 1."""
    rng = np.random.default_rng(facts["seed"])
    n = facts["n"] + 300
    X = rng.normal(size=(n, facts["d"]))
    first, last = X[:, 0], X[:, -1]
    f = {"linear": X.sum(axis=1), "sine": np.sin(2 * first) + last, "product": first * last}
    y = f[facts["target"]] / f[facts["target"]].std() + facts["noise"] * rng.normal(size=n)
    cut = facts["n"]
    return X[:cut], y[:cut], X[cut:], y[cut:]


def mean_error(found, truth):
    """Return the mean squared error; rows far outside count no more than the spread of targets."""
    return np.minimum((found - truth) ** 2, 1.0).mean()


def check_numbers(facts):
    X, y, new, truth = rows_of(facts)
    model = SparseLSSVR(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = model.fit(X, y).predict(new)
        linear = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13))).fit(X, y)
        assert mean_error(found, truth) <= mean_error(linear.predict(new), truth) + BELOW
        order = np.random.default_rng(1).permutation(len(X))
        unit = 2.0 ** np.arange(X.shape[1])
        with threadpool_limits(1):
            assert_close(found, SparseLSSVR(random_state=0).fit(X, y).predict(new), 1e-6)
        scaled = SparseLSSVR(random_state=0).fit(X * unit, y).predict(new * unit)
        others = {
            "units": scaled,
            "order": SparseLSSVR(random_state=0).fit(X[order], y[order]).predict(new),
            "copies": SparseLSSVR(random_state=0)
            .fit(X, y, sample_weight=np.full(len(X), 2.0))
            .predict(new),
            "float32": SparseLSSVR(random_state=0).fit(X.astype(np.float32), y).predict(new),
        }
    for name, other in others.items():
        error = mean_error(other, truth), mean_error(found, truth)
        assert error[0] <= error[1] + BELOW, name  # another sample, but no worse
    check_files(model, X, y, new)


def check_labels(facts):
    X, y, new, truth = rows_of(facts)
    y, truth = y > 0, truth > 0
    if y.all() or not y.any():
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = SparseLSSVC(random_state=0).fit(X, y)
        linear = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    assert model.score(new, truth) >= linear.score(new, truth) - BELOW
    check_files(model, X, y, new)


def check_files(model, X, y, new):
    """Model files and state files give the same model; so do exports where they can be run."""
    values = getattr(model, "decision_function", model.predict)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        model.save(path)
        loaded = leansvm.load(path)
        assert np.array_equal(loaded.predict(new), model.predict(new))
        model.state().save(path)
        again = type(model)(model.C_).fit_from_state(FitState.load(path))
        assert_close(values(new), getattr(again, values.__name__)(new), 1e-5)
    predictor = leansvm.Predictor(model)
    assert_close(values(new), getattr(predictor, values.__name__)(new), 1e-8)


def assert_close(a, b, share):
    assert np.abs(a - b).max() <= share * max(np.std(a), np.abs(a).max(), 1e-12)


@pytest.mark.parametrize("check", [check_numbers, check_labels], ids=["numbers", "labels"])
def test_default_fits(check):
    settings(
        max_examples=EXAMPLES,
        derandomize=not LONG,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )(given(problems())(check))()
