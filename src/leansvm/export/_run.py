"""Run an exported model with what this machine has, and compare it with the model in Python.

C is compiled with the compiler ``cc``, JavaScript runs in Node, graphs run in ONNX Runtime or,
without it, in onnx's own (slow) evaluator.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._extras import needs
from leansvm.estimators.targets import to_scale
from leansvm.export._formula import Formula, formula_of
from leansvm.export._rows import rows_around
from leansvm.kernels._function import Array

_PROGRAM = """#include <stdio.h>
#include "model.h"
int main(void) {
  REAL x[NAME_INPUTS], out[NAME_OUTPUTS];
  while (fread(x, sizeof(REAL), NAME_INPUTS, stdin) == NAME_INPUTS) {
    NAME_predict(x, out);
    fwrite(out, sizeof(REAL), NAME_OUTPUTS, stdout);
  }
  return 0;
}
"""
_SCRIPT = """import { values } from "./model.mjs";
let text = "";
process.stdin.on("data", (part) => (text += part));
process.stdin.on("end", () => console.log(JSON.stringify(JSON.parse(text).map(values))));
"""
C_OPTIONS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-pedantic")


class MissingToolError(RuntimeError):
    """The program that an exported model is tried with is not installed."""


@dataclass(frozen=True)
class Check:
    """Result of testing an exported model.

    Attributes
    ----------
    engine : str
        The program that ran it.
    rows : int
        Number of rows: the model's points, and random ones around them.
    difference : float
        Largest difference from Python, as a share of the sum of |coefficients| + |intercept|.
    largest : float
        The same difference in units of the output: of the target, or of decision values.
    lowest, highest : float
        Range of the values in Python, to compare ``largest`` with.
    labels : int or None
        Number of rows whose label differs from Python's; None for models without classes.
    """

    engine: str
    rows: int
    difference: float
    largest: float = math.nan
    lowest: float = math.nan
    highest: float = math.nan
    labels: int | None = None


def check(model: Any, exported: Any, *, n_rows: int = 1000, random_state: int = 0) -> Check:
    """Run what `to_onnx`, `to_c` or `to_js` returned, and compare it with the model.

    Parameters
    ----------
    model : estimator
        That was exported.
    exported : onnx.ModelProto or str
        Graph, header or module.
    n_rows : int, default=1000
        Rows to compare on: points of the model, and random ones around them.
    random_state : int, default=0
        Seed of the random rows.

    Returns
    -------
    Check
        What ran it, the number of rows, the largest difference, and how many labels differ.

    Raises
    ------
    MissingToolError
        There is no C compiler, or no Node, to run it with.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm import LSSVR
    >>> from leansvm.export import check, to_js
    >>> X = np.linspace(0, 1, 5)[:, None]
    >>> model = LSSVR().fit(X, X[:, 0])
    >>> check(model, to_js(model)).difference < 1e-12  # doctest: +SKIP
    True
    """
    formula = formula_of(model)
    if not isinstance(exported, str):
        single = _takes_float32(exported)
        inputs = rows_around(formula, n_rows, random_state, _type(single))
        engine, found = run_onnx(exported, formula, inputs)
    elif exported.startswith("//"):
        inputs = rows_around(formula, n_rows, random_state)
        engine, found = run_js(exported, inputs)
    else:
        single = _in_float(exported)
        inputs = rows_around(formula, n_rows, random_state, _type(single))
        engine, found = run_c(exported, formula, inputs)
    wanted = python_values(model, formula, inputs)
    if found.size != wanted.size:
        raise ValueError("The export is of another model: it has other columns or other outputs.")
    found = found.reshape(wanted.shape)
    gaps = np.abs(found - wanted)
    learned = np.abs(_on_scale(formula, found) - _on_scale(formula, wanted))
    shares = learned / np.where(formula.band > 0, formula.band, 1.0)
    labels = None
    if formula.classes is not None:
        labels = int(np.sum(formula.class_numbers(found) != formula.class_numbers(wanted)))
    return Check(
        engine,
        len(wanted),
        float(np.max(shares)),
        float(np.max(gaps)),
        float(np.min(wanted)),
        float(np.max(wanted)),
        labels,
    )


def _on_scale(formula: Formula, values: Array) -> Array:
    """Return values on the scale on which f was learned, which is also that of coefficients."""
    if formula.scale is None:
        return values
    return to_scale(formula.scale, np.maximum(values, np.finfo(np.float32).tiny))


def _type(single: bool) -> Any:
    return np.float32 if single else np.float64


def python_values(model: Any, formula: Formula, inputs: Sequence[NDArray[Any]]) -> Array:
    """Return what the model gives in Python, one column for each output."""
    inputs = [as_dates(v, formula.dates.get(i)) for i, v in enumerate(inputs)]
    if formula.named:
        try:
            import pandas
        except ImportError as error:
            raise ImportError(needs("testing a model of a table", "pandas", "cli")) from error

        X: Any = pandas.DataFrame(dict(zip(formula.inputs, inputs, strict=True)))
    else:
        X = np.column_stack(inputs)
    name = next(n for n in ("decision_function", "transform", "predict") if hasattr(model, n))
    # unknown categories and rare values are among the rows on purpose
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Found unknown categories", UserWarning)
        warnings.filterwarnings("ignore", ".* outside the range of the training rows", UserWarning)
        return np.asarray(getattr(model, name)(X), np.float64).reshape(len(X), -1)


def as_dates(values: NDArray[Any], kind: str | None) -> Any:
    """Return days since 1970 as dates, hours as times of day; other values as they are."""
    if kind is None:
        return values
    unit, missing = 8.64e10 if kind == "date" else 3.6e9, np.isnan(values)
    micro = np.where(missing, 0, np.round(values * unit)).astype("datetime64[us]")
    dates = np.where(missing, np.datetime64("NaT"), micro)
    if kind == "date":
        return dates
    return np.array([None if np.isnat(d) else d.item().time() for d in dates], dtype=object)


def run_onnx(graph: Any, formula: Formula, inputs: Sequence[NDArray[Any]]) -> tuple[str, Array]:
    """Return what ran a graph, and its values."""
    feeds = onnx_feeds(graph, formula, inputs)
    names = [output.name for output in graph.graph.output]
    wanted = next(n for n in ("scores", "predictions", "features") if n in names)
    try:
        import onnxruntime
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        (found,) = ReferenceEvaluator(graph).run([wanted], feeds)
        return "onnx's reference evaluator", np.asarray(found, np.float64)
    session = onnxruntime.InferenceSession(graph.SerializeToString())
    (found,) = session.run([wanted], feeds)
    return f"ONNX Runtime {onnxruntime.__version__}", np.asarray(found, np.float64)


def onnx_feeds(
    graph: Any, formula: Formula, inputs: Sequence[NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """Return the inputs of a graph: one array, or one array each if some are texts or dates."""
    kind = _type(_takes_float32(graph))
    if not (formula.texts or formula.dates):
        return {"X": np.column_stack(inputs).astype(kind)}
    feeds = {}
    for i, (name, values) in enumerate(zip(formula.inputs, inputs, strict=True)):
        if values.dtype == object:
            values = np.array([v if isinstance(v, str) else "" for v in values], object)
        elif i not in formula.dates:
            values = values.astype(kind)
        feeds[name] = values[:, None]
    return feeds


def _takes_float32(graph: Any) -> bool:
    """Whether numbers go into a graph as float32; dates never do."""
    return any(i.type.tensor_type.elem_type == 1 for i in graph.graph.input)


def run_c(header: str, formula: Formula, inputs: Sequence[NDArray[Any]]) -> tuple[str, Array]:
    """Return the compiler of a header, and the values of the compiled program."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise MissingToolError("no C compiler (cc) was found")
    guard = re.search(r"^#ifndef (\w+)_H$", header, flags=re.MULTILINE)
    if guard is None:
        raise ValueError("This is not a header that to_c wrote.")
    name, kind = guard[1], _type(_in_float(header))
    real = "float" if kind is np.float32 else "double"
    program = _PROGRAM.replace("NAME", name).replace("REAL", real)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "model.h").write_text(header, encoding="utf-8")
        (place / "main.c").write_text(program, encoding="utf-8")
        build = [compiler, *C_OPTIONS, "main.c", "-o", "program", "-lm"]
        subprocess.run(build, cwd=place, check=True, capture_output=True)
        rows = np.column_stack(c_inputs(formula, inputs)).astype(kind)
        done = subprocess.run([place / "program"], input=rows.tobytes(), stdout=-1, check=True)
    return Path(compiler).name, np.frombuffer(done.stdout, kind).astype(np.float64)


