"""Pipelines are exported whole: imputers, encoders and scalers become arithmetic of columns."""

import shutil

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    RobustScaler,
    StandardScaler,
)

from leansvm import LSSVC, LSSVR, KernelBasis
from leansvm.export import check, register_onnx, to_c, to_js, to_onnx
from leansvm.export._evaluate import values
from leansvm.export._formula import formula_of

pd = pytest.importorskip("pandas")


def people(n=90):
    """A table with missing numbers and texts, rare texts, numbers as categories, odd names."""
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "age": rng.normal(300.0, 5.0, n),
            'city "of" birth */': rng.choice(
                ["Rome", "Oslo", 'Kyiv "?" \\', "Zürich"], n, p=[0.4, 0.3, 0.2, 0.1]
            ).astype(object),
            "size": rng.exponential(size=n),
            "rooms": rng.integers(1, 5, n).astype(float),
            "heat": rng.choice(["gas", "oil"], n).astype(object),
            "unused": rng.normal(size=n),
        }
    )
    y = np.where(frame["size"] + (frame.iloc[:, 1] == "Rome") > 1.2, "yes", "no")
    frame.loc[::7, "age"] = np.nan
    frame.loc[::11, "heat"] = np.nan
    frame.loc[5::13, "rooms"] = np.nan
    return frame, y


def everything():
    """Every step that can be exported, in branches."""
    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    rare = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=3)
    filled = make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore")
    )
    return ColumnTransformer(
        [
            ("numbers", numbers, ["age"]),
            ("city", rare, ['city "of" birth */']),
            ("heat", filled, ["heat"]),
            ("rooms", OneHotEncoder(handle_unknown="ignore", drop="first"), ["rooms"]),
            ("size", make_pipeline(RobustScaler(), MinMaxScaler(clip=True)), ["size"]),
            ("again", make_pipeline(MaxAbsScaler(), "passthrough"), ["size"]),
        ]
    )


@pytest.fixture(scope="module")
def pipeline():
    frame, y = people()
    return make_pipeline(everything(), LSSVC(C=2.0, gamma=0.1, calibrate=True)).fit(frame, y)


def test_formula_of_a_pipeline(pipeline):
    frame, _ = people()
    formula = formula_of(pipeline)
    found = values(formula, frame)[:, 0]
    wanted = pipeline.decision_function(frame)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12 * formula.band[0])


@pytest.mark.parametrize(("dtype", "limit"), [("float64", 1e-12), ("float32", 1e-6)])
def test_graph_of_a_pipeline(pipeline, dtype, limit):
    pytest.importorskip("onnxruntime")
    graph = to_onnx(pipeline, dtype=dtype, metadata={"made from": "people"})
    assert [i.name for i in graph.graph.input] == list(people()[0].columns)
    found = check(pipeline, graph, n_rows=300)
    assert found.rows == 300
    assert found.engine.startswith("ONNX Runtime")
    assert found.difference < limit


@pytest.mark.parametrize(("dtype", "limit"), [("float64", 1e-12), ("float32", 1e-6)])
def test_header_of_a_pipeline(pipeline, dtype, limit):
    if not (shutil.which("cc") or shutil.which("gcc")):
        pytest.skip("there is no C compiler")
    header = to_c(pipeline, dtype=dtype, metadata={"trick": "*/ #error // export function"})
    assert header.isascii() or "Zürich" in header.split("*/")[0]
    assert check(pipeline, header, n_rows=300).difference < limit


def test_module_of_a_pipeline(pipeline):
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    module = to_js(pipeline, metadata={"trick": "</script>"})
    assert "</script>" not in module
    assert check(pipeline, module, n_rows=300).difference < 1e-12


def test_check_sees_a_wrong_number(pipeline):
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    module = to_js(pipeline)
    wrong = module.replace("const intercept = [", "const intercept = [1000 + ")
    assert check(pipeline, wrong, n_rows=50).difference > 1.0


def test_learned_scales_of_texts_that_do_not_matter():
    pytest.importorskip("onnxruntime")
    frame, y = people()
    columns = ColumnTransformer(
        [
            ("n", make_pipeline(SimpleImputer(), StandardScaler()), ["age"]),
            ("c", OneHotEncoder(), ['city "of" birth */', "heat"]),
        ],
        sparse_threshold=0,
    )
    gamma = np.zeros(columns.fit_transform(frame).shape[1])
    gamma[0] = 0.3  # of the first number alone: no text is looked at any more
    model = make_pipeline(columns, LSSVC(gamma=gamma)).fit(frame, y)
    assert len(formula_of(model).columns) == 1
    assert check(model, to_onnx(model, dtype="float64"), n_rows=50).difference < 1e-12


def test_numbers_of_an_array_with_a_search_around():
    pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    X = rng.normal(200.0, 3.0, (60, 3))
    y = np.sin(X[:, 0]) + X[:, 1]
    pipe = make_pipeline(StandardScaler(), LSSVR())
    search = GridSearchCV(pipe, {"lssvr__C": [1.0, 10.0]}, cv=2).fit(X, y)
    for exported in (to_onnx(search, dtype="float64"), to_onnx(search)):
        limit = 1e-12 if exported.graph.input[0].type.tensor_type.elem_type == 11 else 1e-6
        assert check(search, exported, n_rows=100).difference < limit


