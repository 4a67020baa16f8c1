"""Models in fewer bytes: what is lost, what is reported, what the writers make of it."""

import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from leansvm import LSSVC, LSSVR, LowRankLSSVR, SparseLSSVC
from leansvm.export import check, compress, to_c, to_js, to_onnx
from leansvm.export._evaluate import functions_of, values
from leansvm.export._formula import formula_of
from leansvm.export._store import (
    STORES,
    _factor_of_inverse,
    _rounded_in_turn,
    rounding_loss,
    stored,
    table_bytes,
)
from tests import plain


def waves(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)) * np.array([1.0, 10.0, 0.1, 1.0]) + 5.0
    return X, np.sin(X[:, 0]) + X[:, 2] * (X[:, 1] - 5.0)


@pytest.fixture(scope="module")
def model():
    X, y = waves()
    gamma = np.array([0.5, 0.005, 50.0, 0.0])
    return plain.SparseLSSVR(C=10.0, gamma=gamma, n_basis=60, random_state=0).fit(X, y)


@pytest.mark.parametrize("store", ["float32", "float16", "int8"])
def test_f_changes_little(model, store):
    X, y = waves(seed=1)
    formula = formula_of(model)
    small = stored(formula, store)
    assert small.store == store
    change = np.sqrt(np.mean((values(small, X) - values(formula, X)) ** 2))
    rounding = {"float32": 1e-7, "float16": 1e-3}.get(store)  # of numbers that are as large as 1
    assert change < (0.05 * np.std(y) if rounding is None else rounding * formula.band[0])


