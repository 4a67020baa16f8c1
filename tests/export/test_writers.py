"""Exported models give what the models give in Python: graphs, headers and modules.

All estimators x kernels x kinds of targets, on points of the models and rows near and far. Errors
are compared with sum |coef| max |k| + |intercept|: 1e-12 in float64, 1e-6 in float32.
"""

import json
import shutil
import subprocess

import numpy as np
import pytest

from leansvm.export import to_c, to_js, to_onnx
from leansvm.export._evaluate import functions_of, input_values, machine_columns, values
from leansvm.export._formula import formula_of
from leansvm.export._run import C_OPTIONS
from tests.export import models

CLASSIFIERS = [name for name in models.NAMES if "C_" in name or name == "clipped"]
EACH = [pytest.param(n, marks=[] if n in models.FEW else pytest.mark.slow) for n in models.NAMES]
TOGETHER = pytest.mark.parametrize(
    "names",
    [models.FEW, pytest.param(models.NAMES, marks=pytest.mark.slow)],
    ids=["few", "all"],
)
TOLERANCE = {"float64": 1e-12, "float32": 1e-6}


def expected(model):
    """Decision values, predictions or features of the rows, one column for each output."""
    method = next(n for n in ("decision_function", "transform", "predict") if hasattr(model, n))
    return np.asarray(getattr(model, method)(models.rows())).reshape(len(models.rows()), -1)


def scales(model):
    """What rounding errors are compared with, for every row and output."""
    formula = formula_of(model)
    phi = functions_of(formula, machine_columns(formula, input_values(formula, models.rows())))
    if formula.coef is None:
        return formula.band * np.maximum(1.0, np.linalg.norm(models.rows(), axis=1))[:, None]
    return formula.band * np.maximum(1.0, np.abs(phi).max(axis=1))[:, None]


def check_values(model, found, dtype):
    wanted = expected(model)
    assert np.shape(found)[0] == len(wanted)
    gap = np.abs(np.asarray(found, float).reshape(wanted.shape) - wanted)
    assert np.max(gap / scales(model)) < TOLERANCE[dtype]


def check_labels(model, found, dtype):
    """Labels are those of `predict`, unless two classes are nearly as high as each other."""
    f, band = expected(model), scales(model) * TOLERANCE[dtype]
    ordered = np.sort(np.hstack([-f, f]) if f.shape[1] == 1 else f, axis=1)
    clear = ordered[:, -1] - ordered[:, -2] > 2 * band.max(axis=1)
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(
        np.asarray(found)[clear].astype(str), model.predict(models.rows())[clear].astype(str)
    )


def check_probabilities(model, found, dtype):
    wanted = model.predict_proba(models.rows())
    slack = TOLERANCE[dtype] * (1 + model.calibration_slopes_.max() * scales(model).max())
    np.testing.assert_allclose(np.reshape(found, wanted.shape), wanted, rtol=0, atol=slack)


# ------------------------------------------------------------------ the formula itself


@pytest.mark.parametrize("name", EACH)
def test_formula(name):
    model = models.fitted(name)
    check_values(model, values(formula_of(model), models.rows()), "float64")


# ------------------------------------------------------------------ ONNX


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", EACH)
def test_graph(name, dtype):
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    model = models.fitted(name)
    graph = to_onnx(model, dtype=dtype)
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(None, {"X": models.rows().astype(dtype)}), strict=True))
    if name not in CLASSIFIERS:
        (result,) = found.values()
        assert result.dtype == dtype
        assert names == ["features" if "Basis" in name else "predictions"]
        assert (
            result.shape
            == (model.transform if "Basis" in name else model.predict)(models.rows()).shape
        )
        check_values(model, result, dtype)
        return
    assert found["scores"].shape == model.decision_function(models.rows()).shape
    check_values(model, found["scores"], dtype)
    check_labels(model, found["label"], dtype)
    assert ("probabilities" in found) == hasattr(model, "predict_proba")
    if "probabilities" in found:
        check_probabilities(model, found["probabilities"], dtype)


