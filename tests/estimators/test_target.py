"""target="log" and "quantile": learned on another scale, answered in units of y."""

import pickle

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor

import leansvm
from leansvm import LSSVR, LowRankLSSVR, Predictor, ReducedSVR
from leansvm.persistence import load, save
from tests.plain import PlainSparseLSSVR

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, size=(300, 2))
F = np.sin(2 * X[:, 0]) + X[:, 1]
Y = np.exp(3 * F + RNG.normal(size=300))  # over seven decades
MACHINES = [
    PlainSparseLSSVR("loo", gamma=0.5, n_basis=40, random_state=0),
    LSSVR("loo", gamma=0.5),
    ReducedSVR(1.0, gamma=0.5, n_basis=40, random_state=0),
    LowRankLSSVR(n_basis=4, max_iter=20, random_state=0),
]


@pytest.mark.filterwarnings("ignore:LowRankLSSVR")
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: type(machine).__name__)
def test_log_is_that_of_transformed_targets(machine):
    model = clone(machine).set_params(target="log").fit(X, Y)
    theirs = TransformedTargetRegressor(clone(machine), func=np.log, inverse_func=np.exp)
    np.testing.assert_allclose(model.predict(X), theirs.fit(X, Y).predict(X))
    assert model.score(X, Y) == pytest.approx(theirs.score(X, Y))


@pytest.mark.parametrize("machine", MACHINES[:2], ids=lambda machine: type(machine).__name__)
def test_intervals_and_quantiles_are_mapped_as_they_are(machine):
    model, logs = clone(machine).set_params(target="log").fit(X, Y), clone(machine)
    logs.fit(X, np.log(Y))
    for method in ("predict_interval", "predict_quantiles"):
        expected = np.exp(getattr(logs, method)(X))
        np.testing.assert_allclose(getattr(model, method)(X), expected)
    np.testing.assert_allclose(Y - model.loo_residuals_, np.exp(np.log(Y) - logs.loo_residuals_))


def test_quantile_scores_are_normal_and_go_back():
    two = np.column_stack([Y, -Y])
    model = PlainSparseLSSVR("loo", gamma=0.5, n_basis=40, random_state=0, target="quantile")
    model.fit(X, two)
    values, scores = model._scale[0]
    order = np.argsort(Y)
    np.testing.assert_allclose(values, Y[order])
    np.testing.assert_allclose(scores, norm.ppf((np.arange(300) + 0.5) / 300))
    predicted = model.predict(X)
    assert np.corrcoef(np.log(predicted[:, 0]), F)[0, 1] > 0.95
    np.testing.assert_allclose(predicted[:, 1], -predicted[:, 0], rtol=1e-6)
    # within what was seen
    assert Y.min() <= predicted[:, 0].min() and predicted[:, 0].max() <= Y.max()
    assert np.mean(predicted[:, 0] > Y) == pytest.approx(0.5, abs=0.1)


def test_ties_weights_and_many_values():
    y = np.repeat([1.0, 5.0, 100.0], 100)
    counts = RNG.integers(0, 3, 300)
    rows = np.repeat(np.arange(300), counts)
    options = {"gamma": 0.5, "basis": X[:30].copy(), "target": "quantile"}
    weighted = PlainSparseLSSVR(1.0, **options).fit(X, y, sample_weight=counts)
    copied = PlainSparseLSSVR(1.0, **options).fit(X[rows], y[rows])
    np.testing.assert_allclose(weighted.predict(X), copied.predict(X))
    many = np.linspace(0, 1, 5000) ** 3
    model = PlainSparseLSSVR(1e4, gamma=0.5, n_basis=20, random_state=0, target="quantile")
    rank = np.linspace(-2, 2, 5000)[:, None]
    model.fit(rank, many)
    assert model._scale[0].shape == (2, 1000)
    np.testing.assert_allclose(model.predict(rank), many, atol=0.02)


def test_heavy_tails_are_better_learned_on_another_scale():
    heavy = F + np.where(RNG.random(300) < 0.05, 1e3, 0.0) * RNG.normal(size=300)
    plain, scaled = (
        PlainSparseLSSVR("loo", gamma=0.5, n_basis=40, random_state=0, target=target).fit(X, heavy)
        for target in (None, "quantile")
    )
    assert np.mean(np.abs(scaled.predict(X) - F)) < 0.1 * np.mean(np.abs(plain.predict(X) - F))


def test_files_and_pickles_have_the_scale(tmp_path):
    for target in ("log", "quantile"):
        model = leansvm.SparseLSSVR(1.0, "rbf", gamma=0.5, n_basis=20, random_state=0)
        model.set_params(target=target).fit(X, Y)
        save(model, tmp_path / "model")
        for again in (load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
            np.testing.assert_array_equal(again.predict(X), model.predict(X))
    model.set_params(target=None)  # predictions are those of the fit
    np.testing.assert_array_equal(model.predict(X), again.predict(X))
    assert not np.allclose(model.fit(X, Y).predict(X), again.predict(X))


@pytest.mark.parametrize("target", ["log", "quantile"])
@pytest.mark.parametrize("outputs", [1, 2])
def test_a_predictor_answers_in_units_of_y(target, outputs):
    y = Y if outputs == 1 else np.column_stack([Y, Y[::-1]])
    model = PlainSparseLSSVR(1.0, gamma=0.5, n_basis=20, random_state=0, target=target).fit(X, y)
    predictor = Predictor(model)
    np.testing.assert_allclose(predictor.predict(X), model.predict(X), rtol=1e-9)
    np.testing.assert_allclose(predictor.predict(X[0]), model.predict(X[:1])[0], rtol=1e-9)
    assert np.shape(predictor.predict(X[0])) == np.shape(model.predict(X[:1])[0])


def test_batches_go_on_with_the_scale_of_the_first():
    model = PlainSparseLSSVR(1.0, gamma=0.5, basis=X[:30].copy(), target="log")
    for rows in (slice(0, 150), slice(150, 300)):
        model.partial_fit(X[rows], Y[rows])
    whole = clone(model).fit(X, Y)
    np.testing.assert_allclose(model.predict(X), whole.predict(X), rtol=1e-6)
    with pytest.raises(ValueError, match="target='quantile' was 'log' in the first batch"):
        model.set_params(target="quantile").partial_fit(X, Y)


def test_what_has_no_scale_is_refused(tmp_path):
    model = PlainSparseLSSVR(1.0, gamma=0.5, n_basis=20, random_state=0, target="log")
    for y in (-Y, np.zeros(300)):
        with pytest.raises(ValueError, match="target='log' needs positive targets"):
            model.fit(X, y)
    with pytest.raises(ValueError, match="'target' parameter of PlainSparseLSSVR must be"):
        clone(model).set_params(target="sqrt").fit(X, Y)
    model.fit(X, Y)
    with pytest.raises(ValueError, match="target='log': a state does not contain"):
        model.state()
    np.savetxt(
        tmp_path / "rows.csv", np.column_stack([X, Y]), delimiter=",", header="a,b,y", comments=""
    )
    with pytest.raises(ValueError, match="target='log' needs rows in memory"):
        clone(model).fit(leansvm.open_dataset(tmp_path / "rows.csv", target="y"))
