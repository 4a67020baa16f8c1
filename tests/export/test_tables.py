"""Exported models of tables: numbers with gaps, categories, means by level, dates."""

import json
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from leansvm import LSSVC, LSSVR, Predictor, SparseLSSVR
from leansvm.export import check, compress, register_onnx, to_c, to_js, to_onnx
from leansvm.export._evaluate import input_values, values_from
from leansvm.export._formula import formula_of
from leansvm.export._run import C_OPTIONS, run_c, run_js, run_onnx
from tests.export.test_extremes import in_node
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


LANGUAGES = {
    "C": (to_c, run_c, 1e-7),
    "JavaScript": (to_js, run_js, 1e-7),
    "ONNX": (lambda model: to_onnx(model, dtype="float64"), run_onnx, 1e-7),
    "ONNX in float32": (to_onnx, run_onnx, 1e-3),
}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("kind", ["learned", "one scale", "classes"])
def test_1000_rows_with_gaps_and_unseen_levels(model, language, kind):
    write, run, most = LANGUAGES[language]
    if kind != "learned":
        model = LSSVR().fit(TABLE, Y) if kind == "one scale" else LSSVC().fit(TABLE, np.sign(Y - 3))
    formula, exported = formula_of(model), write(model)
    given = [exported] if run is run_js else [exported, formula]
    found = run(*given, inputs_of(NEW))[1]
    wanted = model.decision_function(NEW) if kind == "classes" else model.predict(NEW)
    assert len(wanted) == 1000 and np.ptp(wanted) > 1
    np.testing.assert_allclose(np.ravel(found), wanted, atol=most)
    assert check(model, exported).difference < most


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("store", ["float64", "float32", "float16", "int8"])
def test_headers_compile_without_warnings(model, dtype, store, tmp_path):
    """Numbers, texts, means, dates: nothing is converted in silence."""
    (tmp_path / "model.h").write_text(to_c(model, dtype=dtype, store=store))
    (tmp_path / "main.c").write_text('#include "model.h"\nint main(void) { return 0; }\n')
    build = ["cc", *C_OPTIONS, "-Wsign-conversion", "-Wshadow", "main.c", "-o", "main", "-lm"]
    done = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "-Wconversion" in C_OPTIONS and "-Werror" in C_OPTIONS
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("write", [to_c, to_js, to_onnx])
def test_the_calendar_of_two_centuries(write):
    rng = np.random.default_rng(0)
    days = rng.integers(-29_000, 51_000, 400) + rng.random(400).round(4)  # 1890 to 2109
    first = ["1899-12-31", "1900-02-28", "1900-03-01", "2000-02-29", "2000-12-31", "2001-01-01"]
    times = pd.to_datetime(np.round(days * 8.64e10), unit="us")
    times = times.append(pd.DatetimeIndex(first))
    model = LSSVR(gamma=3.0).fit(pd.DataFrame({"t": times}), rng.normal(size=len(times)))
    assert len(model.table_.groups_) == 9  # days, and four cycles
    exported = to_onnx(model, dtype="float64") if write is to_onnx else write(model)
    assert check(model, exported).difference < 1e-11


@pytest.mark.parametrize("write", [to_c, to_js, to_onnx])
def test_times_of_day(write):
    times = [f"{i % 24:02d}:{i % 60:02d}" for i in range(100)]
    model = LSSVC().fit(pd.DataFrame({"t": times, "x": np.arange(100.0)}), np.arange(100) % 2)
    exported = to_onnx(model, dtype="float64") if write is to_onnx else write(model)
    assert check(model, exported).difference < 1e-11


BOOLEANS = pd.DataFrame(
    {
        "gaps": pd.array([True, False, None, True] * 25, dtype="boolean"),
        "full": pd.array([True, False] * 50, dtype="boolean"),
        "size": np.arange(100.0),
        "text": list("abcde") * 20,
        "note": [f"note {i}" for i in range(100)],  # is left out
    }
)


