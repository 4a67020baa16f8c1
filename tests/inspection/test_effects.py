"""Effects: partial dependence is scikit-learn's, slopes are those of the predictions."""

from functools import partial

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.inspection import partial_dependence
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from leansvm import KernelBasis, LowRankLSSVR
from leansvm.inspection import _dependence, effects
from leansvm.plotting import EffectsDisplay
from tests.plain import PlainReducedSVC, PlainSparseLSSVC, PlainSparseLSSVR

GAMMAS = {"one": 0.3, "each": [0.8, 0.0, 2.5, 0.01]}
RADIAL = ("rbf", "matern12", "matern32", "matern52", "laplacian")
CASES = [(name, key) for name in RADIAL for key in GAMMAS]
CASES += [(name, "one") for name in ("chi2", "poly", "sigmoid", "cosine", "linear")]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 2.0, size=(150, 4))
    X[:, 3] = rng.integers(0, 3, size=150)  # few values
    X[:3] = 0.0
    return X, np.column_stack([np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2], X[:, 3] - X[:, 0]])


def machine(name, gamma=0.3, **options):
    return PlainSparseLSSVR(
        10.0, name, gamma=gamma, coef0=0.5, n_basis=40, random_state=0, **options
    )


def assert_same_dependence(model, X, tolerance=1e-8):
    found = effects(model, X, n_individual=5, pairs=[], grid_resolution=40)
    for f in range(X.shape[1]):
        expected = partial_dependence(
            model,
            X,
            [f],
            kind="both",
            grid_resolution=40,
            response_method="decision_function" if hasattr(model, "classes_") else "auto",
        )
        np.testing.assert_allclose(found.grids[f], expected["grid_values"][0])
        np.testing.assert_allclose(found.average[f], expected["average"], atol=tolerance, rtol=0)
        lines = expected["individual"][:, :5]
        centred = lines - lines[:, :, :1]
        np.testing.assert_allclose(found.individual[f], centred, atol=tolerance, rtol=0)


@pytest.mark.parametrize(("name", "key"), CASES)
def test_partial_dependence_is_that_of_scikit_learn(rows, name, key):
    X, Y = rows
    assert_same_dependence(machine(name, GAMMAS[key]).fit(X, Y), X)


@pytest.mark.parametrize("degree", [1, 2.5, 9])
def test_other_degrees(rows, degree):
    X, Y = rows
    assert_same_dependence(machine("poly", degree=degree).fit(X, Y[:, 0]), X)


def test_sigmoid_with_huge_products_is_computed_directly(rows):
    X, Y = rows
    model = machine("sigmoid").fit(X, Y[:, 0]).set_params(coef0=-400.0)
    model.gamma_ = 100.0
    assert_same_dependence(model, X)


@pytest.mark.parametrize("name", ["matern12", "matern32", "matern52"])
def test_one_feature_has_no_rest(name):
    X = np.linspace(0, 3, 120)[:, None] ** 2
    assert_same_dependence(machine(name).fit(X, np.sin(X[:, 0])), X)


def test_clipped_features(rows):
    X, Y = rows
    X = X.copy()
    X[5, 0] = 1e4  # a heavy tail
    model = PlainSparseLSSVR("loo", gamma="learn", n_basis=30, random_state=0).fit(X, Y[:, 0])
    assert model.clip_ is not None
    assert_same_dependence(model, X)


@pytest.mark.parametrize("machine", [PlainSparseLSSVC, PlainReducedSVC])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes(rows, machine, n_classes):
    X, Y = rows
    y = np.digitize(Y[:, 0], np.quantile(Y[:, 0], [0.4, 0.7][: n_classes - 1]))
    model = machine(1.0, "rbf", gamma=0.5, n_basis=20, random_state=0).fit(X, y)
    assert_same_dependence(model, X)
    assert effects(model, X).slope.shape == (1 if n_classes == 2 else 3, 4)


