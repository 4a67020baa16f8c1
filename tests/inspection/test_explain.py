"""Shapley values are those of all coalitions; they add up to prediction less baseline."""

import pickle
from itertools import combinations
from math import comb

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from leansvm import LSSVR, LowRankLSSVR, ReducedSVC
from leansvm.inspection import _shapley, explain, neighbours
from leansvm.kernels import Mixture
from leansvm.plotting import ExplanationDisplay
from tests.plain import PlainSparseLSSVC, PlainSparseLSSVR


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 2.0, size=(150, 5))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + X[:, 3]


def by_coalitions(predict, x, background, groups):
    """Shapley values by their definition, 2^m predictions for each background row."""
    m = len(groups)
    worth = {}
    for size in range(m + 1):
        for S in combinations(range(m), size):
            moved = background.copy()
            for g in S:
                moved[:, groups[g]] = x[groups[g]]
            worth[S] = predict(moved).mean(axis=0)
    values = []
    for g in range(m):
        total = 0.0
        for size in range(m):
            for S in combinations([h for h in range(m) if h != g], size):
                added = worth[tuple(sorted((*S, g)))] - worth[S]
                total = total + added / (m * comb(m - 1, size))
        values.append(total)
    return np.array(values)


def machine(name="rbf", gamma=0.3, **options):
    return PlainSparseLSSVR(10.0, name, gamma=gamma, n_basis=50, random_state=0, **options)


def assert_adds_up(found, model, X, background, tolerance=1e-10):
    baseline = model.predict(background).mean(axis=0)
    np.testing.assert_allclose(found.baseline, baseline, atol=tolerance)
    np.testing.assert_allclose(found.prediction, model.predict(X), atol=tolerance)
    total = found.baseline + found.contributions.sum(axis=1)
    np.testing.assert_allclose(total, found.prediction, atol=tolerance)


@pytest.mark.parametrize("gamma", ["one", "each"])
@pytest.mark.parametrize("d", [1, 4, 7, 10])
@pytest.mark.parametrize("name", ["rbf", "laplacian", "linear"])
def test_products_are_exact(name, d, gamma):
    rng = np.random.default_rng(d)
    X = rng.normal(size=(90, d))
    y = np.sin(X).sum(axis=1) + X[:, 0] * X[:, -1]
    gamma = 0.3 if gamma == "one" else np.linspace(0.0, 1.0, d) + 0.1 * (d == 1)
    model = machine(name, gamma).fit(X, y)
    background = X[60:80]
    found = explain(model, X[:2], background)
    assert found.method == "exact" and not found.errors.any()
    assert_adds_up(found, model, X[:2], background)
    for i in range(2 if d < 10 else 1):
        expected = by_coalitions(model.predict, X[i], background, [[f] for f in range(d)])
        np.testing.assert_allclose(found.contributions[i], expected, atol=1e-8, rtol=0)


def test_chi2_several_outputs_and_clipped_features(rows):
    X, y = rows
    X = X.copy()
    X[5, 0] = 1e4
    Y = np.column_stack([y, X[:, 3]])
    groups = [[f] for f in range(5)]
    learned = PlainSparseLSSVR(10.0, "laplacian", gamma="learn", n_basis=30, random_state=0).fit(
        X, Y
    )
    assert learned.clip_ is not None
    for model in (learned, machine("chi2").fit(X[10:], Y[10:])):
        found = explain(model, X[:6], X[100:120])
        assert found.contributions.shape == (6, 5, 2)
        assert_adds_up(found, model, X[:6], X[100:120])
        expected = by_coalitions(model.predict, X[5], X[100:120], groups)
        np.testing.assert_allclose(found.contributions[5], expected, atol=1e-8)


def test_more_columns_than_nodes_are_needed_for():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 121))
    model = machine("rbf", 0.02).fit(X, X[:, 0])
    assert _shapley._quadrature(121)[0].shape[0] < 61
    assert_adds_up(explain(model, X[:3], X[40:60]), model, X[:3], X[40:60], 1e-12)


@pytest.mark.parametrize("spread", [1e-3, 1.0, 30.0])
def test_few_nodes_are_as_good_as_all(spread, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 14))
    model = machine("laplacian", spread / 14).fit(X, X[:, 0])
    found = explain(model, X[:3], X[40:60]).contributions
    monkeypatch.setattr(_shapley, "_ROUNDING", 0.0)
    monkeypatch.setattr(_shapley, "_FACTORS", 2000)
    expected = explain(model, X[:3], X[40:60]).contributions
    size = np.abs(model.dual_coef_).sum()
    np.testing.assert_allclose(found, expected, atol=1e-14 * size, rtol=0)


