"""Frames as people have them: each works, or is refused with the column's name and what to do."""

import datetime as dt
import decimal
import warnings
import zoneinfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.pipeline import make_pipeline

from leansvm import LSSVC, LSSVR, Predictor
from leansvm.tables import TableEncoder

N = 60
RNG = np.random.default_rng(0)
X = RNG.normal(size=N)
Y = X > 0
WORDS = np.where(Y, "yes", "no").astype(object)
DAYS = np.datetime64("2024-01-01") + np.arange(N).astype("timedelta64[D]")


def with_gaps(values):
    values = np.array(values, dtype=object)
    values[::7] = None
    return values


def frame(column, **more):
    return pd.DataFrame({"x": X, "c": column, **more})


# a column beside a number, and its kind (None: left out)
WORKS = {
    "text": (WORDS, "category"),
    "text with None": (with_gaps(WORDS), "category"),
    "text with NaN": (pd.Series(WORDS).where(Y), "category"),
    "text with pandas.NA": (pd.array(with_gaps(WORDS), dtype="string"), "category"),
    "text of Arrow": (pd.array(with_gaps(WORDS), dtype=pd.ArrowDtype(pa.string())), "category"),
    "text with blanks": (np.where(Y, "yes", "  "), "category"),
    "categories": (pd.Categorical(WORDS), "category"),
    "categories with gaps": (pd.Categorical(with_gaps(WORDS)), "category"),
    "categories of whole numbers": (pd.Categorical(np.arange(N) % 3), "category"),
    "categories of digits": (pd.Categorical((np.arange(N) % 3).astype(str)), "category"),
    "categories that never occur": (pd.Categorical(WORDS, ["yes", "no", "never"]), "category"),
    "categories of booleans": (pd.Categorical(Y), "category"),
    "booleans": (Y, "category"),
    "booleans with gaps": (with_gaps(Y), "category"),
    "booleans with pandas.NA": (pd.array(with_gaps(Y), dtype="boolean"), "category"),
    "booleans of Arrow": (pd.array(with_gaps(Y), dtype=pd.ArrowDtype(pa.bool_())), "category"),
    "numbers with NaN": (with_gaps(X).astype(float), "number"),
    "numbers with None": (with_gaps(X), "number"),
    "nullable whole numbers": (pd.array(with_gaps(range(N)), dtype="Int64"), "number"),
    "numbers of Arrow": (pd.array(with_gaps(X), dtype=pd.ArrowDtype(pa.float64())), "number"),
    "sparse numbers": (pd.arrays.SparseArray(np.where(Y, X, 0.0)), "number"),
    "decimals": ([decimal.Decimal(f"{x:.2f}") for x in X], "number"),
    "decimals as text": ([f"{x:.2f}" for x in X], "number"),
    "decimals as text with gaps": (with_gaps([f"{x:.2e}" for x in X]), "number"),
    "digits with leading zeros": ([f"0{i % 4}067" for i in range(N)], "category"),
    "whole numbers beyond 2^53": (2**60 + 1000 * np.arange(N), "number"),
    "few numbers and text": (np.where(Y, WORDS, np.arange(N) % 4), "category"),
    "True and text": ([True, "maybe", False] * 20, "category"),
    "dates": (DAYS, "date"),
    "dates with NaT": (np.where(Y, DAYS, np.datetime64("NaT")), "date"),
    "dates of Python": ([dt.date(2024, 1, 1) + dt.timedelta(i) for i in range(N)], "date"),
    "dates as text": (DAYS.astype(str), "date"),
    "dates with time and zone as text": ([f"{d}T08:30:00+02:00" for d in DAYS], "date"),
    "dates with a zone": (pd.DatetimeIndex(DAYS, tz="Europe/Oslo"), "date"),
    "dates of Arrow": (pd.array(DAYS, dtype=pd.ArrowDtype(pa.timestamp("us"))), "date"),
    "dates as categories": (pd.Categorical(DAYS.astype(str)), "date"),
    "dates that are none": (["2024-02-30", "2024-02-29", "2024-02-28"] * 20, "category"),
    "times of day": ([f"{i % 24:02d}:30" for i in range(N)], "time"),
    "times of Python": ([dt.time(i % 24, 30) for i in range(N)], "time"),
    "durations": (np.arange(N).astype("timedelta64[h]"), "number"),
    "periods": (pd.period_range("2024-01", periods=3, freq="M").repeat(20), "date"),
    "intervals": (pd.cut(X, 3), "category"),
    "a text with a NUL": (["a\0", "b", "c"] * 20, "category"),
    "very long texts": (["a" * 10_000, "b" * 10_000, "c"] * 20, "category"),
    "decimals as text with NA": ([*(f"{x:.3f}" for x in X[2:]), "NA", " n/a "], "number"),
    "decimal commas": (["1,5", "2,5", "3"] * 20, "category"),
    "nullable numbers in float32": (pd.array(with_gaps(X), dtype="Float32"), "number"),
    "decimals of Arrow": (
        pd.array([decimal.Decimal(i) / 4 for i in range(N)], pd.ArrowDtype(pa.decimal128(9, 2))),
        "number",
    ),
    "times of Arrow": (
        pd.array([dt.time(i % 24) for i in range(N)], pd.ArrowDtype(pa.time64("us"))),
        "time",
    ),
    "durations of Arrow": (
        pd.array([dt.timedelta(i) for i in range(N)], pd.ArrowDtype(pa.duration("us"))),
        "number",
    ),
    "a dictionary of Arrow": (
        pd.array(WORDS, dtype=pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))),
        "category",
    ),
    "dates and text": ([dt.date(2024, 1, 1), "soon", dt.date(2024, 1, 2)] * 20, "category"),
    "dates and times": ([dt.date(2024, 1, 1), dt.datetime(2024, 1, 2, 5)] * 30, "date"),
    "dates of other centuries": (["1700-01-01", "9999-12-31", "1969-12-31"] * 20, "date"),
    "unsigned numbers": (np.arange(N, dtype=np.uint64) << np.uint64(55), "number"),
    "nothing but nulls of Arrow": (pd.array([None] * N, dtype=pd.ArrowDtype(pa.null())), None),
    "all missing": ([None] * N, None),
    "all NaN": (np.full(N, np.nan), None),
    "all NaT": (np.full(N, np.datetime64("NaT", "s")), None),
    "constant": (["same"] * N, None),
    "all different": ([f"customer {i}" for i in range(N)], None),
}


