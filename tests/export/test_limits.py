"""Metadata, edge rows, clear errors, and what is refused."""

import json
import shutil
import sys

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from leansvm import LSSVC, LSSVR, LowRankLSSVR, SparseLSSVR
from leansvm.export import check, to_c, to_js, to_onnx
from leansvm.low_rank import RBF
from tests import plain

WRITERS = {"c": to_c, "js": to_js, "onnx": to_onnx}


class OwnFunction(RBF):
    """A basis function that no writer knows."""


def data(n=40):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] * X[:, 1]


@pytest.mark.parametrize("writer", WRITERS.values(), ids=list(WRITERS))
def test_what_cannot_be_exported_is_said_with_the_way_out(writer):
    if writer is to_onnx:
        pytest.importorskip("onnx")
    X, y = data()
    with pytest.raises(NotFittedError, match="LSSVR is not fitted: call fit"):
        writer(LSSVR())
    with pytest.raises(NotFittedError, match="not fitted"):
        writer(make_pipeline(StandardScaler(), LSSVR()))
    K = X @ X.T
    with pytest.raises(ValueError, match=r"precomputed.*kernel='rbf'"):
        writer(LSSVR(kernel="precomputed").fit(K, y))
    with pytest.raises(ValueError, match=r"callable kernel.*kernel='rbf'"):
        writer(LSSVR(kernel=rbf_kernel).fit(X, y))
    own = LowRankLSSVR(3, function=OwnFunction(), tol=10.0, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match=r"OwnFunction.*function='simplex'"):
        writer(own)
    with pytest.raises(ValueError, match=r"Ridge cannot be exported.*estimator of leansvm"):
        writer(Ridge().fit(X, y))


def test_wrong_options_are_named():
    X, y = data()
    model = LSSVR().fit(X, y)
    with pytest.raises(ValueError, match="name must be a C identifier"):
        to_c(model, name="my model")
    with pytest.raises(ValueError, match="dtype must be one of float64, float32"):
        to_c(model, dtype="double")
    with pytest.raises(ValueError, match="store must be one of"):
        to_js(model, store="int4")
    with pytest.raises(ValueError, match="dtype must be 'float32' or 'float64'"):
        to_onnx(model, dtype="float16")


def test_graph_carries_the_metadata():
    pytest.importorskip("onnx")
    X, y = data()
    model = SparseLSSVR(1.0, kernel="rbf", gamma=1.0, n_basis=5, random_state=0).fit(X, y)
    graph = to_onnx(model, metadata={"target": "price", "rows": 40})
    facts = {p.key: p.value for p in graph.metadata_props}
    assert facts["model"] == "SparseLSSVR"
    assert json.loads(facts["metadata"]) == {"target": "price", "rows": 40}
    assert {o.domain: o.version for o in graph.opset_import} == {"": 18}


@pytest.mark.parametrize("kernel", ["rbf", "matern32", "matern52", "laplacian"])
def test_rows_at_the_end_of_the_world(kernel):
    """Rows so far away that squares overflow: only the intercept is left."""
    onnxruntime = pytest.importorskip("onnxruntime")
    X, y = data()
    model = LSSVR(kernel=kernel, gamma=0.5).fit(X, y)
    far = np.array([[1e200, 0.0, 0.0], [-1e300, 1e300, 0.0], [0.0, 0.0, 1e30]])
    graph = to_onnx(model, dtype="float64").SerializeToString()
    (found,) = onnxruntime.InferenceSession(graph).run(None, {"X": far})
    np.testing.assert_allclose(found, model.predict(far), rtol=1e-12)
    np.testing.assert_allclose(found, model.intercept_[0], rtol=1e-12)


def test_rows_far_from_zero_keep_their_digits():
    """Features around 10^4: float32 graphs and headers subtract a centre that float32 has."""
    pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    X = 1e4 + rng.integers(-2000, 2000, (60, 3)) / 1024  # float32 has them
    model = plain.SparseLSSVR(C=1.0, gamma=0.5, n_basis=20, random_state=0).fit(X, X[:, 0] - 1e4)
    assert check(model, to_onnx(model), n_rows=200).difference < 1e-6
    if shutil.which("cc"):
        assert check(model, to_c(model, dtype="float32"), n_rows=200).difference < 1e-6