@pytest.mark.parametrize("gamma", [1e-3, 0.3, 10.0])
@pytest.mark.parametrize("name", ["matern32", "matern52"])
def test_matern_kernels_are_close_to_few_gaussians(rows, name, gamma):
    X, y = rows
    model = machine(name, gamma).fit(X, y)
    found = explain(model, X[:2], X[100:120])
    assert found.method == "gaussians" and 0 < found.errors.max() < 0.01 * y.std()
    assert_adds_up(found, model, X[:2], X[100:120])
    for i in range(2):
        expected = by_coalitions(model.predict, X[i], X[100:120], [[f] for f in range(5)])
        assert np.abs(found.contributions[i] - expected).max() < found.errors[i].max()


def test_a_mixture_is_close_to_few_gaussians_and_an_unused_column_gets_nothing():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 10))
    y = np.sin(X).sum(axis=1) + X[:, 0] * X[:, 1]
    gamma = np.r_[np.full(9, 0.1), 0.0]
    kernel = Mixture([(0.3, "rbf", gamma), (0.6, "matern32", gamma), (0.1, "linear", gamma)])
    model = LSSVR(10.0, kernel).fit(X, y)
    found = explain(model, X[:1], X[100:120])
    assert found.method == "gaussians"
    assert_adds_up(found, model, X[:1], X[100:120])
    expected = by_coalitions(model.predict, X[0], X[100:120], [[f] for f in range(10)])
    assert np.abs(found.contributions[0] - expected).max() < found.errors.max() < 0.01 * y.std()
    assert found.contributions[0, 9] == 0.0


@pytest.mark.parametrize(("gamma", "C", "single"), [(0.3, 10.0, True), (1e-5, 1e12, False)])
def test_single_precision_where_rounding_is_far_below_the_error(
    rows, monkeypatch, gamma, C, single
):
    X, y = rows
    model = machine("matern32", gamma).set_params(C=C).fit(X, y)
    precisions, original = [], _shapley._of_product

    def seen(*arguments):
        precisions.append(arguments[-1])
        return original(*arguments)

    monkeypatch.setattr(_shapley, "_of_product", seen)
    found = explain(model, X[:3], X[100:120])
    assert precisions == [np.float32 if single else np.float64]
    monkeypatch.setattr(_shapley, "_SINGLE", np.inf)
    double = explain(model, X[:3], X[100:120])
    assert precisions[-1] is np.float64
    assert np.abs(found.contributions - double.contributions).max() < 0.1 * found.errors.max()


def test_gaussians_are_chosen_for_every_output(rows):
    X, y = rows
    Y = np.column_stack([y, 100.0 * X[:, 3]])
    model = machine("matern32").fit(X, Y)
    found = explain(model, X[:2], X[100:120])
    assert_adds_up(found, model, X[:2], X[100:120], 1e-9)
    expected = by_coalitions(model.predict, X[0], X[100:120], [[f] for f in range(5)])
    assert (np.abs(found.contributions[0] - expected) < found.errors[0]).all()


@pytest.mark.parametrize("name", ["matern12", "poly", "sigmoid", "cosine"])
def test_drawn_orders_are_right_within_their_error(rows, name):
    X, y = rows
    model = machine(name, 0.1).fit(X, y)
    found = explain(model, X[:2], X[100:120], n_orders=4)
    assert found.method == "sampling"
    assert_adds_up(found, model, X[:2], X[100:120])
    expected = by_coalitions(model.predict, X[0], X[100:120], [[f] for f in range(5)])
    assert (np.abs(found.contributions[0] - expected) <= 4.5 * found.errors[0] + 1e-10).all()


def test_sampling_of_what_is_known(rows, monkeypatch):
    X, y = rows
    model = machine().fit(X, y)
    exact = explain(model, X[:3], X[100:140])
    drawn = explain(model, X[:3], X[100:140], method="sampling", n_orders=5)
    apart = np.abs(drawn.contributions - exact.contributions)
    assert (apart <= 4.5 * drawn.errors + 1e-10).all() and drawn.errors.max() < 0.02
    monkeypatch.setattr(_shapley, "_HYBRIDS", 1)
    assert_adds_up(explain(model, X[:3], X[100:140], method="sampling"), model, X[:3], X[100:140])