@pytest.mark.parametrize(("column", "kind"), WORKS.values(), ids=WORKS)
def test_columns_that_work(column, kind):
    table = frame(column)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder = TableEncoder().fit(table, Y)
        features = encoder.transform(table)
        model = LSSVC().fit(frame(column, t=WORDS), Y)
        assert model.score(frame(column, t=WORDS), Y) > 0.9
    assert encoder.kinds_.get("c") == kind and ("c" in encoder.left_out_) == (kind is None)
    assert np.isfinite(features).all()
    rows = encoder.row_encoder()
    for i in (0, 1, 7):
        row = {"x": table["x"][i], "c": table["c"][i]}
        np.testing.assert_allclose(rows(row), features[i], atol=1e-9)


REFUSED = {
    "lists": ([[1, 2]] * N, r"'c' holds a list: argument must be a string"),
    "dicts": ([{"a": 1}] * N, r"'c' holds a dict: argument must be a string"),
    "sets": ([{1}, {2}] * 30, r"'c' holds a set: argument must be a string"),
    "series": ([pd.Series([1])] * N, r"'c' holds a Series: argument must be a string"),
    "complex numbers": (X + 1j, r"'c' holds complex numbers: replace it by two columns"),
    "infinite numbers": (np.where(Y, np.inf, X), "'c' holds infinity: replace it"),
    "numbers with a few words": (
        np.where(np.arange(N) == 3, "n/a", np.round(X, 9).astype(object)),
        r"'c' holds 59 numbers among its 60 values, but also 'n/a', for example. Make the other",
    ),
}