def test_tiles_change_nothing(rows, monkeypatch):
    X, Y = rows
    model = machine("matern32").fit(X, Y)
    expected = effects(model, X)
    monkeypatch.setattr(_dependence, "_TILE", 400)
    found = effects(model, X)
    for a, b in zip(found.average, expected.average, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


def test_slopes_and_interactions(rows):
    X, Y = rows
    model = machine("rbf").fit(X, Y)
    found = effects(model, X, pairs=[[1, 2], [0, 3]])
    for f in range(4):
        step = np.zeros(4)
        step[f] = 1e-5
        slopes = (model.predict(X + step) - model.predict(X - step)) / 2e-5
        np.testing.assert_allclose(found.slope[:, f], slopes.mean(axis=0), atol=1e-7)
        moved = np.repeat(X[None], len(X), axis=0)  # all pairs of rows
        moved[:, :, f] = X[:, f][:, None]
        after = model.predict(moved.reshape(-1, 4)).reshape(len(X), -1, 2)
        change = np.abs(after - model.predict(X)).mean(axis=(0, 1))
        np.testing.assert_allclose(found.strength[:, f], change, rtol=0.05)
    e, h = np.eye(4) * 1e-3, 1e-3
    signs = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
    corner = [model.predict(X + a * e[1] + b * e[2]) for a, b in signs]
    mixed = (corner[0] - corner[1] - corner[2] + corner[3]) / (4 * h * h)
    size = np.sqrt(np.mean(mixed**2, axis=0)) * X[:, 1].std() * X[:, 2].std()
    np.testing.assert_allclose(found.interaction[:, 0], size, rtol=1e-3)
    assert found.interaction[0, 0] > 1.2 * found.interaction[0, 1]  # of x1 x2, not of x0 and x3


def test_default_pairs_are_of_the_strongest_features():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 9))
    model = machine("rbf").fit(X, X @ np.arange(9.0))
    found = effects(model, X)
    assert len(found.pairs) == 15
    assert set(found.pairs.ravel()) == set(found.strongest()) and 8 in found.strongest()


def test_some_features_names_scales_and_sparse_rows(rows):
    X, Y = rows
    model = PlainSparseLSSVR(1.0, gamma="learn", n_basis=20, random_state=0).fit(X, Y[:, 0])
    found = effects(model, csr_matrix(X), features=[2, 0], feature_names=list("abcd"))
    assert found.names == ["c", "a"]
    np.testing.assert_array_equal(found.scales, model.feature_scales_[[2, 0]])
    whole = effects(model, X)
    np.testing.assert_allclose(found.average[0], whole.average[2])
    np.testing.assert_allclose(found.slope, whole.slope[:, [2, 0]])
    assert effects(machine("rbf").fit(X, Y), X).scales is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"features": [4]}, "column numbers"),
        ({"features": []}, "column numbers"),
        ({"pairs": [[1, 1]]}, "two different"),
        ({"grid_resolution": 1}, "grid_resolution"),
        ({"percentiles": (0.9, 0.1)}, "percentiles"),
        ({"feature_names": ["a"]}, "feature_names"),
    ],
)
def test_refusals(rows, options, text):
    X, Y = rows
    with pytest.raises(ValueError, match=text):
        effects(machine("rbf").fit(X, Y), X, **options)


def test_machines_without_kernels_and_kernels_without_gradients_are_refused(rows):
    X, Y = rows
    with pytest.raises(TypeError, match="LowRankLSSVR"):
        effects(LowRankLSSVR(), X)
    with pytest.raises(TypeError, match="KernelBasis"):
        effects(KernelBasis(5).fit(X), X)
    with pytest.raises(ValueError, match="no known gradient"):
        effects(machine(lambda A, B: A @ B.T).fit(X, Y), X)
    model = machine("rbf").fit(X, Y).set_params(cache_size=0.1)
    with pytest.raises(MemoryError, match="fewer rows"):
        effects(model, X)


def test_a_feature_asked_for_twice_has_its_lines_twice(rows):
    X, Y = rows
    found = effects(machine("rbf").fit(X, Y[:, 0]), X, features=[1, 1, 0], n_individual=3, pairs=[])
    assert len(found.individual) == len(found.average) == 3
    np.testing.assert_array_equal(found.individual[0], found.individual[1])


def test_display(rows):
    pytest.importorskip("matplotlib").use("Agg")
    X, Y = rows
    model = machine("rbf").fit(X, Y)
    display = EffectsDisplay.from_estimator(model, X, max_features=2, n_individual=4, output=1)
    found = display.effects
    first = int(np.argmax(found.strength[1]))
    assert display.axes_[0].get_xlabel() == f"x{first}"
    line = found.average[first][1]
    np.testing.assert_allclose(display.lines_[0].get_ydata(), line - line[0])
    assert len(display.axes_) == 2
    assert len(display.axes_[0].lines) == 4 + 2  # rows, average, zero
    with pytest.raises(ValueError, match="output"):
        display.plot(output=2)
    with pytest.raises(ValueError, match="axes"):
        display.plot(axes=display.axes_[:1])