@pytest.mark.parametrize("store", ["float16", "int8"])
@pytest.mark.parametrize("dropped", [False, True])
def test_both_values_of_a_boolean_column_are_kept(store, dropped):
    """One of two categories has no column of its own; rows to refit on must have it too."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=200), "on": rng.random(200) < 0.5})
    frame["city"] = rng.choice(["A", "B", "C"], 200)
    y = 3 * frame["a"] + 6 * frame["on"]
    machine = plain.SparseLSSVR(C=10.0, gamma=0.3, n_basis=60, random_state=0)
    if dropped:
        frame["on"] = frame["on"].astype(float)
        one_hot = OneHotEncoder(drop="if_binary", sparse_output=False)
        machine = make_pipeline(
            make_column_transformer((one_hot, ["on"]), remainder="passthrough"), machine
        )
        frame = frame.drop(columns="city")
    model = machine.fit(frame, y)
    formula = formula_of(model)
    small = stored(formula, store)
    change = np.abs(values(small, frame) - values(formula, frame))
    assert change.max() < 0.1 * np.std(y)


def test_bytes(model):
    sizes = [table_bytes(stored(formula_of(model), store)) for store in STORES]
    assert sizes[:2] == [60 * 4 * 8, 60 * 4 * 4]  # 3 columns that count, and a coefficient
    assert sizes[2] == 60 * 4 * 2 + 4 * 4  # and the steps
    assert sizes[3] < sizes[2]


@pytest.mark.parametrize("store", ["float32", "float16", "int8"])
def test_writers_hold_the_numbers_that_were_rounded(model, store):
    """C and JavaScript give what NumPy gives with the rounded numbers, not what the model gives."""
    formula = stored(formula_of(model), store)

    class Rounded:
        n_features_in_ = 4

        def predict(self, X):
            return values(formula, X)[:, 0]

    rounded = Rounded()
    rounded.formula = formula
    if shutil.which("cc"):
        assert check(rounded, to_c(rounded), n_rows=100).difference < 1e-12
    if shutil.which("node"):
        assert check(rounded, to_js(rounded), n_rows=100).difference < 1e-12


@pytest.mark.parametrize("store", ["float16", "int8"])
def test_functions_with_shapes_and_linear_machines(store):
    X, y = waves(80)
    learned = LowRankLSSVR(5, function="simplex", tol=10.0, random_state=0).fit(X, y)
    linear = LSSVC(kernel="linear").fit(X, y > 0)
    for some in (learned, linear):
        formula = formula_of(some)
        change = values(stored(formula, store), X) - values(formula, X)
        assert np.max(np.abs(change)) < 0.1 * np.std(values(formula, X))
        if shutil.which("node"):
            assert check(some, to_js(some, store=store), n_rows=50).difference < 0.1


def test_large_coefficients_that_cancel_get_16_bits():
    X, y = waves(200)
    gamma = np.array([0.01, 1e-4, 1.0, 0.0])
    smooth = plain.SparseLSSVR(C=1e7, gamma=gamma, n_basis=80, random_state=0).fit(X, y)
    formula = formula_of(smooth)
    assert formula.band[0] > 1e4 * np.std(y)
    small = stored(formula, "int8")
    assert small.coef_store == "int16"
    assert np.sqrt(np.mean((values(small, X) - values(formula, X)) ** 2)) < 0.05 * np.std(y)


def test_float16_of_coefficients_that_cancel_keeps_the_labels():
    """Rounded alone, they changed the labels of most rows."""
    X, y = load_wine(return_X_y=True)
    model = LSSVC(C=1e4, gamma=0.01).fit(StandardScaler().fit_transform(X), y)
    formula = formula_of(model)
    assert formula.band[0] > 1e3
    assert rounding_loss(formula, stored(formula, "float16"))[0] < 0.01


@pytest.mark.parametrize("store", ["float32", "float16", "int8"])
def test_types_that_change_the_labels_are_refused(store):
    X, y = waves(200)
    model = LSSVC(C=1e8, gamma=1e-4).fit(X, np.where(y > 0, "high", "low"))
    for write in (to_c, to_js):
        with pytest.raises(ValueError, match=rf"^store='{store}' .* labels.*store='float64'"):
            write(model, store=store)
        assert write(model)
    with pytest.raises(ValueError, match=r"^dtype='float32' changes the predictions"):
        to_c(model, dtype="float32")
    number = LSSVR(C=1e8, gamma=1e-4).fit(X, np.sign(y))
    with pytest.raises(ValueError, match=r"moves f by \d+ % of its spread\. Use"):
        to_js(number, store=store)


def test_graphs_compute_in_float64_where_float32_changes_predictions():
    onnxruntime = pytest.importorskip("onnxruntime")
    X, y = waves(200)
    X = X.astype(np.float32)
    model = LSSVR(C=1e8, gamma=1e-4).fit(X.astype(float), y)
    session = onnxruntime.InferenceSession(to_onnx(model).SerializeToString())
    (found,) = session.run(None, {"X": X})
    assert np.abs(found - model.predict(X.astype(float))).max() < 1e-3 * np.std(y)


def test_rounding_in_turn_beats_rounding_alone():
    """Brute force: each later coefficient is the best one given those rounded before."""
    rng = np.random.default_rng(0)
    Phi = np.exp(-((rng.random((40, 1)) - np.linspace(0, 1, 6)) ** 2) * 4)
    H = Phi.T @ Phi + 1e-6 * np.eye(6)
    coef = rng.normal(size=(6, 1))
    rounded, steps = _rounded_in_turn(coef, _factor_of_inverse(H), 127)
    np.testing.assert_allclose(rounded / steps, np.rint(rounded / steps), atol=1e-9)
    current = coef.copy()
    for j in range(6):
        current[j] = np.clip(np.rint(current[j] / steps), -127, 127) * steps
        rest = slice(j + 1, 6)
        right = H[rest] @ coef - H[rest, : j + 1] @ current[: j + 1]
        current[rest] = np.linalg.solve(H[rest, rest], right)
    np.testing.assert_allclose(rounded, current, atol=1e-9)

    def lost(c):
        return float(((c - coef).T @ H @ (c - coef))[0, 0])

    assert lost(rounded) < 0.5 * lost(np.rint(coef / steps) * steps)


def test_compress_takes_the_smallest_that_is_good_enough(model):
    X, y = waves(seed=2)
    chosen = compress(model, X, y)
    assert [trial["store"] for trial in chosen.trials] == list(STORES)
    good = [t["store"] for t in chosen.trials if t["error"] <= t["allowed"]]
    assert chosen.store == good[-1]
    assert chosen.bytes == chosen.trials[STORES.index(chosen.store)]["bytes"]
    scored = chosen.trials[0]["error"]
    assert scored == pytest.approx(np.mean((model.predict(X[1::2]) - y[1::2]) ** 2))
    exact = compress(model, X, y, max_loss=0.0)
    assert exact.trials[0]["allowed"] == pytest.approx(scored)
    assert to_js(chosen) == to_js(model, store=chosen.store) or chosen.store == "int8"
    with pytest.raises(ValueError, match="compressed model"):
        to_onnx(compress(model, X, y, max_loss=np.inf))
    with pytest.raises(ValueError, match="stored as int8 already"):
        to_c(compress(model, X, y, max_loss=np.inf), store="float16")


def test_labels_are_scored_as_labels():
    X, y = waves()
    labels = np.where(y > 0, "high", "low")
    machine = SparseLSSVC(1.0, kernel="rbf", gamma=0.05, n_basis=20, random_state=0)
    chosen = compress(machine.fit(X[::2], labels[::2]), X[1::2], labels[1::2])
    wrong = np.mean(machine.predict(X[1::2][1::2]) != labels[1::2][1::2])
    assert chosen.trials[0]["error"] == pytest.approx(wrong)


def test_memory_is_asked_for_before_it_is_taken(model, monkeypatch):
    monkeypatch.setattr("leansvm.export._store.available_memory", lambda: 1000)
    with pytest.raises(MemoryError, match=r"60 points needs .* store='float32'"):
        to_c(model, store="int8")


@pytest.mark.parametrize(
    ("dtype", "store", "most"), [("float64", None, 40e3), ("float32", "int8", 8e3)]
)
def test_object_code_is_small(tmp_path, dtype, store, most):
    """200 points x 20 features."""
    if not (shutil.which("gcc") and shutil.which("size")):
        pytest.skip("gcc and size are not installed")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 20))
    full = LSSVC(C=1.0).fit(X, X[:, 0] > 0)
    real = {"float64": "double", "float32": "float"}[dtype]
    (tmp_path / "model.h").write_text(to_c(full, dtype=dtype, store=store))
    body = "{ return model_predict(x, out); }"
    text = f'#include "model.h"\nint run(const {real} *x, {real} *out) {body}\n'
    (tmp_path / "model.c").write_text(text)
    subprocess.run(["gcc", "-std=c99", "-Os", "-c", "model.c"], cwd=tmp_path, check=True)
    table = subprocess.run(
        ["size", "model.o"], cwd=tmp_path, check=True, capture_output=True, text=True
    ).stdout
    assert sum(int(word) for word in table.splitlines()[1].split()[:3]) <= most


def test_float16_of_large_numbers():
    """Numbers beyond what float16 holds are kept by their steps."""
    rng = np.random.default_rng(0)
    X = 1e6 * rng.normal(size=(30, 2))
    model = LSSVC(kernel="poly", degree=1, gamma=1e-12).fit(X, X[:, 0] > 0)
    formula = formula_of(model)
    small = stored(formula, "float16")
    assert np.isfinite(small.points).all()
    phi = functions_of(small, small.points)
    assert np.isfinite(phi).all()
