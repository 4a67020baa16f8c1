"""Saved models: equal after loading, refused when damaged, newer or made of foreign types."""

import copy
import io
import json
import pickle
import warnings
import zipfile

import joblib
import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, csr_matrix
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import load_iris
from sklearn.ensemble import StackingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.metrics import f1_score, make_scorer
from sklearn.model_selection import GridSearchCV, KFold, RandomizedSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import SVC

import leansvm
from leansvm import basis, low_rank, persistence
from leansvm.kernels import Kernel
from leansvm.model_selection import KFoldSums
from leansvm.papers import baselines
from leansvm.persistence import (
    ModelFileError,
    UntrustedTypesError,
    _archive,
    _plain,
    _schema,
)
from leansvm.persistence._plain import FORMER_NAMES
from leansvm.ridge.sums import Sums
from tests.versions import needs_callbacks

pytest.importorskip("skops")

X, y = load_iris(return_X_y=True)
PLAIN = {"C": "loo", "kernel": "rbf", "gamma": 0.05}  # nothing is learned: faster
MODELS = [
    leansvm.LSSVC(calibrate=True),
    leansvm.LSSVR(C="loo"),
    leansvm.L2SVC(),
    leansvm.SparseLSSVC(n_basis=20, basis=basis.PivotedCholesky()),
    leansvm.SparseLSSVR(n_basis=20, random_state=0),
    leansvm.ReducedSVC(kernel="rbf", gamma="scale", n_basis=20, random_state=0),
    leansvm.ReducedSVR(n_basis=20, random_state=0),
    leansvm.LowRankLSSVC(random_state=0),
    leansvm.LowRankLSSVR(n_basis=5, function=low_rank.Simplex(), random_state=0),
    make_pipeline(StandardScaler(), leansvm.KernelBasis(20, random_state=0), leansvm.LSSVC()),
    *(getattr(baselines, name)() for name in baselines.__all__),
    GridSearchCV(leansvm.LSSVC(), {"C": [1.0, 10.0]}, cv=2),
    RandomizedSearchCV(
        leansvm.LSSVC(),
        {"C": [1.0, 10.0]},
        n_iter=2,
        cv=KFold(2, shuffle=True, random_state=np.random.RandomState(0)),
        scoring={"a": "accuracy", "b": make_scorer(f1_score, average="macro")},
        refit="a",
    ),
    CalibratedClassifierCV(leansvm.LSSVC(), cv=2),
    CalibratedClassifierCV(leansvm.LSSVC(), cv=2, method="isotonic"),
    StackingClassifier([("svc", SVC()), ("l2", leansvm.L2SVC())], leansvm.LSSVC(), cv=2),
    leansvm.LSSVC(class_weight={np.int64(0): 1, 1: 2.5, 2: 3}),
    leansvm.SparseLSSVC(C="kfold", gamma=0.5, n_basis=20),
]


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.skops"
    persistence.save(leansvm.LSSVC().fit(X, y), path, metadata={"rows": 150})
    return path


