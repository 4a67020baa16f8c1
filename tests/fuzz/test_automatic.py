"""Default fits on random problems, beside linear models and beside themselves.

A few examples here; by ``make fuzz`` nearly three thousand fits, nothing set in any of them.
"""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import leansvm
from leansvm import SparseLSSVC, SparseLSSVR
from leansvm.persistence import FitState
from tests.fuzz.running import HAS_SKOPS, PARTS, assert_close, quiet, run_examples, values_of

EXAMPLES = {"numbers": (240, 1), "labels": (240, 1)}  # seven and five fits each; of quick runs
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


def error_of(model, X, y):
    """Return what a fit is judged by: errors of numbers, or the share of wrong labels."""
    if hasattr(model, "classes_"):
        return 1.0 - model.score(X, y)
    return mean_error(model.predict(X), y)


def variants(kind, X, y, new):
    """Yield name, model and new rows of fits that should be no worse: other units, order, copies.

    What comes first must give the same numbers: it has the same rows in the same order.
    """
    with threadpool_limits(1):
        yield "threads", kind(random_state=0).fit(X, y), new
    with config_context(working_memory=0.05):
        yield "blocks", kind(random_state=0).fit(X, y), new
    unit = 2.0 ** np.arange(X.shape[1])
    yield "units", kind(random_state=0).fit(X * unit, y), new * unit
    order = np.random.default_rng(1).permutation(len(X))
    yield "order", kind(random_state=0).fit(X[order], y[order]), new
    if kind is SparseLSSVR:
        twice = np.full(len(X), 2.0)
        yield "copies", kind(random_state=0).fit(X, y, sample_weight=twice), new
        yield "float32", kind(random_state=0).fit(X.astype(np.float32), y), new


def examine(kind, facts):
    """Compare a default fit with a linear model, with itself, and with what files say of it."""
    X, y, new, truth = rows_of(facts)
    linear = RidgeCV(np.logspace(-3, 3, 13))
    if kind is SparseLSSVC:
        y, truth, linear = y > 0, truth > 0, LogisticRegression()
        if y.all() or not y.any():
            return
    with quiet():
        model = kind(random_state=0).fit(X, y)
        linear = make_pipeline(StandardScaler(), linear).fit(X, y)
        error, values = error_of(model, new, truth), values_of(model, new)
        beside = linear.predict(new)
        wrong = np.mean(beside != truth) if kind is SparseLSSVC else mean_error(beside, truth)
        chance = 3 * np.sqrt(wrong * (1 - wrong) / len(truth)) if kind is SparseLSSVC else 0.0
        assert error <= wrong + BELOW + chance
        for name, other, rows in variants(kind, X, y, new):
            if name in ("threads", "blocks", "units"):
                assert_close(values, values_of(other, rows), 1e-6)
            assert error_of(other, rows, truth) <= error + BELOW, name  # another sample, no worse
        check_files(model, new)


def check_files(model, new):
    """Model files and state files give the same model; so does a predictor."""
    values = values_of(model, new)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        if HAS_SKOPS:
            model.save(path)
            assert np.array_equal(values_of(leansvm.load(path), new), values)
        model.state().save(path)
        again = type(model)(model.C_).fit_from_state(FitState.load(path))
        assert_close(values, values_of(again, new), 1e-5)
    predictor = leansvm.Predictor(model)
    assert_close(values, values_of(predictor, new), 1e-8)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", [SparseLSSVR, SparseLSSVC], ids=list(EXAMPLES))
def test_default_fits(kind, part):
    many, few = EXAMPLES["numbers" if kind is SparseLSSVR else "labels"]
    run_examples(lambda facts: examine(kind, facts), problems(), many, short=few)
