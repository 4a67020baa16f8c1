"""Large labels, ids, rows and names: what comes out is exact, or refused with the reason."""

import json
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from leansvm import LSSVC, LSSVR, LowRankLSSVR, SparseLSSVR
from leansvm.export import check, to_c, to_js, to_onnx
from leansvm.export._formula import formula_of
from leansvm.export._run import C_OPTIONS, run_c, run_js, run_onnx

LABELS = {
    "beyond 2**53": np.array([2**53, 2**53 + 1, -(2**53) - 1]),
    "uint64": np.array([2**63 + 1, 7, 2**64 - 1], np.uint64),
    "lowest": np.array([-(2**63), 2**63 - 1, 0]),
}
LARGE_LABELS = pytest.mark.parametrize("labels", LABELS.values(), ids=list(LABELS))
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="no Node")


def data(n=40):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, X[:, 0] * X[:, 1]


def classifier(labels):
    X, y = data()
    return LSSVC(gamma=0.5).fit(X, labels[np.digitize(y, [-0.3, 0.3])]), X


def compiled(folder, header, main):
    (folder / "model.h").write_text(header, encoding="utf-8")
    program = f'#include <stdio.h>\n#include "model.h"\nint main(void) {{ {main} return 0; }}\n'
    (folder / "main.c").write_text(program, encoding="utf-8")
    build = ["cc", *C_OPTIONS, "main.c", "-o", "program", "-lm"]
    subprocess.run(build, cwd=folder, check=True)
    return subprocess.run([folder / "program"], check=True, stdout=-1, text=True).stdout


def in_node(folder, module, script):
    (folder / "model.mjs").write_text(module, encoding="utf-8")
    (folder / "main.mjs").write_text('import * as model from "./model.mjs";\n' + script)
    done = subprocess.run(["node", folder / "main.mjs"], check=True, stdout=-1, text=True)
    return done.stdout.splitlines()


# ------------------------------------------------------------------ labels


@LARGE_LABELS
@needs_cc
def test_large_labels_in_c(labels, tmp_path):
    model, X = classifier(labels)
    row = ", ".join(map(repr, X[5].tolist()))
    main = f"double x[] = {{{row}}}, out[3]; "
    kind = "%llu" if labels.dtype.kind == "u" else "%lld"
    main += f'for (int k = 0; k < 3; k++) printf("{kind}\\n", model_classes[k]); '
    main += f'printf("{kind}\\n", model_classes[model_predict(x, out)]);'
    found = [int(line) for line in compiled(tmp_path, to_c(model), main).split()]
    assert found == [*model.classes_.tolist(), int(model.predict(X[5:6])[0])]


@LARGE_LABELS
@needs_node
def test_large_labels_in_javascript(labels, tmp_path):
    model, X = classifier(labels)
    script = f"""const rows = {json.dumps(X.tolist())};
for (const row of rows) console.log(String(model.predict(row)));
console.log(typeof model.classes[0]);"""
    *found, kind = in_node(tmp_path, to_js(model), script)
    assert [int(label) for label in found] == model.predict(X).tolist()
    assert kind == "bigint"
    assert "bigint" not in in_node(tmp_path, to_js(classifier(np.arange(3))[0]), script)


@LARGE_LABELS
def test_large_labels_in_graphs(labels):
    onnxruntime = pytest.importorskip("onnxruntime")
    model, X = classifier(labels)
    graph = to_onnx(model, dtype="float64").SerializeToString()
    (found,) = onnxruntime.InferenceSession(graph).run(["label"], {"X": X})
    assert found.tolist() == model.predict(X).tolist()