@pytest.mark.parametrize(("column", "message"), REFUSED.values(), ids=REFUSED)
def test_columns_that_are_refused(column, message):
    table = frame(pd.Series(list(column)), t=WORDS)
    for model in (TableEncoder(), LSSVC()):
        with pytest.raises((TypeError, ValueError), match=message):
            model.fit(table, Y)


def test_nested_columns_of_polars_are_refused():
    table = pl.DataFrame({"x": X, "c": [[1, 2]] * N})
    with pytest.raises(TypeError, match="'c' holds List"):
        LSSVC().fit(table, Y)


@pytest.mark.parametrize(
    "column",
    [
        pl.Series(list(WORDS), dtype=pl.Enum(["yes", "no"])),
        pl.Series(list(WORDS), dtype=pl.Categorical),
        pl.Series([dt.time(i % 24) for i in range(N)]),
        pl.Series([decimal.Decimal(i) / 4 for i in range(N)]),
        pl.Series([None if i % 5 == 0 else i for i in range(N)]),
        pl.Series([None if i % 5 == 0 else i % 2 == 0 for i in range(N)]),
        pl.Series(DAYS).cast(pl.Datetime("ns", "Asia/Tokyo")),
        pl.Series([dt.timedelta(hours=i) for i in range(N)]),
    ],
    ids=lambda column: str(column.dtype),
)
def test_types_of_polars(column):
    table = pl.DataFrame({"x": X, "t": list(WORDS), "c": column})
    model = LSSVC().fit(table, Y)
    assert "c" in model.table_.kinds_ and model.score(table, Y) > 0.9


def test_tables_of_arrow():
    table = pa.table({"x": X, "c": list(WORDS)})
    model = LSSVC().fit(table, Y)
    assert model.score(table, Y) > 0.9 and list(model.feature_names_in_) == ["x", "c"]


def test_lazy_frames_are_refused():
    with pytest.raises(TypeError, match=r"lazy frame.*pass X.collect\(\)"):
        LSSVC().fit(pl.DataFrame({"x": X}).lazy(), Y)


def test_arrays_of_dates():
    rows = np.column_stack([DAYS, DAYS[::-1]])
    model = LSSVR().fit(rows, np.arange(N))
    assert model.table_.kinds_ == {"x0": "date", "x1": "date"}
    assert model.score(rows, np.arange(N)) > 0.9


def test_levels_that_training_did_not_see():
    table = frame(np.where(np.arange(N) == 0, "once", WORDS))
    model = LSSVC().fit(table, Y)
    new = table.assign(c="other")
    assert model.table_.unseen(new) == {"c": ["other"]} and model.table_.unseen(table) == {}
    rare = model.decision_function(table.assign(c="once"))  # an unseen level is a rare one
    np.testing.assert_array_equal(model.decision_function(new), rare)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_arrays_are_taken_by_position_at_predict():
    model, table = fitted()
    rows = table.astype(object).to_numpy()
    np.testing.assert_allclose(model.predict(rows), model.predict(table), atol=1e-12)
    with pytest.raises(ValueError, match="X has 3 features"):
        model.predict(rows[:, :3])


def test_duplicate_names_are_refused():
    table = pd.DataFrame(np.column_stack([X, X]), columns=["a", "a"]).assign(t=WORDS)
    with pytest.raises(ValueError, match="more than one column 'a': rename"):
        LSSVC().fit(table, Y)


def test_names_that_are_numbers():
    table = pd.DataFrame({0: X, 1: WORDS})
    model = LSSVC().fit(table, Y)
    assert model.score(table, Y) > 0.9


def fitted():
    table = frame(WORDS, t=DAYS, b=Y)
    return LSSVR().fit(table, X), table