def test_a_pipeline_that_begins_with_nothing():
    X = np.random.default_rng(0).normal(size=(30, 2))
    frame = pd.DataFrame(X, columns=["width", "height"])
    for steps in (["passthrough"], ["passthrough", StandardScaler()]):
        model = make_pipeline(*steps, LSSVR(gamma=0.5)).fit(frame, X[:, 0])
        formula = formula_of(model)
        assert formula.inputs == ("width", "height") and formula.named
        assert check(model, to_js(model), n_rows=20).difference < 1e-12


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_features_with_the_names_of_values_inside_the_graph(kernel):
    pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    names = ["v0", "v1", "c0", "_v1", "_c0", "__v2", "u", "d", "t", "X"]
    frame = pd.DataFrame({name: rng.normal(size=40) for name in names})
    frame["p"] = rng.choice(["Rome", "Oslo"], 40)
    texts = [("text", OneHotEncoder(), ["p"])]
    columns = ColumnTransformer(texts, remainder="passthrough")
    model = make_pipeline(columns, LSSVC(kernel=kernel, gamma=0.1)).fit(frame, frame["v0"] > 0)
    assert check(model, to_onnx(model, dtype="float64"), n_rows=30).difference < 1e-12
    clash = frame.rename(columns={"u": "scores"})
    with pytest.raises(ValueError, match=r"The feature 'scores' has the name of an output"):
        to_onnx(model.fit(clash, frame["v0"] > 0))


# ------------------------------------------------------------------ what cannot be exported


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([PCA(2)], "PCA cannot be exported"),
        ([FunctionTransformer(np.sqrt)], "function of your own"),
        ([SimpleImputer(missing_values=-1.0)], "missing_values=-1.0"),
        ([StandardScaler(), OneHotEncoder(handle_unknown="ignore")], "behind a scaler"),
        ([MinMaxScaler(clip=True), SimpleImputer()], "behind a scaler with clip=True"),
    ],
)
def test_a_step_without_a_form_is_named_with_the_way_out(steps, words):
    X = np.random.default_rng(0).random((20, 2))
    model = make_pipeline(*steps, LSSVC()).fit(X, X[:, 0] > 0.5)
    with pytest.raises(ValueError, match=words) as caught:
        to_js(model)
    assert "export only the last step" in str(caught.value)


# ------------------------------------------------------------------ skl2onnx


@pytest.mark.parametrize("calibrate", [False, True])
def test_skl2onnx_converts_pipelines_of_a_classifier(calibrate):
    onnxruntime, types, skl2onnx = _skl2onnx()
    frame, y = people()
    columns = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["age", "size"]),
            ("city", OneHotEncoder(handle_unknown="ignore"), ['city "of" birth */']),
        ]
    )
    model = make_pipeline(columns, LSSVC(calibrate=calibrate, gamma=0.1)).fit(frame, y)
    names = ["age", "size", 'city "of" birth */']
    kinds = [types.FloatTensorType, types.FloatTensorType, types.StringTensorType]
    inputs = [(name, kind([None, 1])) for name, kind in zip(names, kinds, strict=True)]
    graph = skl2onnx.to_onnx(
        model, initial_types=inputs, options={"zipmap": False}, target_opset=18
    )
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    arrays = [frame[[name]].to_numpy() for name in names]
    feeds = {
        given.name: array if array.dtype == object else array.astype(np.float32)
        for given, array in zip(session.get_inputs(), arrays, strict=True)
    }
    labels, scores = session.run(None, feeds)
    assert (labels == model.predict(frame)).mean() > 0.98
    if calibrate:
        np.testing.assert_allclose(scores, model.predict_proba(frame), atol=1e-4)
    else:
        f = model.decision_function(frame)
        np.testing.assert_allclose(scores, np.column_stack([-f, f]), atol=1e-4)


def test_skl2onnx_converts_regressors_and_features():
    onnxruntime, types, skl2onnx = _skl2onnx()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3))
    y = X[:, 0] * X[:, 1]
    models = (
        LSSVR(kernel="laplacian", gamma=0.2).fit(X, y),
        make_pipeline(KernelBasis(10, random_state=0), LogisticRegression()).fit(X, y > 0),
    )
    for model in models:
        inputs = [("X", types.DoubleTensorType([None, 3]))]
        is_classifier = hasattr(model, "predict_proba")
        options = {"zipmap": False} if is_classifier else None
        graph = skl2onnx.to_onnx(model, initial_types=inputs, options=options, target_opset=18)
        found = onnxruntime.InferenceSession(graph.SerializeToString()).run(None, {"X": X})
        wanted = model.predict_proba(X) if is_classifier else model.predict(X)[:, None]
        np.testing.assert_allclose(found[-1], wanted, atol=1e-5)


def test_skl2onnx_converts_classifiers_of_float_labels():
    onnxruntime, types, skl2onnx = _skl2onnx()
    X = np.random.default_rng(0).normal(size=(30, 3))
    model = LSSVC(gamma=0.2).fit(X, np.where(X[:, 0] > 0, 1.0, -2.0))
    inputs = [("X", types.DoubleTensorType([None, 3]))]
    options = {"zipmap": False}
    graph = skl2onnx.to_onnx(model, initial_types=inputs, options=options, target_opset=18)
    found = onnxruntime.InferenceSession(graph.SerializeToString()).run(None, {"X": X})
    np.testing.assert_array_equal(found[0], model.predict(X))


def _skl2onnx():
    onnxruntime = pytest.importorskip("onnxruntime")
    skl2onnx = pytest.importorskip("skl2onnx")
    types = pytest.importorskip("skl2onnx.common.data_types")
    register_onnx()
    return onnxruntime, types, skl2onnx
