"""Every estimator takes tables as they are."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from leansvm import (
    L2SVC,
    LSSVC,
    LSSVR,
    KernelBasis,
    LowRankLSSVC,
    LowRankLSSVR,
    Predictor,
    ReducedSVR,
    SparseLSSVC,
    SparseLSSVR,
    persistence,
)
from leansvm.kernels import Mixture
from leansvm.learning.learn import learn_kernel
from leansvm.model_selection import basis_path
from leansvm.rows import MemoryBlocks
from leansvm.tables import TableEncoder
from tests.plain import PlainReducedSVC
from tests.tables.test_encoder import mixed, target

CLASSIFIERS = [
    LSSVC(),
    L2SVC(),
    SparseLSSVC(gamma="scale", n_basis=50, random_state=0),
    PlainReducedSVC(n_basis=50, random_state=0),
    LowRankLSSVC(n_basis=3, random_state=0),
]
REGRESSORS = [
    LSSVR(),
    SparseLSSVR(gamma="scale", n_basis=50, random_state=0),
    ReducedSVR(n_basis=50, random_state=0),
    LowRankLSSVR(n_basis=3, random_state=0),
]
TABLE = mixed(300)
Y = target(TABLE).to_numpy()
NEW = mixed(200, seed=5)
NEW.loc[::3, "city"] = None
NEW.loc[::4, "shop"] = "never seen"
NEW.loc[::5, "time"] = pd.NaT
NEW.loc[::7, "age"] = np.nan


@pytest.fixture(scope="module")
def learned():
    return SparseLSSVR(n_basis=60, random_state=0).fit(TABLE, Y)


@pytest.mark.parametrize("model", CLASSIFIERS + REGRESSORS, ids=lambda m: type(m).__name__)
def test_a_table_goes_straight_into_fit(model):
    y = np.where(np.median(Y) < Y, "high", "low") if hasattr(model, "class_weight") else Y
    model = clone(model).fit(TABLE, y)
    assert model.score(TABLE, y) > 0.4
    assert list(model.feature_names_in_) == list(TABLE) and model.n_features_in_ == TABLE.shape[1]
    assert model.table_.standardize  # these have one scale for all features
    np.testing.assert_array_equal(model.predict(NEW), model.predict(pl.from_pandas(NEW)))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(NEW), model.predict(NEW))


@pytest.mark.parametrize("model", [LSSVC(), PlainReducedSVC(n_basis=30, random_state=0)], ids=str)
def test_a_pipeline_with_the_encoder_is_the_same_model(model):
    table, labels = TABLE.drop(columns="shop"), Y > 3  # no means of the target, so no folds
    one = clone(model).fit(table, labels)
    other = make_pipeline(TableEncoder(), clone(model)).fit(table, labels)
    new = NEW.drop(columns="shop")
    np.testing.assert_allclose(one.decision_function(new), other.decision_function(new))


def test_arrays_with_gaps_of_both_types():
    X = np.random.default_rng(0).normal(size=(80, 3))
    y = X[:, 0] > 0
    X[::7, 1] = np.nan
    model = LSSVC().fit(X, y)
    assert model.score(X, y) > 0.9
    assert model.table_.describe() == "3 numbers (1 with missing values)"
    assert model.predict(np.full((2, 3), np.nan)).shape == (2,)
    single = LSSVC().fit(X.astype(np.float32), y)
    assert (
        single.support_vectors_.dtype == single.decision_function(X[:2].astype("f4")).dtype == "f4"
    )


def test_numbers_take_the_way_without_an_encoder():
    X = np.random.default_rng(0).normal(size=(60, 2))
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(c=X[:, 0] > 0)
    for rows in (X, frame, pl.from_pandas(frame)):
        model = LSSVC().fit(rows, X[:, 0] > 0)
        assert not hasattr(model, "table_")
    model.fit(TABLE, Y > 3)
    assert hasattr(model, "table_") and not hasattr(model.fit(X, X[:, 0] > 0), "table_")


def test_gaps_that_training_had_not_are_explained():
    model = LSSVC().fit(np.eye(6), [0, 1] * 3)
    with pytest.raises(ValueError, match="fitted on numbers without missing values: fill"):
        model.predict(np.full((1, 6), np.nan))
    frame = pd.DataFrame(np.eye(6), columns=list("abcdef"))
    model = LSSVC().fit(frame, [0, 1] * 3)
    with pytest.raises(ValueError, match=r"text or dates \(in 'b', 'e'\), but LSSVC was"):
        model.predict(frame.assign(b="x", e=[1.0, np.nan] * 3))


@pytest.mark.parametrize("kernel", ["precomputed", lambda X, Z: X @ Z.T])
def test_kernels_that_take_numbers_alone_say_so(kernel):
    rows = np.full((4, 4), np.nan) if kernel == "precomputed" else TABLE[:4]
    with pytest.raises(ValueError, match=r"takes only numbers: use leansvm.tables.TableEncoder"):
        LSSVC(kernel=kernel).fit(rows, [0, 1, 0, 1])


def test_sparse_rows_with_gaps_are_refused():
    rows = sparse.csr_matrix([[0.0, np.nan], [1.0, 0.0]])
    with pytest.raises(ValueError, match="A sparse matrix takes only numbers"):
        LSSVC().fit(rows, [0, 1])


def test_learned_scales_are_tied(learned):
    encoder = learned.table_
    assert not encoder.standardize
    for gamma in learned.gamma_.values():
        for group in np.unique(encoder.groups_):
            assert len(set(gamma[: len(encoder.groups_)][encoder.groups_ == group])) == 1
    if learned.kernel_.clip is not None:
        assert np.isinf(np.array(learned.kernel_.clip)[:, ~encoder.numeric_]).all()
    assert learned.score(TABLE, Y) > 0.5


def test_one_group_per_feature_is_the_kernel_without_groups():
    X = np.random.default_rng(0).normal(size=(150, 3))
    blocks = MemoryBlocks(X, np.sin(2 * X[:, :1]) + X[:, 1:2])
    options = {"bias_penalty": 0.0, "budget": 10**9, "random_state": 0}
    plain = learn_kernel(blocks, ["rbf"], **options)
    every, quantity = np.array([5, 2, 9]), np.ones(3, bool)
    grouped = learn_kernel(blocks, ["rbf"], **options, groups=every, numeric=quantity)
    np.testing.assert_allclose(grouped.kernel.scales, plain.kernel.scales)


def test_weights_count_like_copies_in_a_fit():
    weight = np.random.default_rng(0).integers(1, 4, size=300).astype(float)
    copies = np.repeat(np.arange(300), weight.astype(int))
    one = LSSVR(C=1.0).fit(TABLE, Y, sample_weight=weight)
    other = LSSVR(C=1.0).fit(TABLE.iloc[copies], Y[copies])
    np.testing.assert_allclose(one.predict(NEW), other.predict(NEW), atol=1e-6)


def test_searches_batches_and_paths_take_tables():
    labels = Y > 3
    assert cross_val_score(LSSVC(), TABLE, labels, cv=3).mean() > 0.6
    GridSearchCV(LSSVC(), {"C": [0.1, 1]}, cv=2).fit(TABLE, labels)
    model = SparseLSSVR(1.0, "rbf", gamma="scale", n_basis=20, random_state=0)
    path = basis_path(model, TABLE, Y)
    assert path.loo[-1] < path.loo[0]
    model.partial_fit(TABLE[:200], Y[:200]).partial_fit(TABLE[200:], Y[200:])
    assert model.n_rows_seen_ == 300
    basis = KernelBasis(10, random_state=0).fit(TABLE, Y)
    assert basis.transform(NEW).shape == (200, 10)


def test_intervals_after_a_file(tmp_path):
    model = LSSVR(C=1.0).fit(TABLE, Y)
    ends = model.predict_interval(NEW)
    persistence.save(model, tmp_path / "model.skops")
    again = persistence.load(tmp_path / "model.skops").keep_rows(TABLE, Y)
    np.testing.assert_allclose(again.predict_interval(NEW), ends, atol=1e-6)


def test_files_hold_the_encoder(learned, tmp_path):
    persistence.save(learned, tmp_path / "model.skops")
    again = persistence.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(again.predict(NEW), learned.predict(NEW))
    assert again.table_.describe() == learned.table_.describe()
    np.testing.assert_array_equal(again.table_.groups_, learned.table_.groups_)


@pytest.mark.parametrize(
    ("name", "value"),
    [("fill", np.inf), ("name", 3), ("unit", (0.0, 0.0)), ("unit", (np.nan, 1.0))],
)
def test_files_with_wrong_columns_are_refused(learned, tmp_path, name, value):
    wrong = pickle.loads(pickle.dumps(learned))
    vars(wrong.table_._columns[0])[name] = value
    with pytest.raises(persistence.ModelFileError):
        persistence.save(wrong, tmp_path / "model.skops")
    wrong.table_._columns = learned.table_._columns[1:]
    with pytest.raises(persistence.ModelFileError):
        persistence.save(wrong, tmp_path / "model.skops")


def test_one_row_at_a_time(learned):
    predictor, wanted = Predictor(learned), learned.predict(NEW)
    rows = NEW.to_dict("records")
    for row, value in zip(rows, wanted, strict=True):
        np.testing.assert_allclose(predictor.predict(row), value, atol=1e-8)
    np.testing.assert_allclose(predictor.predict(list(rows[3].values())), wanted[3], atol=1e-8)
    np.testing.assert_allclose(predictor.predict(rows), wanted, atol=1e-8)
    np.testing.assert_allclose(predictor.predict(NEW), wanted, atol=1e-8)
    again = pickle.loads(pickle.dumps(predictor))
    np.testing.assert_allclose(again.predict(rows[0]), wanted[0], atol=1e-8)


def test_rows_as_json_has_them(learned):
    row = NEW.to_dict("records")[1]
    row |= {"time": row["time"].isoformat(), "member": int(row["member"])}
    wanted = learned.predict(NEW[1:2])[0]
    np.testing.assert_allclose(Predictor(learned).predict(row), wanted, atol=1e-8)


def test_rows_that_are_wrong_are_explained(learned):
    predictor, row = Predictor(learned), NEW.to_dict("records")[1]
    less = {name: value for name, value in row.items() if name != "age"}
    assert predictor.predict(less) == predictor.predict(row | {"age": None})
    with pytest.raises(ValueError, match="'age' holds infinity"):
        predictor.predict(row | {"age": np.inf})
    with pytest.raises(ValueError, match="'age' had numbers in training, but now 'old'"):
        predictor.predict(row | {"age": "old"})
    with pytest.raises(ValueError, match="A row has 2 values, training had 8"):
        predictor.predict([1, 2])


def test_dicts_for_models_of_numbers():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 2)), columns=["a", "b"])
    model = LSSVR().fit(frame, frame["a"])
    predictor = Predictor(model)
    wanted = model.predict(frame[:1])[0]
    np.testing.assert_allclose(predictor.predict({"b": frame["b"][0], "a": frame["a"][0]}), wanted)
    with pytest.raises(ValueError, match="needs the columns of fit"):
        predictor.predict({"a": 1.0})


def test_true_and_false_may_be_yes_and_no():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"x": rng.normal(size=60), "flag": rng.random(60) < 0.5, "c": ["a", "b"] * 30}
    )
    model = SparseLSSVR(1.0, kernel="rbf", gamma=1.0, n_basis=10).fit(frame, frame.x + frame.flag)
    same = frame.assign(flag=frame.flag.astype(str))
    np.testing.assert_array_equal(model.predict(same), model.predict(frame))
    same = frame.assign(flag=np.where(frame.flag, "yes", "No "))
    np.testing.assert_array_equal(model.predict(same), model.predict(frame))
    assert not model.table_.unseen(same)
    wrong = frame.assign(flag=np.where(frame.flag, "yes", "maybe"))
    with pytest.raises(ValueError, match="Column 'flag' had yes/no values in training"):
        model.predict(wrong)
    with pytest.raises(ValueError, match="Column 'flag' had yes/no values in training"):
        Predictor(model).predict({"x": 0.0, "flag": "maybe", "c": "a"})
    found = Predictor(model).predict({"x": 0.0, "flag": "yes", "c": "a"})
    assert found == Predictor(model).predict({"x": 0.0, "flag": True, "c": "a"})
    unknown = model.predict(frame.assign(flag=None))
    for mark in ("NA", "?", " n/a ", ""):  # of missing values
        np.testing.assert_array_equal(model.predict(frame.assign(flag=mark)), unknown)
        found = Predictor(model).predict({"x": frame.x[0], "flag": mark, "c": "a"})
        np.testing.assert_allclose(found, unknown[0])


def test_a_learned_mixture_fits_the_same_model_again(learned):
    assert isinstance(learned.kernel_, Mixture)
    for gamma in ("learn", "scale", 1.0):
        again = SparseLSSVR(kernel=learned.kernel_, gamma=gamma, n_basis=60, random_state=0)
        np.testing.assert_array_equal(again.fit(TABLE, Y).predict(NEW), learned.predict(NEW))
    with pytest.raises(ValueError, match=r"needs \d+ features, and X has \d+, made of .*'city'"):
        again.fit(TABLE.drop(columns="age"), Y)


def test_learned_scales_are_not_applied_to_standardised_numbers():
    first = SparseLSSVR(kernel="laplacian", n_basis=60, random_state=0).fit(TABLE, Y)
    given = {"kernel": first.kernel_, "gamma": first.gamma_}
    again = SparseLSSVR(**given, n_basis=60, random_state=0).fit(TABLE, Y)
    np.testing.assert_allclose(again.predict(TABLE), first.predict(TABLE), atol=0.01 * Y.std())


def test_rows_are_kept_however_dates_and_numbers_are_written(learned):
    wanted = learned.predict_interval(NEW[:5])
    text = TABLE["time"].dt.strftime("%d.%m.%Y %H:%M:%S")
    flags = TABLE["member"].map({True: "yes", False: "no"})
    model = pickle.loads(pickle.dumps(learned))
    for columns in ({"time": text}, {"age": TABLE["age"].astype(str)}, {"member": flags}):
        model.keep_rows(TABLE.assign(**columns, more="x")[["more", *TABLE.columns[::-1]]], Y)
        np.testing.assert_allclose(model.predict_interval(NEW[:5]), wanted, rtol=1e-9)
