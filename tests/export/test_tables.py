"""Exported models of tables: numbers with gaps, categories, means by level, dates."""

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from leansvm import LSSVC, LSSVR, SparseLSSVR
from leansvm.export import check, to_c, to_js, to_onnx
from leansvm.export._formula import formula_of
from leansvm.export._run import run_c, run_js, run_onnx
from tests.tables.test_encoder import mixed, target

TABLE = mixed(300)
Y = target(TABLE).to_numpy()
NEW = mixed(1000, seed=5)
NEW.loc[::3, "city"] = None
NEW.loc[::4, "shop"] = "never seen"
NEW.loc[::5, "time"] = pd.NaT
NEW.loc[::7, "age"] = np.nan
DAYS = (NEW["time"] - pd.Timestamp(0)) / pd.Timedelta("1D")


def inputs_of(table):
    """Return what exported models take: dates as days, booleans as 1 and 0."""
    found = []
    for name in table:
        column = table[name].to_numpy()
        if name in ("id", "plan", "fax"):  # are left out: nobody looks at them
            column = np.zeros(len(table))
        if column.dtype.kind == "M":
            column = DAYS.to_numpy()
        elif column.dtype.kind == "b":
            column = column.astype(float)
        elif column.dtype.kind not in "f":
            column = np.array([None if v is None or v != v else v for v in column], dtype=object)
        found.append(column)
    return found


@pytest.fixture(scope="module")
def model():
    return SparseLSSVR(n_basis=40, random_state=0).fit(TABLE, Y)


def test_c_and_javascript_predict_what_python_does(model):
    formula, inputs, wanted = formula_of(model), inputs_of(NEW), model.predict(NEW)
    for run, exported in ((run_c, to_c(model)), (run_js, to_js(model))):
        found = run(exported, *([formula] if run is run_c else []), inputs)[1]
        np.testing.assert_allclose(np.ravel(found), wanted, atol=1e-7)


def test_graphs_predict_what_python_does():
    table, new = TABLE.drop(columns="time"), NEW.drop(columns="time")
    model = LSSVR().fit(table, Y)
    found = run_onnx(to_onnx(model), formula_of(model), inputs_of(new))[1]
    np.testing.assert_allclose(np.ravel(found), model.predict(new), atol=1e-3)
    assert check(model, to_onnx(model)).difference < 1e-6


def test_graphs_refuse_dates(model):
    with pytest.raises(ValueError, match="'time' holds dates, which graphs cannot take: use to_c"):
        to_onnx(model)


@pytest.mark.parametrize("write", [to_c, to_js])
def test_the_calendar_of_two_centuries(write):
    rng = np.random.default_rng(0)
    days = rng.integers(-29_000, 51_000, 400) + rng.random(400).round(4)  # 1890 to 2109
    first = ["1899-12-31", "1900-02-28", "1900-03-01", "2000-02-29", "2000-12-31", "2001-01-01"]
    times = pd.to_datetime(np.round(days * 8.64e10), unit="us")
    times = times.append(pd.DatetimeIndex(first))
    model = LSSVR(gamma=3.0).fit(pd.DataFrame({"t": times}), rng.normal(size=len(times)))
    assert len(model.table_.groups_) == 9  # days, and four cycles
    assert check(model, write(model)).difference < 1e-11


@pytest.mark.parametrize("write", [to_c, to_js])
def test_times_of_day(write):
    times = [f"{i % 24:02d}:{i % 60:02d}" for i in range(100)]
    model = LSSVC().fit(pd.DataFrame({"t": times, "x": np.arange(100.0)}), np.arange(100) % 2)
    assert check(model, write(model)).difference < 1e-11


@pytest.mark.parametrize("write", [to_c, to_js, to_onnx])
def test_arrays_with_gaps_behind_a_scaler(write):
    X = np.random.default_rng(0).normal(3, 2, size=(80, 3))
    y = X[:, 0] > 3
    X[::7, 1] = np.nan
    model = make_pipeline(StandardScaler(), LSSVC()).fit(X, y)
    assert check(model, write(model)).difference < 1e-6