def test_a_column_that_is_missing_at_predict_is_named():
    model, table = fitted()
    with pytest.raises(ValueError, match="X has no column 'c', which the model uses"):
        model.predict(table.drop(columns="c"))
    with pytest.raises(
        ValueError, match=r"no columns 't', 'b', .*; .* are 'x', 'c'\. .*X\['t'\] = "
    ):
        model.predict(table[["x", "c"]])
    with pytest.raises(ValueError, match=r"X has no columns; the model needs columns '"):
        model.predict(pd.DataFrame([{}]))
    table["t"] = None
    assert np.isfinite(model.predict(table)).all()


def test_columns_may_be_moved_and_others_added():
    model, table = fitted()
    moved = table[["t", "b", "c", "x"]].assign(note="more")
    np.testing.assert_array_equal(model.predict(moved), model.predict(table))


@pytest.mark.parametrize("convert", [lambda frame: frame, pl.from_pandas])
def test_columns_of_numbers_with_gaps_may_be_moved(convert):
    table = pd.DataFrame({"a": [1.0, np.nan, 3.0, 4.0] * 5, "b": np.arange(20.0), "c": X[:20]})
    model = LSSVR().fit(convert(table), np.arange(20.0))
    moved = convert(table[["c", "a", "b"]])
    np.testing.assert_array_equal(model.predict(moved), model.predict(convert(table)))
    np.testing.assert_array_equal(Predictor(model).predict(moved), Predictor(model).predict(table))


@pytest.mark.parametrize("model", [LSSVR(), make_pipeline(TableEncoder(), LSSVR())])
def test_columns_of_numbers_alone_keep_their_order(model):
    """As scikit-learn's checks want it; the message says what to do."""
    table = pd.DataFrame({"a": np.arange(20.0), "b": X[:20]})
    model.fit(table, np.arange(20.0))
    moved = table[["b", "a"]]
    message = r"same order as they were in fit\.\nPass X\[list\(model\.feature_names_in_\)\]"
    with pytest.raises(ValueError, match=message):
        model.predict(moved)
    expected = model.predict(table)
    np.testing.assert_array_equal(model.predict(moved[list(model.feature_names_in_)]), expected)


@pytest.mark.parametrize("words", [{}, {"c": ["u", "v"] * 10}])
def test_spaces_around_names_do_not_count(words):
    table = pd.DataFrame({"a": np.arange(20.0), "b": X[:20], **words})
    model = make_pipeline(TableEncoder(), LSSVR()).fit(table, np.arange(20.0))
    spaced = table.rename(columns={"b": " b", "c": "c "}).assign(y=1)
    np.testing.assert_array_equal(model.predict(spaced), model.predict(table))


def test_another_kind_at_predict_is_named():
    model, table = fitted()
    with pytest.raises(ValueError, match="'x' had numbers in training, but now 'many'"):
        model.predict(table.assign(x="many"))
    with pytest.raises(ValueError, match="'t' had dates in training, but now 'soon'"):
        model.predict(table.assign(t="soon"))
    with pytest.raises(ValueError, match="'t' had dates in training, but now a number"):
        model.predict(table.assign(t=1.0))


def test_a_column_of_dates_may_be_empty_at_predict():
    model, table = fitted()
    expected = model.predict(table.assign(t=pd.NaT))
    np.testing.assert_array_equal(model.predict(table.assign(t=np.nan)), expected)


def test_other_types_of_the_same_values_at_predict():
    model, table = fitted()
    other = pd.DataFrame(
        {
            "x": table["x"].astype(object),
            "c": table["c"].astype("category"),
            "t": table["t"].astype(str),
            "b": table["b"].astype(int),
        }
    )
    np.testing.assert_allclose(model.predict(other), model.predict(table), atol=1e-12)


def test_a_column_may_be_all_missing_at_predict():
    model, table = fitted()
    empty = table.assign(x=None, c=None, t=None, b=None)
    assert np.isfinite(model.predict(empty)).all()
    assert np.isfinite(model.predict(pl.DataFrame({name: [None, None] for name in "xctb"}))).all()