@pytest.mark.parametrize("write", [to_c, to_js, to_onnx])
@pytest.mark.parametrize("names", [["gaps", "size"], ["gaps", "full", "text", "note"]])
def test_booleans_with_missing_values(write, names):
    table = BOOLEANS[names]
    model = LSSVC().fit(table, np.arange(100) % 3 == 0)
    exported = to_onnx(model, dtype="float64") if write is to_onnx else write(model)
    assert check(model, exported).difference < 1e-11
    formula = formula_of(model)
    found = values_from(formula, input_values(formula, table))
    np.testing.assert_allclose(found[:, 0], model.decision_function(table), atol=1e-11)
    small = compress(model, table, np.arange(100) % 3 == 0)
    rows = [[None if v is pd.NA else v for v in row] for row in table.to_numpy(object).tolist()]
    assert compress(model, rows, np.arange(100) % 3 == 0).trials == small.trials
    assert small.trials[0]["error"] <= small.trials[0]["allowed"]
    with pytest.raises(ValueError, match="'gaps' had yes/no values in training, but now '2'"):
        model.predict(table.assign(gaps=2))


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node")
def test_texts_in_javascript_are_those_of_frames(tmp_path):
    """Blank texts and "N/A" are missing, spaces do not count, numbers and booleans become texts."""
    levels = [None, "1", "1.5", "True", "b"] * 20
    model = LSSVR().fit(pd.DataFrame({"text": levels, "x": np.arange(100.0)}), np.arange(100) % 5)
    given = ["", " \t", "N/A", " b", None, "b", 1, 1.5, True, "unseen"]
    script = f"""for (const text of {json.dumps(given)})
  console.log(model.predict({{ text, x: 3 }}));"""
    found = np.array(in_node(tmp_path, to_js(model), script), float)
    wanted = model.predict(pd.DataFrame({"text": pd.Series(given, dtype=object), "x": 3.0}))
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    assert len(set(wanted[4:].round(6))) == 6


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node")
def test_javascript_refuses_what_python_refuses(tmp_path):
    """The rows of a `Predictor`: yes and no in several languages, no unknown columns."""
    table = pd.DataFrame(
        {
            "answer": [True, False, None, True] * 20,
            "code": ["01", "02", "07", "01"] * 20,
            "x": [1.0, 2.0, 3.0, np.nan] * 20,
        }
    )
    model = LSSVR().fit(table, np.arange(80) % 4)
    predictor = Predictor(model)
    row = {"answer": True, "code": "01", "x": 1.5}
    good = [row | {"answer": v} for v in (False, 0, 1, "yes", " Nein ", "wahr", "", None)]
    good += [row | {"code": v} for v in (1, 7, "7", " 02 ")]
    good += [row | {"x": v} for v in ("n/a", " 2.5 ", None, True)] + [{"x": 1.5}]
    bad = [row | {"answer": v} for v in (2, 0.5, "1", "maybe", -1)]
    bad += [row | {"x": v} for v in ("many", "0x10")]
    bad += [row | {"y": 1}, {"X": 1.5}, {}, row | {"code": {"a": 1}}, [1.5, "01"]]
    script = f"""for (const row of {json.dumps(good + bad)})
  try {{ console.log(model.predict(row)); }} catch (error) {{ console.log(error.message); }}
for (const row of [null, 5, "text", undefined])
  try {{ console.log(model.predict(row)); }} catch (error) {{ console.log(error.message); }}"""
    found = in_node(tmp_path, to_js(model), script)
    expected = [predictor.predict(row) for row in good]
    np.testing.assert_allclose(np.array(found[: len(good)], float), expected, atol=1e-12)
    messages, others = found[len(good) : -4], found[-4:]
    for row, message in zip(bad[:-2], messages[:-2], strict=True):
        with pytest.raises(ValueError, match=r"had|A row has") as raised:
            predictor.predict(row)
        if isinstance(row.get("answer"), float):  # text in a frame
            assert message == str(raised.value).replace("'0.5'", "0.5")
        else:
            assert message.replace("'", "") == str(raised.value).replace("'", "")
    assert messages[-2].startswith("Column 'code' had text in training, but now")
    assert messages[-1] == "a row has 3 values, not 2"
    assert set(others) == {"a row is an array of values, or an object with keys"}