def test_points_spread_wide_are_measured_by_differences():
    """Where |p|^2 is so large that a product would lose digits, columns are summed one by one."""
    pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    model = LSSVR(gamma=1e7).fit(X, X[:, 0])
    graph = to_onnx(model, dtype="float64")
    assert "Scan" in {node.op_type for node in graph.graph.node}
    assert check(model, graph, n_rows=200).difference < 1e-12
    near = to_onnx(LSSVR(gamma=1.0).fit(X, X[:, 0]), dtype="float64")
    assert "Scan" not in {node.op_type for node in near.graph.node}


def test_models_of_sparse_and_single_rows():
    pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    dense = rng.random((40, 5)) * (rng.random((40, 5)) < 0.4)
    for X in (sparse.csr_matrix(dense), dense.astype(np.float32)):
        model = LSSVC(gamma=0.7).fit(X, dense[:, 0] > 0)
        assert check(model, to_onnx(model, dtype="float64"), n_rows=100).difference < 1e-12


def test_negative_counts_give_no_number():
    """Python refuses them; elsewhere NaN comes out instead of a wrong number."""
    onnxruntime = pytest.importorskip("onnxruntime")
    X = np.abs(data()[0])
    model = LSSVR(kernel="chi2", gamma=0.5).fit(X, X[:, 0])
    graph = to_onnx(model, dtype="float64").SerializeToString()
    (found,) = onnxruntime.InferenceSession(graph).run(None, {"X": -X[:2]})
    assert np.isnan(found).all()


def test_labels_of_other_types():
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    X, y = data()
    for labels in (y > 0, np.where(y > 0, 1.0, -2.0), np.where(y > 0, 7, 3).astype(np.uint8)):
        model = LSSVC().fit(X, labels)
        graph = to_onnx(model, dtype="float64").SerializeToString()
        found = onnxruntime.InferenceSession(graph).run(["label"], {"X": X})[0]
        np.testing.assert_array_equal(found, model.predict(X))
        assert "_classes[] = {" in to_c(model)


def test_texts_that_have_the_word_name_stay_as_they_are():
    X, y = data()
    model = LSSVC().fit(X, np.where(y > 0, "NAME", "HOSTNAME"))
    header = to_c(model, name="mine", metadata={"FILENAME": "NAMES"})
    assert '"HOSTNAME", "NAME"' in header and "FILENAME: NAMES" in header
    assert "mine_classes[]" in header and "#ifndef mine_H" in header and "NAME_" not in header


def test_without_onnx_the_way_to_get_it_is_named(monkeypatch):
    X, y = data()
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r"\.\[onnx\]"):
        to_onnx(LSSVR().fit(X, y))


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_batches_of_any_size(kernel):
    onnxruntime = pytest.importorskip("onnxruntime")
    X, y = data()
    model = LSSVR(kernel=kernel, gamma=0.5).fit(X, y)
    session = onnxruntime.InferenceSession(to_onnx(model, dtype="float64").SerializeToString())
    whole = session.run(None, {"X": X})[0]
    for n_rows in (1, 7):
        part = session.run(None, {"X": X[:n_rows]})[0]
        np.testing.assert_allclose(part, whole[:n_rows], rtol=0, atol=1e-13)
        assert part.shape == (n_rows,)


def test_graphs_run_without_onnx_runtime(monkeypatch):
    pytest.importorskip("onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    X, y = data()
    for kernel in ("matern32", "laplacian"):
        model = LSSVR(kernel=kernel, gamma=0.5).fit(X, y)
        found = check(model, to_onnx(model, dtype="float64"), n_rows=20)
        assert found.engine == "onnx's reference evaluator"
        assert found.difference < 1e-12