def _in_float(header: str) -> bool:
    """Whether a header computes in float."""
    return re.search(r"^static .*_predict\(const float", header, flags=re.MULTILINE) is not None


def c_inputs(formula: Formula, inputs: Sequence[NDArray[Any]]) -> list[NDArray[np.float64]]:
    """Return what a header takes for input values: texts by their places."""
    texts, result = formula.texts, []
    for i, values in enumerate(inputs):
        if i in texts:
            places = {text: float(place) for place, text in enumerate(texts[i])}
            values = np.array(
                [places.get(v, -1.0) if isinstance(v, str) else np.nan for v in values]
            )
        result.append(values)
    return result


def run_js(module: str, inputs: Sequence[NDArray[Any]]) -> tuple[str, Array]:
    """Return Node's version and the values of a module."""
    node = shutil.which("node")
    if node is None:
        raise MissingToolError("Node (node) was not found")
    rows = [[_plain(value) for value in row] for row in zip(*inputs, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "model.mjs").write_text(module, encoding="utf-8")
        (place / "main.mjs").write_text(_SCRIPT, encoding="utf-8")
        done = subprocess.run(
            [node, place / "main.mjs"], input=json.dumps(rows), text=True, stdout=-1, check=True
        )
    return "Node", np.array(json.loads(done.stdout), np.float64)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: null for missing ones."""
    if value is None or value != value:
        return None
    return value if isinstance(value, str) else float(value)
