"""Exported regressors with target="log" and target="quantile" answer in units of y."""

import shutil

import numpy as np
import pandas as pd
import pytest

from leansvm import LSSVR, SparseLSSVR
from leansvm.export import check, compress, to_c, to_js, to_onnx
from tests.export.test_extremes import in_node

rng = np.random.default_rng(0)
X = rng.normal(size=(240, 3))
Y = np.exp(3.0 + np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=240))
BOTH = np.column_stack([Y, 1.0 / Y])
WRITERS = {
    "C": (to_c, {}, 1e-12),
    "C in float": (to_c, {"dtype": "float32"}, 1e-6),
    "JavaScript": (to_js, {}, 1e-12),
    "ONNX": (to_onnx, {"dtype": "float64"}, 1e-12),
    "ONNX in float32": (to_onnx, {}, 1e-6),
}


def needs_tool(language):
    tool = {"C": "cc", "J": "node"}.get(language[0])
    if tool and shutil.which(tool) is None:
        pytest.skip(f"no {tool}")
    if language.startswith("ONNX"):
        pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("language", WRITERS)
@pytest.mark.parametrize("target", ["log", "quantile"])
@pytest.mark.parametrize("kind", ["one target", "two targets", "learned"])
def test_exports_answer_in_units_of_y(language, target, kind):
    needs_tool(language)
    write, options, most = WRITERS[language]
    if kind == "learned":
        model = SparseLSSVR(n_basis=40, target=target, random_state=0).fit(X, Y)
    else:
        y = Y if kind == "one target" else BOTH
        model = LSSVR(C=10.0, gamma=0.3, target=target).fit(X, y)
    found = check(model, write(model, **options))
    assert found.difference < most
    assert 0 < found.lowest < found.highest <= Y.max() * 100
    # float32 rounds f, and the scale is steep at its ends
    assert found.largest < (1e-8 if most < 1e-9 else 1e-2) * found.highest


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node")
@pytest.mark.parametrize("target", ["log", "quantile"])
def test_a_table_with_gaps(tmp_path, target):
    table = pd.DataFrame(X, columns=list("abc")).assign(city=list("xyz") * 80)
    table.loc[::7, "a"] = np.nan
    model = LSSVR(target=target).fit(table, Y)
    for write in (to_c, to_js) if shutil.which("cc") else (to_js,):
        assert check(model, write(model)).difference < 1e-10
    (found,) = in_node(tmp_path, to_js(model), 'console.log(model.predict({ a: 1, city: "x" }));')
    row = pd.DataFrame([{"a": 1.0, "b": np.nan, "c": np.nan, "city": "x"}])
    assert float(found) == pytest.approx(model.predict(row)[0], rel=1e-9)


def test_graphs_give_nan_for_a_row_that_python_refuses():
    onnxruntime = pytest.importorskip("onnxruntime")
    for target in ("log", "quantile"):
        graph = to_onnx(LSSVR(target=target).fit(X, Y))
        session = onnxruntime.InferenceSession(graph.SerializeToString())
        rows = np.array([[0.0, 0.0, 0.0], [np.nan, 0.0, 0.0], [0.0, np.inf, 0.0]], np.float32)
        (found,) = session.run(None, {"X": rows})
        assert np.isfinite(found[0]) and np.isnan(found[1:]).all()


def test_compress_measures_errors_in_units_of_y():
    model = LSSVR(C=10.0, gamma=0.3, target="log").fit(X[:160], Y[:160])
    small = compress(model, X[160:], Y[160:])
    errors = (model.predict(X[161::2]) - Y[161::2]) ** 2
    assert small.trials[0]["error"] == pytest.approx(np.mean(errors))
    assert "Compressed(LSSVR, " in repr(small)