def test_groups_count_as_one(rows):
    X, y = rows
    model = machine().fit(X, y)
    found = explain(model, X[:1], X[100:120], groups={"area": ["x1", 2]})
    assert found.names == ["x0", "area", "x3", "x4"]
    expected = by_coalitions(model.predict, X[0], X[100:120], [[0], [1, 2], [3], [4]])
    np.testing.assert_allclose(found.contributions[0], expected, atol=1e-9)
    assert found.label(1) == "area" and found.label(0).startswith("x0 = ")


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_columns_of_a_frame(rows, library, kernel):
    library = pytest.importorskip(library)
    X, y = rows
    words = np.array(["red", "green", "blue"])[np.digitize(X[:, 3], [0.5, 1.5])]
    data = {"size": X[:, 0], "colour": words, "w": X[:, 1]}
    frame = library.DataFrame(data)
    encode = ColumnTransformer(
        [("words", OneHotEncoder(sparse_output=False), ["colour"])], remainder=StandardScaler()
    )
    model = make_pipeline(encode, machine(kernel)).fit(frame, y)
    found = explain(model, frame[:4], frame[100:120])
    assert found.names == ["size", "colour", "w"]
    assert found.label(1) == f"colour = {words[0]}"

    table = np.column_stack([X[:, 0], X[:, 3], X[:, 1]])

    def of_numbers(rows):
        named = np.array(["red", "green", "blue"])[np.digitize(rows[:, 1], [0.5, 1.5])]
        return model.predict(
            library.DataFrame({"size": rows[:, 0], "colour": named, "w": rows[:, 2]})
        )

    expected = by_coalitions(of_numbers, table[0], table[100:120], [[0], [1], [2]])
    assert (np.abs(found.contributions[0] - expected) <= 4.5 * found.errors[0] + 1e-9).all()
    assert_adds_up(found, model, frame[:4], frame[100:120])


def test_steps_that_mix_columns_and_learned_functions(rows):
    X, y = rows
    for model in (make_pipeline(PCA(), machine()), LowRankLSSVR(n_basis=3)):
        found = explain(model.fit(X, y), X[:2], X[100:120], n_orders=2)
        assert found.method == "sampling"
        assert_adds_up(found, model, X[:2], X[100:120])
        expected = by_coalitions(model.predict, X[0], X[100:120], [[f] for f in range(5)])
        assert (np.abs(found.contributions[0] - expected) <= 4.5 * found.errors[0] + 1e-10).all()


def test_classes(rows):
    X, y = rows
    labels = np.digitize(y, np.quantile(y, [0.4, 0.7]))
    for n_classes in (2, 3):
        target = np.minimum(labels, n_classes - 1)
        model = PlainSparseLSSVC(10.0, "rbf", gamma=0.3, n_basis=40, random_state=0).fit(X, target)
        found = explain(model, X[:2], X[100:120])
        values = model.decision_function(X[:2])
        np.testing.assert_allclose(found.prediction, values)
        total = found.baseline + found.contributions.sum(axis=1)
        np.testing.assert_allclose(total, values, atol=1e-10)
        assert found.of(1, n_classes - 2)[0].shape == (5,)


def test_backgrounds_are_drawn(rows):
    X, y = rows
    model = machine().fit(X, y)
    some = explain(model, X[:2], X, max_background=20)
    again = explain(model, X[:2], X, max_background=20)
    np.testing.assert_array_equal(some.contributions, again.contributions)
    assert some.baseline != pytest.approx(model.predict(X).mean(), abs=1e-6)


def test_text(rows):
    X, y = rows
    X = np.hstack([X, X, X])
    found = explain(machine().fit(X, y), X[:2], X[100:120])
    lines = repr(found).splitlines()
    assert len(lines) == 10 and lines[0].startswith("Row 0 of 2: ") and "7 more" in lines[-1]


def test_a_missing_value_is_called_missing(rows):
    pd = pytest.importorskip("pandas")
    X, y = rows
    words = np.where(y > 0, "yes", None)
    frame = pd.DataFrame({"a": np.where(X[:, 0] > 1, np.nan, X[:, 0]), "b": words})
    model = PlainSparseLSSVC(10.0, "rbf", gamma=0.3, n_basis=20, random_state=0)
    model.fit(frame, np.where(y > np.median(y), "high", "low"))
    row = int(np.flatnonzero((X[:, 0] > 1) & (y <= 0))[0])
    found = explain(model, frame[row : row + 1], frame)
    assert {found.label(0), found.label(1)} == {"a is missing", "b is missing"}
    pytest.importorskip("matplotlib").use("Agg")
    label = ExplanationDisplay(found).plot().ax_.get_xlabel()
    assert "to the decision value of 'low'" in label