DATES = pd.DataFrame(
    {
        "day": pd.date_range("2021-01-01", periods=400, freq="D"),
        "clock": [f"{i % 24:02d}:30" for i in range(400)],
        "vip": [True, False] * 200,
        "city": ["Oslo", "Rome", None, "Oslo"] * 100,
        "x": np.arange(400.0),
    }
)


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node")
def test_marks_of_missing_dates_in_javascript(tmp_path):
    model = LSSVR().fit(DATES[["day", "clock"]].mask(DATES.x % 9 == 5), np.arange(400.0))
    rows = [{"day": mark, "clock": mark} for mark in (None, "n/a", " - ", "NaT", "")]
    script = f"for (const row of {json.dumps(rows)}) console.log(model.predict(row));"
    found = np.array(in_node(tmp_path, to_js(model), script), float)
    np.testing.assert_allclose(found, Predictor(model).predict(rows[0]), atol=1e-9)
    np.testing.assert_allclose(Predictor(model).predict(rows), found, atol=1e-9)


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node")
def test_javascript_takes_no_other_number_for_days(tmp_path):
    """Milliseconds (`Date.now()`), seconds and 20210503 are no days since 1970."""
    model = LSSVC().fit(DATES[["day", "x"]], np.arange(400) % 7 > 3)
    good = [{"day": day, "x": 3} for day in ("2021-05-03", 18750)]
    bad = [{"day": day, "x": 3} for day in (1620000000000, 1620000000, 20210503, -800000)]
    script = f"""for (const row of {json.dumps(good + bad)})
  try {{ console.log(model.probabilities(row)[1]); }}
  catch (error) {{ console.log(error.message); }}"""
    found = in_node(tmp_path, to_js(model), script)
    wanted = Predictor(model).predict_proba(good[0])[1]
    np.testing.assert_allclose(np.array(found[:2], float), wanted, atol=1e-9)
    for row, message in zip(bad, found[2:], strict=True):
        assert message == (
            f"Column 'day' had dates in training, but now {row['day']}: correct the value, or make "
            f"it missing."
        )


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node")
def test_javascript_refuses_hours_beyond_the_day_and_dates_that_are_none(tmp_path):
    model = LSSVR().fit(DATES[["day", "clock"]], np.arange(400) % 7)
    rows = ["8.5", "0", "23.99", "24", "99", "-1", "Date.now()", "new Date()"]
    script = f"""for (const clock of [{", ".join(rows)}])
  try {{ console.log(model.predict({{ day: "2021-05-03", clock }})); }}
  catch (error) {{ console.log(error.message.slice(0, 43)); }}
try {{ model.predict({{ day: new Date(NaN) }}); }}
catch (error) {{ console.log(error.message); }}"""
    *found, last = in_node(tmp_path, to_js(model), script)
    assert float(found[0]) == pytest.approx(
        Predictor(model).predict({"day": "2021-05-03", "clock": "08:30"})
    )
    assert found[3:-1] == ["Column 'clock' had hours of a day (0 to 24)"] * 4
    assert found[-1] == "Column 'clock' had times of day in training"
    assert last.startswith("Column 'day' had dates in training, but now Invalid Date")


