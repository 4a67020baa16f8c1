"""Importance: the losses are those of predictions for rows with a shuffled column."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.datasets import make_friedman1
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestRegressor
from sklearn.metrics import get_scorer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from leansvm import LSSVC, LowRankLSSVR, ReducedSVC, SparseLSSVR
from leansvm.inspection import effects, explain, importance
from leansvm.plotting import ImportanceDisplay
from tests.plain import PlainSparseLSSVC, PlainSparseLSSVR

EACH = [0.8, 0.0, 2.5, 0.01]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(0.0, 2.0, size=(120, 4))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]


def by_predictions(model, X, y, scoring="r2", repeats=5, columns=None, **options):
    """Losses as anyone would compute them."""
    rng, score = np.random.RandomState(0), get_scorer(scoring)
    orders = [rng.permutation(len(X)) for _ in range(repeats)]
    losses = []
    for column in columns or [[c] for c in range(X.shape[1])]:
        losses.append([])
        for order in orders:
            moved = X.copy()
            moved[:, column] = X[order][:, column]
            before = score(model, X, y, **options)
            losses[-1].append(before - score(model, moved, y, **options))
    return np.array(losses)


@pytest.mark.parametrize("gamma", [0.3, EACH])
@pytest.mark.parametrize("name", ["rbf", "laplacian", "matern12", "matern32", "matern52"])
def test_distance_kernels(rows, name, gamma):
    X, y = rows
    model = PlainSparseLSSVR(10.0, name, gamma=gamma, n_basis=40, random_state=0).fit(X, y)
    found = importance(model, X, y)
    np.testing.assert_allclose(found.losses, by_predictions(model, X, y), atol=1e-7)
    np.testing.assert_allclose(found.mean, found.losses.mean(axis=1))
    np.testing.assert_allclose(found.std, found.losses.std(axis=1))
    assert found.score == model.score(X, y)


@pytest.mark.parametrize("name", ["linear", "poly", "sigmoid", "chi2", "cosine"])
def test_other_kernels(rows, name):
    X, y = rows
    model = PlainSparseLSSVR(10.0, name, gamma=0.3, n_basis=40, random_state=0).fit(X, y)
    np.testing.assert_allclose(
        importance(model, X, y).losses, by_predictions(model, X, y), atol=1e-9
    )


def test_several_outputs_tiles_and_clipped_features(rows, monkeypatch):
    X, y = rows
    X = X.copy()
    X[5, 0] = 1e4
    Y = np.column_stack([y, X[:, 3]])
    model = PlainSparseLSSVR("loo", gamma="learn", n_basis=30, random_state=0).fit(X, Y)
    assert model.clip_ is not None
    expected = by_predictions(model, X, Y)
    np.testing.assert_allclose(importance(model, X, Y).losses, expected, atol=1e-8)
    monkeypatch.setattr("leansvm.inspection._moved._TILE", 400)
    monkeypatch.setattr("leansvm.inspection._moved._VALUES", 1)
    np.testing.assert_allclose(importance(model, X, Y).losses, expected, atol=1e-8)


@pytest.mark.parametrize("machine", [PlainSparseLSSVC, ReducedSVC, LSSVC])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes(rows, machine, n_classes):
    X, y = rows
    y = np.array(["a", "b", "c"])[np.digitize(y, np.quantile(y, [0.4, 0.7][: n_classes - 1]))]
    options = {} if machine is LSSVC else {"n_basis": 20, "random_state": 0}
    model = machine(C=1.0, kernel="rbf", gamma=0.5, calibrate=True, **options).fit(X, y)
    weight = np.random.default_rng(1).integers(1, 3, size=len(y))
    for scoring in ("accuracy", "neg_log_loss", "roc_auc_ovr"):
        found = importance(model, X, y, scoring=scoring, sample_weight=weight)
        expected = by_predictions(model, X, y, scoring, sample_weight=weight)
        np.testing.assert_allclose(found.losses, expected, atol=1e-8)
        assert found.scoring == scoring


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("calibrate", [False, True])
@pytest.mark.filterwarnings("ignore:LSSVC predicts 0 for every training row:UserWarning")
def test_rare_classes_are_seen(n_classes, calibrate):
    """A model that finds no row of the rare class has the same accuracy without any column."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    y = (X[:, 0] + rng.normal(size=600) > 2.6).astype(int)
    y[(X[:, 1] > 2.2) & (n_classes == 3)] = 2
    model = LSSVC(C=0.01, gamma=0.1, calibrate=calibrate).fit(X, y)
    assert not importance(model, X, y, scoring="accuracy").mean.any()
    found = importance(model, X, y)
    if n_classes == 3 and not calibrate:
        assert found.scoring == "balanced_accuracy"
        return
    assert found.scoring == ("roc_auc" if n_classes == 2 else "roc_auc_ovr")
    assert (found.mean[: n_classes - 1] > 0.1).all() and abs(found.mean[-1]) < 0.1
    np.testing.assert_allclose(found.losses, by_predictions(model, X, y, found.scoring), atol=1e-8)
    few = importance(model, X[y != n_classes - 1], y[y != n_classes - 1])
    assert few.scoring == ("accuracy" if n_classes == 2 else "balanced_accuracy")


def test_groups_are_shuffled_together(rows):
    X, y = rows
    model = PlainSparseLSSVR(10.0, "rbf", n_basis=40, random_state=0).fit(X, y)
    found = importance(model, X, y, groups={"both": [1, "x2"]})
    assert found.names == ["x0", "both", "x3"]
    expected = by_predictions(model, X, y, columns=[[0], [1, 2], [3]])
    np.testing.assert_allclose(found.losses, expected, atol=1e-9)