def test_time_zones_are_those_of_training():
    oslo = pd.DatetimeIndex(DAYS, tz="Europe/Oslo") + pd.Timedelta(hours=7)
    encoder = TableEncoder(standardize=False).fit(pd.DataFrame({"t": oslo}))
    tokyo = oslo.tz_convert("Asia/Tokyo")
    want = encoder.transform(pd.DataFrame({"t": oslo}))
    np.testing.assert_allclose(encoder.transform(pd.DataFrame({"t": tokyo})), want)
    row = encoder.row_encoder()
    moment = dt.datetime(2024, 1, 1, 15, tzinfo=zoneinfo.ZoneInfo("Asia/Tokyo"))
    np.testing.assert_allclose(row({"t": moment}), want[0], atol=1e-9)


def test_ten_thousand_levels():
    rng = np.random.default_rng(0)
    level = rng.integers(10_000, size=30_000)
    effect = rng.normal(size=10_000)
    table = pd.DataFrame({"c": [f"level {i}" for i in level], "x": rng.normal(size=30_000)})
    encoder = TableEncoder().fit(table, effect[level])
    means = encoder.transform(table)[:, list(encoder.get_feature_names_out()).index("c:mean")]
    assert encoder.groups_.size < 40 and np.corrcoef(means, effect[level])[0, 1] > 0.95


def test_one_row_and_no_row():
    with pytest.raises(ValueError, match="1 sample"):
        TableEncoder().fit(frame(WORDS)[:1])
    with pytest.raises(ValueError, match="0 sample"):
        TableEncoder().fit(frame(WORDS)[:0])


def test_an_array_of_objects():
    rows = np.column_stack([X, WORDS]).astype(object)
    model = LSSVC().fit(rows, Y)
    assert model.table_.kinds_ == {"x0": "number", "x1": "category"}
    assert model.score(rows.tolist(), Y) > 0.9


def test_a_row_and_a_frame_take_the_same_dates_and_times():
    """Digits alone are no time of day, nor is a date; 20240301 is a date."""
    days = pd.date_range("2021-01-01", periods=400)
    times = [f"{i % 24:02d}:30" for i in range(400)]
    model = LSSVR().fit(pd.DataFrame({"day": days, "clock": times}), np.arange(400) % 7)
    predictor, row = Predictor(model), {"day": "2024-03-01", "clock": "08:30"}
    for same in ({"day": 20240301}, {"day": 20240301.0}, {"clock": "8:30"}):
        found = predictor.predict(row | same), model.predict(pd.DataFrame([row | same]))[0]
        np.testing.assert_allclose(found, predictor.predict(row))
    bad = ["20240301", "1230", "12", 8.5, dt.datetime(2024, 1, 1, 8, 30), dt.date(2024, 1, 1)]
    for wrong in ({"clock": v} for v in bad):
        for predict in (predictor.predict, lambda row: model.predict(pd.DataFrame([row]))):
            with pytest.raises(ValueError, match="'clock' had times"):
                predict(row | wrong)
    with pytest.raises(ValueError, match="'day' had dates"):
        predictor.predict(row | {"day": 5})


def test_pandas_or_polars_alone_is_enough():
    import subprocess
    import sys

    for name, other in (("pandas", "polars"), ("polars", "pandas")):
        code = (
            f"from importlib.machinery import PathFinder\n"
            f"find = PathFinder.find_spec\n"
            f"PathFinder.find_spec = lambda name, *more: (\n"
            f"    None if name.partition('.')[0] == '{other}' else find(name, *more))\n"
            f"import {name}, leansvm\n"
            f"table = {name}.DataFrame({{'x': [1.0, 2, 3, 4] * 5, 'c': list('aabb') * 5}})\n"
            f"model = leansvm.LSSVC().fit(table, [0, 1] * 10)\n"
            f"print(len(model.predict(table)))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout == "20\n", done.stderr