def test_large_labels_through_skl2onnx():
    skl2onnx = pytest.importorskip("skl2onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    from leansvm.export import register_onnx

    register_onnx()
    model, X = classifier(LABELS["uint64"])
    graph = skl2onnx.to_onnx(model, X[:1], options={"zipmap": False})
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    assert session.run(None, {"X": X})[0].tolist() == model.predict(X).tolist()


# ------------------------------------------------------------------ categories


def of_ids(ids):
    X = np.array(ids * 8, float)[:, None]
    y = np.array([0.0, 1.0] * (len(X) // 2))
    return make_pipeline(OneHotEncoder(handle_unknown="ignore"), LSSVR()).fit(X, y)


def test_ids_that_fall_together_are_refused():
    pytest.importorskip("onnx")
    model = of_ids([2**24, 2**24 + 1])
    for write in (to_c, to_onnx):
        with pytest.raises(ValueError, match=r"x0: float32 .* category 16777216 .* float64"):
            write(model, dtype="float32")
        assert check(model, write(model, dtype="float64"), n_rows=50).difference < 1e-12
    assert to_js(model)
    to_c(of_ids([2**24 - 2, 2**24 - 1]), dtype="float32")
    model = of_ids([2**53, 2**53 + 2])
    for write in (to_c, to_js):
        with pytest.raises(ValueError, match=r"x0: float64 .* turn these categories into text"):
            write(model)


# ------------------------------------------------------------------ what is no number


@needs_node
def test_blank_texts_are_missing_and_other_texts_refused(tmp_path):
    X, y = data()
    model = make_pipeline(SimpleImputer(), StandardScaler(), LSSVR()).fit(X, y)
    script = """for (const v of [null, "", " ", "\\t\\n", 0, "0.5", true])
  console.log(model.values([v, 1, 2])[0]);
for (const v of ["abc", [], {}, new Date(0)])
  try { console.log(model.values([v, 1, 2])); } catch (error) { console.log(error.name); }"""
    found = in_node(tmp_path, to_js(model), script)
    rows = [[np.nan, 1, 2]] * 4 + [[0, 1, 2], [0.5, 1, 2], [1, 1, 2]]
    np.testing.assert_allclose(np.array(found[:7], float), model.predict(rows), rtol=1e-12)
    assert found[7:] == ["TypeError"] * 4


def refused_rows():
    """Rows of a model fitted without missing values, of which predict takes the first alone.

    The model does not look at the last number, whose scale is 0.
    """
    X, _ = data()
    rows = [X[0].tolist()]
    for value in (np.nan, np.inf, -np.inf):
        rows += [[value, *rows[0][1:]], [*rows[0][:2], value]]
    return X, np.array(rows)


def refusing(labels):
    X, rows = refused_rows()
    model = LSSVC(kernel="rbf", gamma=[0.5, 1.0, 0.0]).fit(X, labels[np.digitize(X[:, 0], [0, 1])])
    for row in rows[1:]:
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            model.predict([row])
    return model, rows


TWO_OR_THREE = pytest.mark.parametrize("labels", [np.array([5, 7, 7]), np.array([5, 7, 9])])


@TWO_OR_THREE
@needs_cc
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rows_that_python_refuses_have_no_class_in_c(labels, dtype, tmp_path):
    model, rows = refusing(labels)
    real = {"float64": "double", "float32": "float"}[dtype]
    given = [", ".join(f"({real}){v}" for v in row) for row in rows]
    table = ", ".join(f"{{{row}}}" for row in given)
    table = table.replace("nan", "NAN").replace("inf", "INFINITY")
    main = f"{real} x[7][3] = {{{table}}}, out[3], p[3]; for (int i = 0; i < 7; i++) {{ "
    main += "int k = model_predict(x[i], out); model_probabilities(out, p); "
    main += 'printf("%d %d %d\\n", k, out[0] == out[0], p[1] == p[1]); }'
    header = to_c(model, dtype=dtype)
    first, *others = compiled(tmp_path, header, main).splitlines()
    wanted = model.classes_.tolist().index(model.predict(rows[:1])[0])
    assert first == f"{wanted} 1 1" and others == ["-1 0 0"] * 6


@TWO_OR_THREE
@needs_node
def test_rows_that_python_refuses_throw_in_javascript(labels, tmp_path):
    model, rows = refusing(labels)
    texts = ", ".join(str(row.tolist()) for row in rows)
    texts = texts.replace("nan", "NaN").replace("inf", "Infinity")
    script = f"""for (const row of [{texts}, [], [1, 2], [1, 2, 3, 4], {{}}, [1, "", 2]])
  try {{ console.log(model.predict(row)); }} catch (error) {{ console.log(error.message); }}"""
    first, *others = in_node(tmp_path, to_js(model), script)
    assert int(first) == model.predict(rows[:1])[0]
    words = "is missing, but training had no missing values: give a number."
    assert others[:2] == [f"Column 'x{i}' {words}" for i in (0, 2)] and words in others[-1]
    assert all(words in line or "must be finite" in line for line in others[:6])
    assert others[-2] == "A row has no columns; the columns of training are ['x0', 'x1', 'x2']."
    assert others[6:9] == [f"a row has 3 values, not {n}" for n in (0, 2, 4)]


@TWO_OR_THREE
def test_graphs_refuse_the_rows_that_python_refuses(labels):
    onnxruntime = pytest.importorskip("onnxruntime")
    model, rows = refusing(labels)
    for dtype in ("float64", "float32"):
        graph = to_onnx(model, dtype=dtype).SerializeToString()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(graph, options)
        given = rows.astype(dtype)
        assert session.run(["label"], {"X": given[:1]})[0] == model.predict(rows[:1])
        for row in given[1:]:
            with pytest.raises(Exception, match="out of data bounds"):
                session.run(None, {"X": np.array([given[0], row])})


@needs_cc
@needs_node
def test_numbers_that_may_be_missing_may_not_be_infinite(tmp_path):
    pytest.importorskip("onnxruntime")
    X, y = data()
    X[::5, 1] = np.nan
    model = LSSVR().fit(X, y)
    formula, rows = formula_of(model), np.array([[1.0, np.nan, 2.0], [1.0, np.inf, 2.0]])
    with pytest.raises(ValueError, match="infinity"):
        model.predict(rows)
    graph = to_onnx(model, dtype="float64")
    for found in (
        run_c(to_c(model), formula, list(rows.T))[1],
        run_onnx(graph, formula, list(rows.T))[1],
    ):
        assert found.ravel()[0] == pytest.approx(model.predict(rows[:1])[0])
        assert np.isnan(found.ravel()[1])
    script = """for (const v of [null, Infinity])
  try { console.log(model.predict([1, v, 2])); } catch (error) { console.log(error.message); }"""
    number, message = in_node(tmp_path, to_js(model), script)
    assert float(number) == pytest.approx(model.predict(rows[:1])[0])
    assert message == "x1 must be finite, not Infinity"


# ------------------------------------------------------------------ names


NAMES = ["what??/", "a ???/", "*??/", "<!--<script>", "</script>", "", "/*/", "__"]


def named():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(30, len(NAMES))), columns=NAMES)
    labels = np.where(X["__"] > 0, "<!-- ??/", "]]>")
    return LSSVC().fit(X, labels)


@needs_cc
def test_names_compile(tmp_path):
    assert compiled(tmp_path, to_c(named(), metadata={"a": "??/"}), "printf(model_classes[0]);")


def test_modules_may_stand_in_pages():
    module = to_js(named(), metadata={"<!--": "<script>"})
    assert not any(text in module for text in ("<!--", "<script", "</"))


@needs_node
def test_names_are_read_back(tmp_path):
    (line,) = in_node(tmp_path, to_js(named()), "console.log(JSON.stringify(model.features));")
    assert json.loads(line) == NAMES


@pytest.mark.parametrize("names", [["", "text"], ["text", "text"]])
def test_graphs_with_texts_need_names(names):
    pytest.importorskip("onnx")
    values = [[float(i), "ab"[i % 2]] for i in range(20)]
    table = pd.DataFrame(values, columns=["number", "text"]).astype({"text": object})
    columns = make_column_transformer((StandardScaler(), ["number"]), (OneHotEncoder(), ["text"]))
    model = make_pipeline(columns, LSSVR()).fit(table, np.arange(20.0))
    to_onnx(model)
    columns.feature_names_in_ = np.array(names, object)
    with pytest.raises(ValueError, match="a different name that is not empty"):
        to_onnx(model)


# ------------------------------------------------------------------ numbers


@needs_node
def test_cosine_of_many_columns():
    X = np.random.default_rng(0).normal(size=(2, 150_000))
    model = LSSVR(kernel="cosine").fit(X, [0.0, 1.0])
    found = run_js(to_js(model, store="float32"), list(X.T))[1]
    np.testing.assert_allclose(found.ravel(), model.predict(X), atol=1e-6)


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1e20, 1e30, 1e200, 1e308])
@pytest.mark.parametrize("tool", ["c", "float", "js", "onnx", "onnx32"])
def test_cosine_of_large_and_small_rows(tool, size):
    X, y = data()
    model = LSSVR(kernel="cosine").fit(X, y)
    rows = X / np.abs(X).max() * size
    if tool in ("float", "onnx32"):
        if not 1e-38 < size < 1e38:
            pytest.skip("float32 has no such numbers")
        rows = rows.astype(np.float32).astype(float)
    formula, columns = formula_of(model), list(rows.T)
    if tool in ("c", "float"):
        if shutil.which("cc") is None:
            pytest.skip("no C compiler")
        header = to_c(model, dtype="float32" if tool == "float" else "float64")
        found = run_c(header, formula, columns)[1]
    elif tool == "js":
        if shutil.which("node") is None:
            pytest.skip("no Node")
        found = run_js(to_js(model), columns)[1]
    else:
        pytest.importorskip("onnx")
        graph = to_onnx(model, dtype="float32" if tool == "onnx32" else "float64")
        found = run_onnx(graph, formula, columns)[1]
    np.testing.assert_allclose(found.ravel(), model.predict(rows), atol=1e-5)
    np.testing.assert_allclose(model.predict(rows), model.predict(X), atol=1e-6)


