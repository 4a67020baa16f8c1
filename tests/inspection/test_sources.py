"""Answers do not depend on where the rows are."""

import numpy as np
import pytest
import sklearn
from scipy.sparse import csr_matrix

from leansvm import open_dataset
from leansvm.inspection import effects, inspect_rows, novelty
from tests.plain import PlainSparseLSSVR


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    return X, np.sin(X[:, 0]) + 0.2 * rng.normal(size=200), rng.normal(size=(20, 3))


def machine(X):
    return PlainSparseLSSVR(1.0, gamma=0.4, basis=X[:12].copy())


def answers(model, X_new):
    return [
        *(model.predict_interval(X_new, method=m) for m in ("jackknife+", "cv+", "normal")),
        model.predict_interval(X_new, adaptive=True),
        novelty(model, X_new),
    ]


def assert_same(model, rows, X_new, inspected):
    X, y, _ = rows
    expected = machine(X).fit(X, y)
    for a, b in zip(answers(model, X_new), answers(expected, rows[2]), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-9)
    found, other = inspect_rows(expected, X, y), inspect_rows(model, *inspected)
    for name in ("residual", "leverage", "influence", "suspicion", "novelty"):
        a, b = getattr(other, name), getattr(found, name)
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-9)


def test_files(rows, tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    X, y, X_new = rows
    pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "y": y}).to_parquet(
        tmp_path / "rows.parquet"
    )
    source = open_dataset(tmp_path / "rows.parquet", target="y")
    new = pandas.DataFrame(X_new, columns=list("abc"))
    assert_same(machine(X).fit(source), rows, new, (source,))


def test_sparse_rows(rows):
    X, y, X_new = rows
    model = machine(X).fit(csr_matrix(X), y)
    assert_same(model, rows, csr_matrix(X_new), (csr_matrix(X), y))


def test_float32(rows):
    X, y, X_new = (part.astype(np.float32) for part in rows)
    model, expected = machine(rows[0]).fit(X, y), machine(rows[0]).fit(*rows[:2])
    for options in ({}, {"adaptive": True}, {"method": "normal"}):  # folds of "cv+" are by bits
        found = model.predict_interval(X_new, **options)
        np.testing.assert_allclose(found, expected.predict_interval(rows[2], **options), atol=1e-4)
    found, other = inspect_rows(model, X, y), inspect_rows(expected, *rows[:2])
    np.testing.assert_allclose(found.influence, other.influence, atol=1e-6)


def test_other_array_libraries(rows, monkeypatch):
    xp = pytest.importorskip("array_api_strict")
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")  # scikit-learn asks for it
    X, y, _ = rows
    expected = effects(machine(X).fit(X, y), X)
    there = [xp.asarray(part) for part in rows]
    with sklearn.config_context(array_api_dispatch=True):
        model = machine(X).fit(there[0], there[1])
        assert_same(model, rows, there[2], there[:2])
        np.testing.assert_allclose(effects(model, there[0]).slope, expected.slope)