def frame_of(X, library):
    words = np.array(["red", "green", "blue"])[np.digitize(X[:, 3], [0.5, 1.5])]
    return library.DataFrame({"size": X[:, 0], "w": X[:, 1], "h": X[:, 2], "colour": words})


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_columns_of_a_frame(rows, library):
    library = pytest.importorskip(library)
    X, y = rows
    frame = frame_of(X, library)
    y = y + np.array(frame["colour"] == "red")
    encode = ColumnTransformer(
        [("words", OneHotEncoder(sparse_output=False), ["colour"])], remainder=StandardScaler()
    )
    model = make_pipeline(encode, PlainSparseLSSVR(10.0, "rbf", n_basis=40, random_state=0))
    model.fit(frame, y)
    found = importance(model, frame, y)
    assert found.names == ["size", "w", "h", "colour"]
    rng, score = np.random.RandomState(0), model.score(frame, y)
    orders = [rng.permutation(len(y)) for _ in range(5)]
    for c, name in enumerate(found.names):
        for k, order in enumerate(orders):
            data = {other: frame[other].to_numpy() for other in found.names}
            moved = library.DataFrame(data | {name: data[name][order]})
            assert found.losses[c, k] == pytest.approx(score - model.score(moved, y), abs=1e-9)


def test_steps_that_mix_columns_and_other_models(rows):
    X, y = rows
    mixed = make_pipeline(PCA(), PlainSparseLSSVR(10.0, "rbf", n_basis=40, random_state=0))
    forest = RandomForestRegressor(5, random_state=0)
    for model in (mixed, LowRankLSSVR(n_basis=3), forest):
        model.fit(X, y)
        found = importance(model, X, y, n_repeats=2)
        np.testing.assert_allclose(found.losses, by_predictions(model, X, y, repeats=2), atol=1e-9)


def test_rows_are_drawn(rows):
    X, y = rows
    model = PlainSparseLSSVR(10.0, "rbf", n_basis=40, random_state=0).fit(X, y)
    some = importance(model, X, y, max_rows=50)
    assert some.score == pytest.approx(importance(model, X, y, max_rows=50).score)
    assert some.score != model.score(X, y)
    assert importance(model, X, y, max_rows=None).score == model.score(X, y)


def test_rows_elsewhere_are_refused(rows):
    dask = pytest.importorskip("dask.array")
    X, y = rows
    model = PlainSparseLSSVR(10.0, "rbf", n_basis=40, random_state=0).fit(X, y)
    with pytest.raises(TypeError, match="in memory"):
        importance(model, dask.from_array(X), y)


def test_text(rows):
    X, y = make_friedman1(100, n_features=15, random_state=0)
    model = PlainSparseLSSVR(10.0, "rbf", n_basis=40, random_state=0).fit(X, y)
    text = repr(importance(model, X, y, n_repeats=1))
    assert text.startswith("Loss of R² (") and "7 more" in text
    assert len(text.splitlines()) == 10


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"n_repeats": 0}, "n_repeats"),
        ({"max_rows": 1}, "max_rows"),
        ({"groups": {"a": ["nothing"]}}, "groups"),
        ({"groups": {"a": [4]}}, "groups"),
        ({"groups": {"a": [1], "b": [1]}}, "one group"),
        ({"y": np.zeros(3)}, "inconsistent"),
        ({"X": np.zeros(3)}, "rows and columns"),
    ],
)
def test_refusals(rows, options, text):
    X, y = rows
    model = PlainSparseLSSVR(10.0, "rbf", n_basis=20, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match=text):
        importance(model, **{"X": X, "y": y, **options})


def test_display(rows):
    pytest.importorskip("matplotlib").use("Agg")
    X, y = rows
    model = PlainSparseLSSVR(10.0, "rbf", n_basis=40, random_state=0).fit(X, y)
    display = ImportanceDisplay.from_estimator(model, X, y, max_columns=2, n_repeats=3)
    first = int(np.argmax(display.importance.mean))
    assert display.ax_.get_yticklabels()[0].get_text() == f"x{first}"
    assert display.bars_[0].get_width() == display.importance.mean.max()
    assert "R²" in display.ax_.get_xlabel() and "2 of 4" in display.ax_.get_ylabel()
    with pytest.raises(ValueError, match="max_columns"):
        display.plot(max_columns=0)


def test_columns_that_the_fit_left_out_are_named_once():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({f"x{i}": rng.normal(size=200) for i in range(3)})
    X = X.assign(customer_id=np.arange(200), const=1, c=rng.choice(["a", "b"], 200))
    model = SparseLSSVR(n_basis=40, random_state=0).fit(X, X["x0"] + (X["c"] == "a"))
    for found in (importance(model, X, X["x0"]), effects(model, X), explain(model, X[:1], X)):
        assert found.left_out == ["customer_id", "const"] and len(found.names) == 6
        *lines, last = repr(found).splitlines()
        assert last == "  left out of the fit: customer_id, const" and len(lines) == 5
        assert not any("const" in line or "more" in line for line in lines)
    with pytest.raises(TypeError, match=r"got a Series: for one row pass X.iloc\[\[0\]\]"):
        explain(model, X.iloc[0], X)


def test_booleans_have_no_slope_whatever_their_type():
    truth = pd.Series([True, None, False, True] * 30, dtype=object)
    x = np.random.default_rng(0).normal(size=120)
    for column in (truth, truth.astype("boolean"), truth.fillna(False).astype(bool)):
        X = pd.DataFrame({"x": x, "b": column, "c": ["u", "v", "w"] * 40})
        model = SparseLSSVR(n_basis=30, random_state=0)
        found = effects(model.fit(X, x + truth.eq(True)), X)
        assert np.isnan(found.slope[0]).tolist() == [False, True, True]