def test_a_scaler_changes_units_of_nothing(rows):
    X, Y = rows
    gamma = np.array([0.8, 0.1, 2.5, 0.01])
    X = X * [1, 100, 0.01, 1] + [0, 5, 0, 0]
    scaler = StandardScaler().fit(X)
    plain = machine("matern32", gamma / scaler.scale_**2).fit(X, Y)
    scaled = make_pipeline(StandardScaler(), machine("matern32", gamma)).fit(X, Y)
    found, expected = effects(scaled, X, n_individual=2), effects(plain, X, n_individual=2)
    assert_allclose = partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-8)
    assert_allclose(found.slope, expected.slope)
    assert_allclose(found.strength, expected.strength)
    assert_allclose(found.interaction, expected.interaction)
    for f in range(4):
        assert_allclose(found.grids[f], expected.grids[f])
        assert_allclose(found.average[f], expected.average[f])
        assert_allclose(found.individual[f], expected.individual[f])


def as_days(rows):
    return np.asarray(rows).astype("datetime64[D]").astype(float) - 19700.0


@pytest.mark.parametrize(
    ("library", "kernel"), [("pandas", "matern32"), ("pandas", "poly"), ("polars", "rbf")]
)
def test_words_dates_and_booleans(rows, library, kernel):
    library = pytest.importorskip(library)
    X, Y = rows
    words = np.array(["red", "green", "blue"])[X[:, 3].astype(int)]
    dates = np.datetime64("2024-01-01") + (100 * X[:, 0]).astype("timedelta64[D]")
    data = {"bought": dates, "colour": words, "paid": X[:, 1] > 1, "w": X[:, 2]}

    def frame(**changed):
        return library.DataFrame(data | changed)

    encode = ColumnTransformer(
        [
            ("words", OneHotEncoder(sparse_output=False), ["colour"]),
            ("days", make_pipeline(FunctionTransformer(as_days), StandardScaler()), ["bought"]),
            ("rest", StandardScaler(), ["paid", "w"]),
        ]
    )
    model = make_pipeline(encode, machine(kernel)).fit(frame(), Y[:, 0] + 2 * (words == "red"))
    found = effects(model, frame(), grid_resolution=20, n_individual=3)
    assert found.names == ["bought", "colour", "paid", "w"]
    assert found.grids[0].dtype.kind == "M"
    assert list(found.grids[1]) == ["blue", "green", "red"]
    assert list(found.grids[2]) == ["False", "True"]
    blue = model.predict(frame(colour=np.full(150, "blue")))
    for v, level in enumerate(found.grids[1]):
        predicted = model.predict(frame(colour=np.full(150, level)))
        assert found.average[1][0, v] == pytest.approx(predicted.mean(), abs=1e-9)
        lines = found.individual[1][0, :, v]
        np.testing.assert_allclose(lines, (predicted - blue)[:3], atol=1e-9)
    for v in range(0, 20, 6):
        day = found.grids[0][v].astype("datetime64[D]")  # as the model reads it
        predicted = model.predict(frame(bought=np.full(150, day)))
        assert found.average[0][0, v] == pytest.approx(predicted.mean(), abs=1e-8)
    day = np.timedelta64(5, "D")
    up = model.predict(frame(bought=dates + day)) - model.predict(frame(bought=dates - day))
    assert found.slope[0, 0] == pytest.approx(up.mean() / 10, rel=0.1, abs=1e-4)
    assert np.isnan(found.slope[0, 1]) and np.isnan(found.slope[0, 2])
    assert found.pairs.tolist() == [[0, 3]] and "nan" not in repr(found)
    with pytest.raises(ValueError, match="pairs must name numeric columns"):
        effects(model, frame(), pairs=[[0, 1]])
    by_name = effects(model, frame(), features=["w"], pairs=[])
    np.testing.assert_allclose(by_name.average[0], effects(model, frame()).average[3])
    pytest.importorskip("matplotlib").use("Agg")
    display = EffectsDisplay(found).plot()
    labels = [ax.get_xlabel() for ax in display.axes_]
    ticks = display.axes_[labels.index("colour")].get_xticklabels()
    assert [tick.get_text() for tick in ticks] == ["blue", "green", "red"]