def test_exports_say_what_each_input_is():
    model = LSSVC().fit(DATES, np.arange(400) % 7 > 3)
    lines = to_c(model, name="it").splitlines()
    for entry in (
        " *   x[0] day: days since 1970-01-01, the time of day as a fraction, no time zone, "
        "NAN if missing",
        " *   x[1] clock: hours since midnight, 8.5 for 08:30, NAN if missing",
        " *   x[2] vip: 1 for yes (true), 0 for no (false), NAN if missing",
        " *   x[3] city: index of the text in it_texts_3, -1 for any other text, NAN if missing",
        ' *   (texts without spaces at the ends; "?" and "n/a" are missing values, if the',
        " *   int k = it_predict(x, out);  (the label is it_classes[k];",
        " *   it_probabilities(out, p);  (after predict)",
    ):
        assert entry in lines
    meanings = {i.name: i.doc_string for i in to_onnx(model).graph.input}
    assert meanings["city"] == 'text, "" if missing'
    assert meanings["clock"] == "hours since midnight, 8.5 for 08:30, NaN if missing"
    (numbers,) = to_onnx(LSSVC().fit(DATES[["x"]], np.arange(400) % 2)).graph.input
    assert numbers.doc_string == "columns: x"


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_headers_of_floats_compute_nothing_in_double(tmp_path):
    """sin, floor and the civil calendar, too: a processor may have no double precision."""
    model = LSSVC().fit(DATES, np.arange(400) % 7 > 3)
    header = to_c(model, dtype="float32")
    assert check(model, header).difference < 1e-5
    assert "double" not in header
    assert "  (a float holds a time of day in a date only to about three minutes)" in header
    (tmp_path / "model.h").write_text(header)
    (tmp_path / "main.c").write_text('#include "model.h"\nint main(void) { return 0; }')
    build = ["cc", *C_OPTIONS, "-Wdouble-promotion", "main.c", "-lm"]
    subprocess.run([*build, "-o", "main"], cwd=tmp_path, check=True)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_headers_define_what_they_do_with_impossible_dates(tmp_path):
    """A cast of 1e300 to a whole number is undefined in C."""
    model = LSSVC().fit(DATES[["day"]], np.arange(400) % 7 > 3)
    (tmp_path / "model.h").write_text(to_c(model))
    days = ("1e300", "-1e300", "1e18", "INFINITY", "NAN", "18750")
    calls = "".join(f'x[0] = {day}; printf("%d\\n", model_predict(x, out));' for day in days)
    (tmp_path / "main.c").write_text(
        f'#include <stdio.h>\n#include "model.h"\nint main(void) {{ double x[1], out[1]; {calls} }}'
    )
    build = ["cc", *C_OPTIONS, "main.c", "-o", "main", "-lm"]
    checked = ["-fsanitize=undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
    if subprocess.run(
        [*build, *checked], cwd=tmp_path, capture_output=True, check=False
    ).returncode:
        pytest.skip("the compiler has no sanitizer")
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[3] == "-1" and done.stdout.split()[5] in "01"


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_check_counts_labels_and_measures_in_units_of_the_output():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 2))
    score = 1000.0 * np.sin(X[:, 0]) + X[:, 1]
    number = LSSVR(C=100.0).fit(X, score)
    found = check(number, to_c(number, dtype="float32"))
    assert found.labels is None and 0 < found.largest < 1
    assert found.largest / found.difference > 1000  # a share of the coefficients hides units
    assert found.lowest < -500 < 500 < found.highest
    classes = LSSVC(C=100.0).fit(X, score > 0)
    module = to_c(classes)
    assert check(classes, module).labels == 0
    wrong = module.replace("out[k] + model_intercept[k]", "-out[k] + model_intercept[k]")
    assert wrong != module and check(classes, wrong).labels > 500
    with pytest.raises(ValueError, match="of another model"):
        check(number, to_c(LSSVC().fit(X[:, :1], score > 0)))


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node")
def test_javascript_refuses_unknown_categories_of_a_strict_encoder(tmp_path):
    table = pd.DataFrame({"city": ["a", "b", "c", "c"] * 5, "rooms": [1, 2, 3, 2] * 5})
    encoder = OneHotEncoder(drop="first")
    model = make_pipeline(encoder, LSSVR()).fit(table, np.arange(20) % 4)
    rows = [{"city": "a", "rooms": 1}, {"city": "z", "rooms": 1}, {"city": "a", "rooms": 4}]
    script = f"""for (const row of {json.dumps([*rows, {"rooms": 1}])})
  try {{ console.log(model.predict(row)); }} catch (error) {{ console.log(error.message); }}"""
    first, *others = in_node(tmp_path, to_js(model), script)
    assert float(first) == pytest.approx(model.predict(table[:1])[0])
    for row in rows[1:]:
        with pytest.raises(ValueError, match="Found unknown categories"):
            model.predict(pd.DataFrame([row]))
    wrong = [("z", "city"), (4, "rooms"), ("undefined", "city")]
    assert others == [f"Found unknown category {v} in column '{name}'." for v, name in wrong]


def test_graphs_take_dates_as_days_in_float64(model):
    kinds = {i.name: i.type.tensor_type.elem_type for i in to_onnx(model).graph.input}
    assert kinds["time"] == 11 and kinds["age"] == 1 and kinds["city"] == 8


def test_skl2onnx_refuses_text_and_dates(model):
    skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    register_onnx()
    with pytest.raises(ValueError, match="fitted on text or dates: use leansvm"):
        skl2onnx.to_onnx(model, np.zeros((1, TABLE.shape[1]), np.float32))


@pytest.mark.parametrize("write", [to_c, to_js, to_onnx])
def test_arrays_with_gaps_behind_a_scaler(write):
    X = np.random.default_rng(0).normal(3, 2, size=(80, 3))
    y = X[:, 0] > 3
    X[::7, 1] = np.nan
    model = make_pipeline(StandardScaler(), LSSVC()).fit(X, y)
    assert check(model, write(model)).difference < 1e-6


def test_the_rows_of_a_check_bring_no_warning_about_their_range(recwarn):
    rng = np.random.default_rng(0)
    X = rng.exponential(size=(1000, 2)) ** 2  # rows near the points reach below 0
    model = SparseLSSVR(1.0, "rbf", n_basis=50, random_state=0).fit(X, np.sin(X).sum(axis=1))
    graph = to_onnx(model, dtype="float64")
    recwarn.clear()
    assert check(model, graph).difference < 1e-12
    assert not recwarn.list