@pytest.mark.parametrize("size", [1e16, 1e20, 1e30])
@pytest.mark.parametrize("function", ["rbf", "simplex", "robust-rbf"])
def test_functions_learned_on_large_rows(function, size):
    pytest.importorskip("onnxruntime")
    X, y = data()
    X = (X * size).astype(np.float32).astype(float)
    model = LowRankLSSVR(3, function=function, tol=10.0, random_state=0).fit(X, y)
    assert np.ptp(model.predict(X)) > 0.1
    for dtype, most in (("float64", 1e-12), ("float32", 1e-6)):
        assert check(model, to_onnx(model, dtype=dtype), n_rows=100).difference < most
        if shutil.which("cc"):
            assert check(model, to_c(model, dtype=dtype), n_rows=100).difference < most


@pytest.mark.parametrize("size", [1e-60, 1e60])
def test_numbers_that_float32_lacks_are_refused(size):
    pytest.importorskip("onnx")
    X, y = data()
    model = LSSVR().fit((X + 1) * size, y)
    for write in (to_c, to_onnx):
        with pytest.raises(ValueError, match=r"out of range for float32.*scale the features"):
            write(model, dtype="float32")
        assert check(model, write(model, dtype="float64"), n_rows=50).difference < 1e-12
    if shutil.which("node"):
        assert check(model, to_js(model), n_rows=50).difference < 1e-12


@needs_node
def test_only_clear_dates_are_taken_as_text(tmp_path):
    days = pd.Series(pd.date_range("2024-01-01", periods=60))
    frame = pd.DataFrame({"day": days, "c": ["a", "b", None] * 20})
    model = SparseLSSVR(1.0, kernel="rbf", gamma=1.0, n_basis=10).fit(frame, np.arange(60.0))
    script = """
    const good = ["2024-01-06", "2024-01-06T00:00:00Z", "06.01.2024"];
    const found = [...good, "01/06/2024", "Jan 6 2024", true].map((day) => {
      try { return model.predict({ day, c: "a" }); } catch (error) { return error.message; }
    });
    console.log(JSON.stringify(found));"""
    *dates, slashes, words, truth = json.loads(in_node(tmp_path, to_js(model), script)[0])
    expected = model.predict(pd.DataFrame({"day": [days[5]], "c": ["a"]}))[0]
    assert dates == pytest.approx([expected] * 3)
    assert "Column 'day' had dates" in slashes and "but now '01/06/2024'" in slashes
    assert "but now 'Jan 6 2024'" in words and "but now true" in truth