def test_a_number_with_gaps_has_a_slope(rows):
    X, Y = rows
    X = X.copy()
    X[::7, 0] = np.nan
    encode = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    model = make_pipeline(encode, machine("rbf")).fit(X, Y[:, 0])
    found = effects(model, X, pairs=[[0, 1]])
    step = np.array([1e-5, 0.0, 0.0, 0.0])
    slopes = (model.predict(X + step) - model.predict(X - step)) / 2e-5
    assert found.slope[0, 0] == pytest.approx(slopes[np.isfinite(X[:, 0])].mean(), abs=1e-6)
    assert found.interaction[0, 0] > 0
    X[:, 3] = np.nan  # nothing at all
    alone = SimpleImputer(keep_empty_features=True)
    found = effects(make_pipeline(alone, machine("rbf")).fit(X, Y[:, 0]), X)
    assert list(found.grids[3]) == ["missing"] and found.strength[0, 3] == 0


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_numbers_and_dates_in_text_have_slopes(rows, library):
    library = pytest.importorskip(library)
    moments = np.datetime64("2024-05-01") + np.arange(150).astype("timedelta64[D]")
    typed = {"x": rows[0][:, 0].round(3), "when": moments, "z": rows[0][:, 1]}
    text = {"x": [f"{v:.3f}" for v in typed["x"]], "when": moments.astype(str), "z": typed["z"]}
    text["x"][3] = "n/a"
    typed["x"][3] = np.nan
    found = []
    for columns in (typed, text):
        frame = library.DataFrame(columns)
        model = PlainSparseLSSVR(10.0, "rbf", gamma=0.3, n_basis=40, random_state=0)
        found.append(effects(model.fit(frame, rows[1][:, 0]), frame, grid_resolution=20))
    assert np.isfinite(found[1].slope).all() and found[1].grids[1].dtype.kind == "M"
    np.testing.assert_allclose(found[1].slope, found[0].slope)
    for a, b in zip(found[0].average, found[1].average, strict=True):
        np.testing.assert_allclose(a, b)


def test_dates_with_a_time_zone_have_slopes(rows):
    pd = pytest.importorskip("pandas")
    plain = pd.Timestamp("2024-05-01") + pd.to_timedelta(np.arange(150) * 7, "h")
    found = []
    for when in (plain, plain.tz_localize("Asia/Tokyo")):
        frame = pd.DataFrame({"when": when, "z": rows[0][:, 1]})
        model = PlainSparseLSSVR(10.0, "rbf", gamma=0.3, n_basis=40, random_state=0)
        found.append(effects(model.fit(frame, rows[1][:, 0]), frame, grid_resolution=20))
    assert found[1].grids[0].dtype.kind == "M"
    np.testing.assert_allclose(found[1].slope, found[0].slope)
    np.testing.assert_allclose(found[1].average[0], found[0].average[0])


def test_the_text_names_the_class():
    X = np.random.default_rng(0).normal(size=(60, 2))
    words = np.where(X[:, 0] > 0, "yes", "no")
    model = PlainSparseLSSVC(10.0, "rbf", gamma=0.3, n_basis=20, random_state=0)
    found = effects(model.fit(X, words), X)
    assert "decision value of 'yes' when a column" in repr(found)
    three = np.where(X[:, 1] > 1, "perhaps", words)
    found = effects(model.fit(X, three), X)
    pytest.importorskip("matplotlib").use("Agg")
    assert EffectsDisplay(found).plot().axes_[0].get_ylabel() == "change towards 'no'"
    assert "of the class that changes most" in repr(found) and "'perhaps'" in found.what(1)


def test_steps_that_mix_columns_are_refused(rows):
    X, Y = rows
    with pytest.raises(ValueError, match="last step"):
        effects(make_pipeline(PCA(), machine("rbf")).fit(X, Y), X)


def test_text():
    X = np.random.default_rng(0).normal(size=(100, 12))
    found = effects(machine("rbf").fit(X, X[:, 3]), X)
    lines = repr(found).splitlines()
    assert len(lines) == 10 and lines[1].split()[0] == "x3"