def rewrite(path, **members):
    """Replace members of the archive; None leaves one out."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(buffer, "w") as new:
        for name in old.namelist():
            content = members.get(name.partition(".")[0], old.read(name))
            if content is not None:
                new.writestr(name, content)
    path.write_bytes(buffer.getvalue())


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_loaded_model_predicts_the_same(tmp_path, model):
    path = tmp_path / "model.skops"
    persistence.save(model.fit(X, y), path)
    loaded = persistence.load(path)
    assert type(loaded) is type(model)
    assert_array_equal(loaded.predict(X), model.predict(X))
    assert [file.name for file in tmp_path.iterdir()] == ["model.skops"]


def keeping_state(model):
    return model.set_params(keep_state=True) if "keep_state" in model.get_params() else model


def with_former_names(path):
    """Write the names of an earlier version into a file; return which ones it has now."""
    with zipfile.ZipFile(path) as archive:
        schema = json.loads(archive.read("schema.json"))
    former = {f"{kind.__module__}.{kind.__qualname__}": old for old, kind in FORMER_NAMES.items()}
    used = set()
    for node in _schema.nodes_of(schema):
        old = former.get(f"{node['__module__']}.{node['__class__']}")
        if old is not None:
            node["__module__"], _, node["__class__"] = old.rpartition(".")
            used.add(node["__class__"])
    rewrite(path, schema=json.dumps(schema))
    return used


@pytest.mark.parametrize("by_skops", [False, True], ids=["plain", "skops"])
@pytest.mark.parametrize(
    ("model", "classes"),
    [
        (leansvm.SparseLSSVC(1.0, "rbf", gamma=0.5, n_basis=9), {"KernelFeatures", "Sums"}),
        (
            leansvm.SparseLSSVC(KFoldSums(3), "rbf", gamma=0.5, n_basis=9),
            {"KernelFeatures", "FoldSums", "KFoldSums"},
        ),
        (leansvm.LowRankLSSVC(n_basis=3, function=low_rank.Simplex()), {"Simplex"}),
    ],
    ids=["sums", "folds", "functions"],
)
def test_files_of_earlier_versions_load(tmp_path, model, classes, by_skops):
    path = tmp_path / "model.leansvm"
    fitted = keeping_state(clone(model).set_params(random_state=0)).fit(X, y)
    if by_skops:
        fitted.extra_ = range(2)  # which is left to skops
    trusted = ["builtins.range"]
    persistence.save(fitted, path, trusted=trusted)
    assert with_former_names(path) >= classes
    loaded = persistence.load(path, trusted=trusted)
    assert_array_equal(loaded.predict(X), fitted.predict(X))
    if hasattr(fitted, "partial_fit"):
        assert_array_equal(loaded.partial_fit(X, y).dual_coef_, fitted.partial_fit(X, y).dual_coef_)


def test_former_names_of_other_classes_are_refused(tmp_path):
    path = tmp_path / "model.leansvm"
    model = leansvm.SparseLSSVC(1.0, "rbf", gamma=0.5, keep_state=True)
    persistence.save(model.fit(X, y), path)
    with zipfile.ZipFile(path) as archive:
        schema = archive.read("schema.json").decode()
    rewrite(path, schema=schema.replace(Sums.__module__, "leansvm.solvers.kfold"))
    with pytest.raises(UntrustedTypesError, match=r"leansvm\.solvers\.kfold\.Sums"):
        persistence.load(path)


@pytest.mark.parametrize("form", [csr_matrix, csr_array])
@pytest.mark.parametrize(
    "model",
    [
        leansvm.LSSVC(),
        leansvm.L2SVC(kernel="linear"),
        leansvm.ReducedSVC(kernel="rbf", gamma="scale", n_basis=20, random_state=0),
        leansvm.SparseLSSVC(n_basis=20, C=1.0, gamma=0.5, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_models_of_sparse_rows(tmp_path, model, form):
    rows = form(np.where(X > 2, X, 0))
    persistence.save(model.fit(rows, y), tmp_path / "m")
    loaded = persistence.load(tmp_path / "m")
    assert_array_equal(loaded.decision_function(rows), model.decision_function(rows))


def test_selected_columns(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcd")).assign(e=np.where(y > 0, "u", "v"))
    columns = make_column_transformer(
        (StandardScaler(), make_column_selector(dtype_include=np.number)),
        (OneHotEncoder(), make_column_selector(dtype_exclude=np.number)),
    )
    model = make_pipeline(columns, leansvm.LSSVC()).fit(frame, y)
    persistence.save(model, tmp_path / "m")
    assert_array_equal(persistence.load(tmp_path / "m").predict(frame), model.predict(frame))


@pytest.mark.parametrize("kind", [bool, np.bool])
def test_weights_of_boolean_classes(tmp_path, kind):
    weights = {kind(False): 1.0, kind(True): 2.0}
    persistence.save(leansvm.LSSVC(class_weight=weights).fit(X, y > 0), tmp_path / "m")
    assert persistence.load(tmp_path / "m").class_weight == weights


def test_keys_that_are_the_same_as_text_are_refused(tmp_path):
    model = leansvm.LSSVC().set_params(class_weight={1: 1.0, "1": 2.0})
    with pytest.raises(ValueError, match="same as text"):
        persistence.save(model, tmp_path / "m")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "model",
    [
        leansvm.SparseLSSVC(n_basis=20, random_state=0),
        leansvm.L2SVC(gamma=0.5),
        leansvm.L2SVC(kernel="linear"),
    ],
)
def test_partial_fit_continues_after_loading(tmp_path, model):
    model.partial_fit(X[::2], y[::2], classes=[0, 1, 2])
    persistence.save(model, tmp_path / "m")
    loaded = persistence.load(tmp_path / "m")
    assert_allclose(
        loaded.partial_fit(X[1::2], y[1::2]).decision_function(X),
        model.partial_fit(X[1::2], y[1::2]).decision_function(X),
        atol=1e-9,
    )


@pytest.mark.parametrize("by_pickle", [False, True])
@pytest.mark.parametrize("keep_state", [False, True])
@pytest.mark.parametrize(
    "model",
    [leansvm.SparseLSSVC(**PLAIN, n_basis=20, random_state=0), leansvm.L2SVC(gamma=0.5)],
    ids=lambda model: type(model).__name__,
)
def test_the_state_is_kept_on_request(tmp_path, model, keep_state, by_pickle):
    model.set_params(keep_state=keep_state).partial_fit(X[::2], y[::2], classes=[0, 1, 2])
    inside = make_pipeline(FunctionTransformer(), model)
    if by_pickle:
        loaded = pickle.loads(pickle.dumps(inside))[-1]
    else:
        persistence.save(inside, tmp_path / "m")
        loaded = leansvm.load(tmp_path / "m")[-1]
    assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    if keep_state:
        loaded.partial_fit(X[1::2], y[1::2])
        return
    some = np.flatnonzero(y != 1)
    for refused in ({}, {"classes": [0, 2]}):
        with pytest.raises(ValueError, match="keep_state=True"):
            loaded.partial_fit(X[some], y[some], **refused)
        assert_array_equal(loaded.classes_, [0, 1, 2])  # it stays what it was
    assert_array_equal(loaded.predict(X), model.predict(X))
    loaded.fit(X[::2], y[::2])  # brings the model into a state as if it had never been saved
    assert not loaded._saved_small and hasattr(model, "_sums") == hasattr(loaded, "_sums")


def test_saving_changes_nothing_in_the_model(tmp_path):
    model = leansvm.SparseLSSVC(**PLAIN, n_basis=20, random_state=0).fit(X, y)
    before = set(vars(model))
    persistence.save(model, tmp_path / "m")
    assert set(vars(model)) == before and "loo_residuals_" in before
    lost = before - set(vars(persistence.load(tmp_path / "m")))
    assert lost == before - set(vars(pickle.loads(pickle.dumps(model))))
    state = {"_features", "_sums", "_selected", "_left_out", "loo_residuals_"}
    assert lost == state | {"_rows", "_answers"}
    model.set_params(keep_state=True)  # the training rows are nobody's file
    assert before - set(vars(pickle.loads(pickle.dumps(model)))) == {"_rows", "_answers"}
    assert set(vars(copy.copy(model))) == before


@pytest.mark.parametrize(
    "model",
    [
        leansvm.SparseLSSVC(**PLAIN, n_basis=200, random_state=0),
        leansvm.SparseLSSVR(**PLAIN, n_basis=200, random_state=0),
        leansvm.ReducedSVC(gamma=0.05, n_basis=200, random_state=0),
        leansvm.LSSVC("loo"),
        leansvm.LSSVR(10.0, "rbf", gamma=0.05),
        leansvm.L2SVC(),
        leansvm.ReducedSVR(10.0, gamma=0.05, n_basis=200, random_state=0),
        leansvm.LowRankLSSVC(n_basis=5, tol=1.0),
        leansvm.LowRankLSSVR(n_basis=5, tol=1.0),
        leansvm.KernelBasis(200, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.parametrize("values", ["numbers", "float32", "whole", "yes or no"])
def test_a_pickle_is_no_larger_than_the_model_file(tmp_path, model, values):
    rng = np.random.default_rng(0)
    rows = {
        "numbers": rng.normal(size=(600, 20)),
        "float32": rng.normal(size=(600, 20)).astype(np.float32),
        "whole": rng.integers(0, 50, size=(600, 20)),
        "yes or no": rng.random(size=(600, 20)) < 0.5,
    }[values]
    model = clone(model).fit(rows, rows[:, 0] > np.mean(rows[:, 0]))
    model.save(tmp_path / "m")
    joblib.dump(model, tmp_path / "p")
    assert (tmp_path / "p").stat().st_size <= 1.1 * (tmp_path / "m").stat().st_size
    again = joblib.load(tmp_path / "p")
    method = "predict" if hasattr(model, "predict") else "transform"
    assert_array_equal(getattr(again, method)(rows), getattr(model, method)(rows))
    for name, value in vars(again).items():
        if isinstance(value, np.ndarray):
            assert value.flags.writeable and value.dtype == getattr(model, name).dtype


def test_a_deep_copy_of_a_model_has_plain_arrays():
    model = leansvm.SparseLSSVR(**PLAIN, n_basis=30).fit(np.round(10 * X), y)
    twin = copy.deepcopy(model)
    assert_array_equal(twin.support_vectors_, model.support_vectors_)
    assert twin.support_vectors_ is not model.support_vectors_
    basis = leansvm.KernelBasis(30).fit(np.round(10 * X))
    twin = copy.deepcopy(basis)
    assert_array_equal(twin.transform(X), basis.transform(X))
    assert twin._features.points is twin.support_vectors_ is not basis.support_vectors_


def test_models_have_methods_for_files(tmp_path):
    model = leansvm.SparseLSSVC(**PLAIN, n_basis=20, random_state=0).fit(X, y)
    model.save(tmp_path / "m", metadata={"rows": 150})
    assert_array_equal(leansvm.load(tmp_path / "m").predict(X), model.predict(X))
    assert persistence.read_metadata(tmp_path / "m")["metadata"] == {"rows": 150}


def test_mlflow_logs_and_loads(tmp_path):
    mlflow = pytest.importorskip("mlflow.sklearn")
    model = leansvm.SparseLSSVC(**PLAIN, n_basis=20, random_state=0).fit(X, y)
    mlflow.save_model(model, tmp_path / "m", serialization_format="cloudpickle")
    assert_array_equal(mlflow.load_model(str(tmp_path / "m")).predict(X), model.predict(X))


@pytest.mark.parametrize("by_pickle", [False, True])
@pytest.mark.parametrize("kernel", ["rbf", "precomputed"])
@pytest.mark.parametrize("penalty", [0.0, 2.0])
def test_rows_bring_intervals_back_to_a_small_file(tmp_path, by_pickle, kernel, penalty):
    K = X @ X.T if kernel == "precomputed" else X
    model = leansvm.SparseLSSVR(
        3.0, kernel, gamma=0.05, bias_penalty=penalty, n_basis=9, random_state=0
    )
    model.fit(K, X[:, 0] * X[:, 1])
    model.save(tmp_path / "m")
    loaded = pickle.loads(pickle.dumps(model)) if by_pickle else leansvm.load(tmp_path / "m")
    for method in ("jackknife+", "normal"):
        with pytest.raises(ValueError, match=r"keep_rows.*keep_state=True"):
            loaded.predict_interval(K[:5], method=method)
    with pytest.raises(ValueError, match="keep_state=True"):
        loaded.state()
    with pytest.raises(ValueError, match="not the rows"):
        loaded.keep_rows(K, X[:, 0])
    loaded.keep_rows(K, X[:, 0] * X[:, 1])
    for method in ("jackknife+", "cv+"):
        expected = model.predict_interval(K[:5], method=method)
        assert_allclose(loaded.predict_interval(K[:5], method=method), expected, rtol=1e-6)


def test_rows_bring_left_out_residuals_back_to_a_small_file(tmp_path):
    for model in (leansvm.SparseLSSVC(**PLAIN, n_basis=9), leansvm.LSSVR(**PLAIN)):
        model.fit(X, y)
        model.save(tmp_path / "m")
        loaded = leansvm.load(tmp_path / "m")
        with pytest.raises(AttributeError, match=r"without loo_residuals_: call keep_rows"):
            loaded.loo_residuals_  # noqa: B018
        assert_allclose(loaded.keep_rows(X, y).loo_residuals_, model.loo_residuals_, atol=1e-8)


def test_warm_start_goes_on_from_a_small_file(tmp_path):
    model = leansvm.SparseLSSVC(**PLAIN, n_basis=10, warm_start=True, random_state=0).fit(X, y)
    persistence.save(model, tmp_path / "m")
    loaded = persistence.load(tmp_path / "m").set_params(n_basis=15).fit(X, y)
    assert_array_equal(loaded.support_[:10], model.support_)


def test_200_points_of_20_features_take_60_kB(tmp_path):
    rows = np.random.default_rng(0).normal(size=(1000, 20))
    model = leansvm.SparseLSSVC(**PLAIN, n_basis=200).fit(rows, rows[:, 0] > 0)
    persistence.save(make_pipeline(StandardScaler().fit(rows), model), tmp_path / "m")
    assert (tmp_path / "m").stat().st_size <= 60_000


def test_a_model_that_packs_too_well_is_not_packed(tmp_path, monkeypatch):
    """Files that unpack to many times their size are refused, so none is written."""
    monkeypatch.setattr(_archive, "_MOST_UNPACKED", (4, 2**18))
    model = leansvm.LSSVC().fit(X, y)
    model.zeros_ = np.zeros(2**17)
    persistence.save(model, tmp_path / "m")
    assert (tmp_path / "m").stat().st_size > 2**20
    assert_array_equal(persistence.load(tmp_path / "m").zeros_, model.zeros_)


MADE_HERE = [
    *MODELS[:9],
    make_pipeline(StandardScaler(), leansvm.KernelBasis(20, random_state=0), leansvm.LSSVC()),
    leansvm.LSSVC(class_weight={0: 1.0, 1: 2.5, 2: 3}),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_skops_writes_the_same_model(tmp_path, monkeypatch, model):
    """The own way of writing, without skops, against skops: every attribute, bit by bit."""
    persistence.save(keeping_state(model).fit(X, y), tmp_path / "own")
    monkeypatch.setattr(_plain, "write", lambda model: None)
    persistence.save(model, tmp_path / "skops")
    own, skops = (persistence.load(tmp_path / name) for name in ("own", "skops"))
    assert_array_equal(own.predict(X), skops.predict(X))
    if model in MADE_HERE:
        assert pickle.dumps(own) == pickle.dumps(skops)
        assert (tmp_path / "own").stat().st_size <= (tmp_path / "skops").stat().st_size


@pytest.mark.parametrize("model", MADE_HERE, ids=lambda model: type(model).__name__)
def test_what_is_plain_is_written_without_skops(tmp_path, monkeypatch, model):
    model.fit(X, y)
    monkeypatch.setattr(persistence, "_skops", lambda: pytest.fail("skops was asked"))
    persistence.save(model, tmp_path / "m")
    assert_array_equal(persistence.load(tmp_path / "m").predict(X), model.predict(X))


@pytest.mark.parametrize("model", MADE_HERE, ids=lambda model: type(model).__name__)
def test_skops_builds_the_same_model(tmp_path, monkeypatch, model):
    """The own way of building, without skops, against skops: every attribute, bit by bit."""
    persistence.save(keeping_state(model).fit(X, y), tmp_path / "m")
    own = persistence.load(tmp_path / "m")
    monkeypatch.setattr(_plain, "plain_types", lambda schema: None)
    assert pickle.dumps(persistence.load(tmp_path / "m")) == pickle.dumps(own)


@pytest.mark.parametrize(
    ("model", "here"),
    [
        (leansvm.SparseLSSVC(random_state=1), True),
        (leansvm.SparseLSSVC(random_state=np.random.RandomState(0)), False),
        (make_pipeline(StandardScaler(), SVC()), False),
        (FunctionTransformer(np.log1p), False),
    ],
)
def test_other_types_are_left_to_skops(tmp_path, model, here):
    persistence.save(model.fit(X, y), tmp_path / "m")
    with zipfile.ZipFile(tmp_path / "m") as archive:
        schema = json.loads(archive.read("schema.json"))
    assert (_plain.plain_types(schema) is not None) == here


def test_metadata_is_read_without_the_model(saved):
    rewrite(saved, schema=b"nonsense")
    facts = persistence.read_metadata(saved)
    assert facts["metadata"] == {"rows": 150} and facts["model"] == "LSSVC"
    assert facts["leansvm"] == leansvm.__version__
    with pytest.raises(ModelFileError, match=r"model\.skops is damaged"):
        persistence.load(saved)


def test_foreign_types_are_refused_by_name(tmp_path):
    path = tmp_path / "model.skops"
    foreign = make_pipeline(FunctionTransformer(), leansvm.LSSVC(**PLAIN)).fit(X, y)
    foreign.steps[0][1].func = json.dumps
    with pytest.raises(UntrustedTypesError, match=r"json\.dumps.*Nothing was written") as caught:
        persistence.save(foreign, path)
    assert caught.value.types == ["json.dumps"] and not path.exists()
    persistence.save(foreign, path, trusted=["json.dumps"])
    with pytest.raises(UntrustedTypesError, match=r"json\.dumps.*Nothing was loaded") as caught:
        persistence.load(path)
    assert caught.value.types == ["json.dumps"]
    assert persistence.load(path, trusted=["json.dumps"]).steps[0][1].func is json.dumps


def test_functions_of_this_package_are_not_trusted(tmp_path):
    path = tmp_path / "model.skops"
    with pytest.raises(UntrustedTypesError, match=r"leansvm\.persistence\.load"):
        persistence.save(FunctionTransformer(persistence.load), path)


def test_models_that_refer_to_themselves_are_refused(tmp_path):
    model = leansvm.LSSVC().fit(X, y)
    model.fit_report_["model"] = model
    with pytest.raises(ModelFileError, match="refers to itself"):
        persistence.save(model, tmp_path / "m")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("keep", [0, 10, 2000, -30])
def test_part_of_a_file_is_refused(saved, keep):
    saved.write_bytes(saved.read_bytes()[:keep])
    with pytest.raises(ModelFileError, match=r"model\.skops is (damaged or|not a model file)"):
        persistence.load(saved)


def test_flipped_bytes_are_found(saved):
    content = bytearray(saved.read_bytes())
    with zipfile.ZipFile(saved) as archive:
        arrays = [info for info in archive.infolist() if info.filename.endswith(".npy")]
    place = max(arrays, key=lambda info: info.file_size)
    middle = place.header_offset + place.compress_size // 2 + 100
    content[middle] ^= 0xFF
    saved.write_bytes(bytes(content))
    with pytest.raises(ModelFileError, match="is damaged"):
        persistence.load(saved)


def test_newer_format_asks_for_an_upgrade(saved):
    facts = {**persistence.read_metadata(saved), "format": 99, "leansvm": "9.9"}
    rewrite(saved, leansvm=json.dumps(facts).encode())
    with pytest.raises(ModelFileError, match=r"format 99, written by leansvm 9\.9.*upgrade"):
        persistence.load(saved)


def test_skops_file_of_others_is_refused(saved):
    rewrite(saved, leansvm=None)
    with pytest.raises(ModelFileError, match=r"was not written by leansvm\.persistence\.save"):
        persistence.load(saved)


@pytest.mark.parametrize("facts", [b"[]", b'{"format": "1"}', b"{", b"\xff"])
def test_nonsense_facts_are_refused(saved, facts):
    rewrite(saved, leansvm=facts)
    with pytest.raises(ModelFileError, match="is damaged"):
        persistence.load(saved)


def test_other_scikit_learn_is_mentioned_if_the_file_has_objects_of_it(saved):
    facts = {**persistence.read_metadata(saved), "scikit-learn": "1.2.0"}
    rewrite(saved, leansvm=json.dumps(facts).encode())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        persistence.load(saved)
    persistence.save(make_pipeline(StandardScaler(), leansvm.LSSVC()).fit(X, y), saved)
    rewrite(saved, leansvm=json.dumps(facts).encode())
    with pytest.warns(UserWarning, match=r"written with scikit-learn 1\.2\.0") as found:
        persistence.load(saved)
    assert found[0].filename == __file__


@needs_callbacks
@pytest.mark.parametrize(
    "model",
    [
        leansvm.SparseLSSVC(**PLAIN, n_basis=9),
        make_pipeline(StandardScaler(), leansvm.SparseLSSVC(**PLAIN, n_basis=9)),
        GridSearchCV(leansvm.LSSVC(), {"C": [1.0, 10.0]}, cv=2),
    ],
    ids=lambda model: type(model).__name__,
)
def test_callbacks_stay_in_memory(tmp_path, model):
    from sklearn.callback import ProgressBar

    path = tmp_path / "model.skops"
    persistence.save(model.set_callbacks(ProgressBar()).fit(X, y), path)
    assert vars(model)["_skl_callbacks"]
    loaded = persistence.load(path)
    assert "_skl_callbacks" not in vars(loaded)
    assert_array_equal(loaded.predict(X), model.predict(X))


def test_full_disk_keeps_the_old_file(saved, monkeypatch):
    before = saved.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        persistence.save(leansvm.LSSVC().fit(X, y), saved)
    assert caught.value.filename == str(saved)
    assert saved.read_bytes() == before


def test_missing_file_is_an_ordinary_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        persistence.load(tmp_path / "none")


def test_what_is_no_estimator_is_neither_saved_nor_loaded(tmp_path):
    import skops.io

    facts = {"format": 1, "model": "LSSVC", "metadata": {}, "scikit-learn": sklearn.__version__}
    for thing in ([1, 2], {"a": np.zeros(3)}, np.zeros(3), "text", leansvm.LSSVC, Kernel("rbf")):
        with pytest.raises(ModelFileError, match=r"m was not written: .* not an estimator"):
            persistence.save(thing, tmp_path / "m")
        assert not (tmp_path / "m").exists()
        dumped, schema = _archive.read_dumped(skops.io.dumps(thing))
        (tmp_path / "m").write_bytes(_archive.complete(dumped, schema, facts))
        name = type(thing).__name__
        with pytest.raises(ModelFileError, match=f"m is not a model file: .* type {name}, not"):
            persistence.load(tmp_path / "m")
        (tmp_path / "m").unlink()


@pytest.mark.parametrize("by_skops", [False, True])
def test_unfitted_models_are_neither_saved_nor_loaded(tmp_path, monkeypatch, by_skops):
    steps = [FunctionTransformer(np.log1p)] if by_skops else []
    model, path = make_pipeline(*steps, StandardScaler(), leansvm.SparseLSSVC()), tmp_path / "m"
    with pytest.raises(NotFittedError, match=r"m was not written: this Pipeline is not fitted"):
        persistence.save(model, path)
    with pytest.raises(NotFittedError, match=r"this SparseLSSVC is not fitted. Call fit before"):
        model[-1].save(path)
    assert not path.exists()
    with monkeypatch.context() as patch:
        patch.setattr(persistence, "_fitted", lambda model, path, saving: model)
        persistence.save(model, path)
    with pytest.raises(ModelFileError, match=r"m holds a Pipeline that is not fitted: save it"):
        persistence.load(path)


def test_large_metadata_can_be_read_again(tmp_path):
    scales = {f"x{i}": value for i, value in enumerate(np.random.default_rng(0).random(60_000))}
    persistence.save(leansvm.LSSVC().fit(X, y), tmp_path / "m", metadata=scales)
    assert persistence.read_metadata(tmp_path / "m")["metadata"] == scales


def test_metadata_that_could_not_be_read_again_is_refused(tmp_path):
    with pytest.raises(ModelFileError, match="could not be read back: its facts have more"):
        persistence.save(leansvm.LSSVC().fit(X, y), tmp_path / "m", metadata={"a": "a" * 2**25})
    assert not list(tmp_path.iterdir())


def test_metadata_must_be_json(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        persistence.save(leansvm.LSSVC().fit(X, y), tmp_path / "m", metadata={"a": float("nan")})
    assert not list(tmp_path.iterdir())