# ------------------------------------------------------------------ C


_MAIN = """#include <stdio.h>
{includes}
static REAL x[{rows}][{inputs}], out[64], p[64];
int main(void) {{
  if (fread(x, sizeof x, 1, stdin) != 1) return 1;
{calls}
  return 0;
}}
"""
_CALL = """  for (int i = 0; i < {rows}; i++) {{
    {predict}
    fwrite(out, sizeof *out, {name}_OUTPUTS, stdout);
    {more}
  }}"""


def compiled_run(folder, names, dtype):
    """Compile all headers as one program, run it, and return its numbers by model."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    rows, calls, widths = models.rows(), [], {}
    for name in names:
        model, formula = models.fitted(name), formula_of(models.fitted(name))
        (folder / f"{name}.h").write_text(to_c(model, name=name, dtype=dtype))
        predict, more = f"{name}_predict(x[i], out);", ""
        widths[name] = [formula.outputs]
        if name in CLASSIFIERS:
            predict = f"p[0] = (REAL){predict}"
            more = "fwrite(p, sizeof *p, 1, stdout);"
            widths[name] += [1]
        if formula.slopes is not None:
            more += f" {name}_probabilities(out, p); fwrite(p, sizeof *p, {name}_CLASSES, stdout);"
            widths[name] += [len(model.classes_)]
        calls.append(_CALL.format(rows=len(rows), name=name, predict=predict, more=more))
    text = _MAIN.format(
        includes="\n".join(f'#include "{name}.h"' for name in names),
        rows=len(rows),
        inputs=rows.shape[1],
        calls="\n".join(calls),
    )
    (folder / "main.c").write_text(text)
    real = {"float64": "double", "float32": "float"}[dtype]
    build = ["gcc", *C_OPTIONS, f"-DREAL={real}", "main.c", "-o", "main", "-lm"]
    subprocess.run(build, cwd=folder, check=True)
    done = subprocess.run(
        [folder / "main"], input=rows.astype(dtype).tobytes(), stdout=subprocess.PIPE, check=True
    )
    numbers, found = np.frombuffer(done.stdout, dtype).astype(float), {}
    for name, parts in widths.items():
        taken, numbers = np.split(numbers, [len(rows) * sum(parts)])
        found[name] = np.split(taken.reshape(len(rows), -1), np.cumsum(parts)[:-1], axis=1)
    assert not len(numbers)
    return found


@TOGETHER
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_headers(tmp_path, names, dtype):
    for name, found in compiled_run(tmp_path, names, dtype).items():
        model = models.fitted(name)
        check_values(model, found[0], dtype)
        if name in CLASSIFIERS:
            check_labels(model, model.classes_[found[1][:, 0].astype(int)], dtype)
        if len(found) == 3:
            check_probabilities(model, found[2], dtype)


# ------------------------------------------------------------------ JavaScript


_SCRIPT = """
import { readFileSync } from "node:fs";
const { names, rows } = JSON.parse(readFileSync("rows.json"));
const found = {};
for (const name of names) {
  const model = await import(`./${name}.mjs`);
  found[name] = rows.map((row) => [model.values(row), model.predict(row),
    model.probabilities ? model.probabilities(row) : null]);
}
console.log(JSON.stringify(found));
"""


@TOGETHER
def test_modules(tmp_path, names):
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    for name in names:
        (tmp_path / f"{name}.mjs").write_text(to_js(models.fitted(name)))
    (tmp_path / "main.mjs").write_text(_SCRIPT)
    rows = {"names": names, "rows": models.rows().tolist()}
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    done = subprocess.run(
        ["node", "main.mjs"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    for name, found in json.loads(done.stdout).items():
        model = models.fitted(name)
        f, labels, p = zip(*found, strict=True)
        check_values(model, f, "float64")
        if name in CLASSIFIERS:
            check_labels(model, labels, "float64")
        else:
            np.testing.assert_array_equal(np.ravel(labels), np.ravel(f))
        if p[0] is not None:
            check_probabilities(model, p, "float64")
