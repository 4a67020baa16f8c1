"""Random models on random data: finite values, or an error that says what is wrong.

One thousand examples here; forty-seven thousand others by ``make fuzz``.
"""

import pickle
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from leansvm import persistence
from leansvm.persistence import FitState
from tests.fuzz.cases import Case, cases, rows_targets_weights
from tests.fuzz.running import ALLOWED, HAS_SKOPS, PARTS, alarm, assert_clear, run_examples

EXAMPLES, SHORT = 47_000, 1_000  # of all models together, here and in the profile "slow"
SHARES = {  # of the examples: more where a fit is cheap
    "LSSVC": 0.15,
    "LSSVR": 0.175,
    "L2SVC": 0.175,
    "SparseLSSVC": 0.125,
    "SparseLSSVR": 0.15,
    "ReducedSVC": 0.075,
    "ReducedSVR": 0.075,
    "LowRankLSSVC": 0.0375,
    "LowRankLSSVR": 0.0375,
}


def fitted(case: Case, X, y, weight):
    """Return the model and whether it converged; None where it was refused in clear words."""
    model = case.model()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(X, y, sample_weight=weight)
        except ALLOWED as error:
            assert_clear(error)
            return None, False
    return model, not any(issubclass(w.category, ConvergenceWarning) for w in caught)


def assert_consistent(model, X) -> None:
    """Values are finite; labels and probabilities are those of the decision values."""
    if not hasattr(model, "classes_"):
        assert np.isfinite(model.predict(X)).all()
        return
    values = model.decision_function(X)
    assert np.isfinite(values).all()
    best = (values > 0).astype(int) if values.ndim == 1 else values.argmax(axis=1)
    assert (model.predict(X) == model.classes_[best]).all()
    if hasattr(model, "predict_proba"):
        p = model.predict_proba(X)
        assert np.isfinite(p).all() and np.allclose(p.sum(axis=1), 1)


def assert_same(model, other, X) -> None:
    """Two models are one, to the last bit."""
    assert np.array_equal(model.predict(X), other.predict(X))
    if hasattr(model, "classes_"):
        assert np.array_equal(model.decision_function(X), other.decision_function(X))


def assert_same_from_files(case: Case, model, X, weight) -> None:
    """A model file gives the same model; a state file one with the same values, to rounding."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        if HAS_SKOPS:
            persistence.save(model, path)
            assert_same(model, persistence.load(path), X)
        if not hasattr(model, "state") or not isinstance(case.params["C"], float):
            return
        try:
            state = model.state()
        except ALLOWED as error:  # of a basis that keeps no sums
            assert_clear(error)
            return
        state.save(path)
        again = case.model().fit_from_state(FitState.load(path))
    values = [getattr(m, "decision_function", m.predict)(X) for m in (model, again)]
    # the system is solved again, and its condition may be 1 + C sum(s)
    total = X.shape[0] if weight is None else float(np.sum(weight))
    allowed = 1e-6 + 10 * np.finfo(np.float64).eps * case.params["C"] * total
    least = 1e-9 if hasattr(model, "classes_") else 1e-300  # rounding of targets +-1
    assert np.abs(values[0] - values[1]).max() <= allowed * (least + np.abs(values[0]).max())


def assert_weights_repeat(case: Case, model, X, y, weight) -> None:
    """Whole weights count like copies: the least value of the objective is the same."""
    copies = np.repeat(np.arange(len(weight)), weight.astype(int))
    repeated, converged = fitted(case, X[copies], y[copies], None)
    assert repeated is not None, "refused only when rows are repeated"
    if converged:
        squares = len(copies) if hasattr(model, "classes_") else np.sum(y[copies] ** 2)
        start = 0.5 * model.C_ * squares  # of the model that is zero
        allowed = 1e-4 * abs(model.objective_) + 1e-6 * start
        assert abs(model.objective_ - repeated.objective_) <= allowed


def comparable(case: Case, model, y, weight) -> bool:
    """Whether repeated rows give the same basis, C and memory, and all classes have rows."""
    params, C = case.params, case.params.get("C", 1.0)
    chosen = "Sparse" in case.estimator or "Reduced" in case.estimator
    if "LowRank" in case.estimator or (chosen and params.get("basis") != "all"):
        return False
    if "counts" not in case.data["weight"] or not isinstance(C, float) or C > 1e7:
        return False
    if params.get("regularizer") == "coef":  # copies in the basis share the penalty
        return False
    # where rounding decides what is indefinite
    if params.get("kernel") in ("sigmoid", "poly"):
        return False
    far = case.data["unit"] > 1e6 or case.data["X"] in ("far from zero", "an outlier")
    if params.get("kernel") == "linear" and far:
        return False
    if params.get("max_support") == 2 or params.get("cache_size", "auto") != "auto":
        return False
    axis = 0 if y.ndim > 1 else None  # objects have no axis in NumPy 2.0
    seen = len(np.unique(y[weight > 0], axis=axis)) == len(np.unique(y, axis=axis))
    return seen or not hasattr(model, "classes_")


def examine(case: Case) -> None:
    """Fit and check everything that holds for every model."""
    X, y, weight, new = rows_targets_weights(case.data)
    model, converged = fitted(case, X, y, weight)
    if model is None:
        return
    try:
        assert_consistent(model, new)
    except ALLOWED as error:
        assert_clear(error)
        return
    assert_same(model, pickle.loads(pickle.dumps(model)), new)
    if case.save:
        assert_same_from_files(case, model, new, weight)
    if converged and comparable(case, model, y, weight):
        assert_weights_repeat(case, model, X, y, weight)


def examine_in_time(case: Case) -> None:
    with alarm(), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # values that are not finite are looked for
        examine(case)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("estimator", SHARES)
def test_every_model_on_all_data(estimator, part):
    share = SHARES[estimator]
    check = examine_in_time
    run_examples(check, cases(estimator), int(EXAMPLES * share), short=int(SHORT * share))