def test_against_shap(rows):
    shap = pytest.importorskip("shap")
    X, y = rows
    model = machine().fit(X, y)
    found = explain(model, X[:2], X[100:120])
    other = shap.KernelExplainer(model.predict, X[100:120]).shap_values(X[:2])
    np.testing.assert_allclose(found.contributions, other, atol=1e-3)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"method": "exact"}, "method"),
        ({"max_background": 0}, "max_background"),
        ({"n_orders": 1.5}, "n_orders"),
        ({"groups": {"a": ["b"]}}, "groups"),
        ({"background": np.zeros((3, 4))}, "same columns"),
        ({"rows": np.zeros(5)}, "rows and columns"),
    ],
)
def test_refusals(rows, options, text):
    X, y = rows
    with pytest.raises(ValueError, match=text):
        explain(machine().fit(X, y), **{"rows": X[:2], "background": X[:20], **options})


def test_other_models_are_refused(rows):
    X, y = rows
    with pytest.raises(TypeError, match="RandomForestRegressor"):
        explain(RandomForestRegressor(2).fit(X, y), X, X)
    with pytest.raises(ValueError, match="precomputed"):
        explain(LSSVR(kernel="precomputed").fit(X @ X.T, y), X @ X.T, X @ X.T)
    with pytest.raises(MemoryError, match="max_background"):
        model = machine("poly").fit(X, y).set_params(cache_size=0.1)
        explain(model, X[:1], X, max_background=150)
    with pytest.raises(TypeError, match="keeps no training rows"):
        neighbours(LowRankLSSVR(n_basis=2).fit(X, y), X)


@pytest.mark.parametrize("name", ["sparse", "all"])
def test_neighbours(rows, name):
    X, y = rows
    model = machine() if name == "sparse" else LSSVR(10.0, "rbf", gamma=0.3)
    model.fit(X, y)
    found = neighbours(model, X[:3] + 0.01, y)
    assert found.row.shape == found.target.shape == (3, 5)
    np.testing.assert_array_equal(found.target, y[found.row])
    assert (np.diff(found.similarity, axis=1) <= 0).all()
    for i in range(3):
        for k in (0, 4):
            more = y.copy()
            more[found.row[i, k]] += 1.0
            gain = clone(model).fit(X, more).predict(X[:3] + 0.01) - model.predict(X[:3] + 0.01)
            assert found.pull[i, k] == pytest.approx(gain[i], abs=1e-7)
    kept = model.support_vectors_
    nearest = np.argsort(np.linalg.norm(kept - X[0] - 0.01, axis=1))[:5]
    np.testing.assert_array_equal(found.row[0], model.support_[nearest])


def test_weights_of_all_targets_make_the_prediction(rows):
    X, y = rows
    pipeline = make_pipeline(StandardScaler(), LSSVR(10.0, "rbf", gamma=0.3)).fit(X, y)
    found = neighbours(pipeline, X[:3], y, count=1000)
    np.testing.assert_allclose(found.pull.sum(axis=1), 1.0)
    predicted = (found.pull * found.target).sum(axis=1)
    np.testing.assert_allclose(predicted, pipeline.predict(X[:3]), atol=1e-9)


def test_neighbours_without_pull(rows):
    X, y = rows
    assert neighbours(pickle.loads(pickle.dumps(LSSVR().fit(X, y))), X[:2]).pull is None
    assert neighbours(ReducedSVC(n_basis=9).fit(X, y > 2), X[:2], y > 2).pull is None
    given = PlainSparseLSSVR(1.0, "rbf", basis=X[:9]).fit(X, y)
    assert neighbours(given, X[:2]).pull is None
    with pytest.raises(ValueError, match="targets of all training rows"):
        neighbours(given, X, y)
    with pytest.raises(ValueError, match="targets of all training rows"):
        neighbours(machine().fit(X, y), X, y[:10])
    with pytest.raises(ValueError, match="count"):
        neighbours(given, X, count=0)


def test_display(rows):
    pytest.importorskip("matplotlib").use("Agg")
    X, y = rows
    model = machine().fit(X, y)
    display = ExplanationDisplay.from_estimator(model, X[:2], X[100:120], row=1, max_columns=3)
    found = display.explanation
    assert len(display.bars_) == 3
    last = display.bars_[-1]
    assert last.get_x() + last.get_width() == pytest.approx(found.prediction[1])
    assert display.bars_[0].get_x() == pytest.approx(found.baseline)
    assert display.ax_.get_yticklabels()[-1].get_text() == "3 other columns"
    with pytest.raises(ValueError, match="max_columns"):
        display.plot(max_columns=0)
