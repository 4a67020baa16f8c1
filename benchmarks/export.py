"""Exported models: bytes of object code, seconds of ONNX Runtime, accuracy in fewer bytes.

A model of 200 points and 20 features is compiled with ``cc -Os`` and run in ONNX Runtime beside its
own `predict`. Default models of two data sets are stored in every type of numbers, with the
coefficients adjusted on rows held back from the training rows, and scored on the test rows.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ._harness import Options, Report, SkipBenchmark, ratio, time_interleaved
from ._tabular import Part, split

SETS = ("letter", "california")
KERNELS = ("rbf", "matern32", "laplacian")  # targets are those of the first
POINTS, FEATURES = 200, 20
_WRAPPER = (
    '#include "model.h"\nTYPE run(const REAL *x, REAL *out) { RETURN model_predict(x, out); }\n'
)


def run(options: Options) -> Report:
    """Measure sizes and seconds of a model of 200 points, then the accuracy of small numbers."""
    report = Report("export", f"{POINTS} points x {FEATURES} features; {', '.join(SETS)}", options)
    for kernel in KERNELS:
        model, X = _fitted(kernel, options)
        if kernel == KERNELS[0]:
            _sizes(report, model)
        _seconds(report, model, X, options)
    for name in SETS:
        _small_numbers(report, name, options)
    return report


def _fitted(kernel: str, options: Options) -> tuple[Any, np.ndarray]:
    from leansvm import SparseLSSVC

    rng = np.random.default_rng(0)
    X = rng.standard_normal((options.pick(10_000, 1_000), FEATURES))
    y = X[:, 0] * X[:, 1] + np.sin(X[:, 2]) > 0
    model = SparseLSSVC(
        C=1.0, kernel=kernel, gamma="scale", n_basis=POINTS, basis="random", random_state=0
    )
    return model.fit(X, y), X


# ---------------------------------------------------------------------------- sizes


def _sizes(report: Report, model: Any) -> None:
    from leansvm.export import to_c, to_js, to_onnx

    most = {("float64", "float64"): 40_000, ("float32", "int8"): 8_000}
    kinds = [("float64", "float64"), ("float32", "float32"), ("float32", "float16")]
    for dtype, store in [*kinds, ("float32", "int8")]:
        header = to_c(model, dtype=dtype, store=store)
        size = _object_code(header, dtype)
        what = f"C, {store} in {dtype}"
        report.rows.append({"what": what, "bytes": len(header), "object code": size})
        if (dtype, store) in most:
            report.at_most(f"{what}: bytes of object code", size, most[dtype, store])
    for store in ("float64", "int8"):
        report.rows.append(
            {"what": f"JavaScript, {store}", "bytes": len(to_js(model, store=store))}
        )
    for dtype in ("float64", "float32"):
        graph = to_onnx(model, dtype=dtype).SerializeToString()
        report.rows.append({"what": f"ONNX, {dtype}", "bytes": len(graph)})


def _object_code(header: str, dtype: str) -> int:
    """Return the bytes of code and tables that a compiler makes of a header."""
    if shutil.which("cc") is None or shutil.which("size") is None:
        raise SkipBenchmark("cc and size are needed to measure object code")
    words = {"REAL": "float" if dtype == "float32" else "double", "TYPE": "int", "RETURN": "return"}
    program = _WRAPPER
    for word, meaning in words.items():
        program = program.replace(word, meaning)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "model.h").write_text(header)
        (place / "model.c").write_text(program)
        subprocess.run(["cc", "-std=c99", "-Os", "-c", "model.c"], cwd=place, check=True)
        table = subprocess.run(
            ["size", "model.o"], cwd=place, check=True, capture_output=True, text=True
        ).stdout
    text, data, bss = (int(word) for word in table.splitlines()[1].split()[:3])
    return text + data + bss


# ---------------------------------------------------------------------------- seconds


def _seconds(report: Report, model: Any, X: np.ndarray, options: Options) -> None:
    import onnxruntime

    from leansvm.export import to_onnx

    for dtype in ("float64", "float32"):
        graph = to_onnx(model, dtype=dtype).SerializeToString()
        session, rows = onnxruntime.InferenceSession(graph), X.astype(dtype)
        timings = time_interleaved(
            {
                "ONNX Runtime": lambda session=session, rows=rows: session.run(None, {"X": rows}),
                "predict": lambda rows=rows: model.predict(rows),
            },
            repeats=options.pick(15, 3),
        )
        label = f"{model.kernel}, {dtype}"
        report.add_timings(label, timings)
        relative = ratio(timings["ONNX Runtime"], timings["predict"])
        report.rows.append(
            {
                "what": f"{len(X):,} rows, {label}",
                "ONNX Runtime [ms]": f"{1e3 * timings['ONNX Runtime'].median:.2f}",
                "predict [ms]": f"{1e3 * timings['predict'].median:.2f}",
                "ratio": f"{relative:.2f}",
            }
        )
        if model.kernel == KERNELS[0]:
            report.at_most(f"ONNX Runtime / predict, {label}", relative.median, 1.5)


# ---------------------------------------------------------------------------- accuracy


def _small_numbers(report: Report, name: str, options: Options) -> None:
    """Score a default model and the same in fewer bytes on the test rows."""
    from leansvm import SparseLSSVC, SparseLSSVR
    from leansvm.export._formula import formula_of
    from leansvm.export._store import compress, stored

    part = split(name, 0, options.pick(10_000, 1_000))
    held = len(part.y) // 5  # of the training rows
    machine = SparseLSSVC if part.is_classification else SparseLSSVR
    model = machine(random_state=0).fit(part.X[held:], part.y[held:])
    chosen = compress(model, part.X[:held], part.y[:held])
    full = _losses(part, formula_of(model))
    error, standard_error = full.mean(), full.std() / np.sqrt(len(full))
    formula = formula_of(model)
    rows = [part.X[:held, i] for i in range(part.X.shape[1])]
    for trial in chosen.trials:
        small = _losses(part, stored(formula, trial["store"], rows)).mean()
        report.rows.append(
            {
                "what": f"{name}, {formula.size:,} points, {trial['store']}",
                "bytes": trial["bytes"],
                "test error": f"{small:.5g}",
                "beyond float64, in standard errors": f"{(small - error) / standard_error:.3f}",
                "chosen by rows held back": "yes" if trial["store"] == chosen.store else "",
            }
        )
    what = f"{name}: error of int8 beyond float64, in standard errors"
    report.at_most(what, (small - error) / standard_error, 1.0)


def _losses(part: Part, formula: Any) -> np.ndarray:
    """Return for every test row whether its label is wrong, or its squared error."""
    from leansvm.export._evaluate import values

    f = values(formula, part.X_test)
    if not part.is_classification:
        return (f[:, 0] - part.y_test) ** 2
    winners = (f[:, 0] > 0).astype(int) if f.shape[1] == 1 else f.argmax(axis=1)
    return (formula.classes[winners] != part.y_test).astype(float)
