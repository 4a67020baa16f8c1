"""Tables by the command line: columns that are kept, intervals, and the encoder of the library."""

import csv
import json
import warnings

import numpy as np
import pandas as pd
import pytest

from leansvm import Predictor, SparseLSSVC, persistence


def rentals(n, seed=0):
    """Hourly counts: text, a timestamp, gaps, an id with leading zeros and a formula as text."""
    rng = np.random.default_rng(seed)
    when = pd.Timestamp("2024-03-01") + pd.to_timedelta(rng.integers(0, 2000, n), unit="h")
    weather = rng.choice(["sun", "rain", ""], n, p=[0.5, 0.4, 0.1])
    heat = np.where(rng.random(n) < 0.1, np.nan, rng.normal(15, 5, n).round(2))
    mean = 30 * np.sin(2 * np.pi * when.hour / 24) + 10 * (weather == "sun") + np.nan_to_num(heat)
    return pd.DataFrame(
        {
            "id": [f"{i:06d}" for i in range(n)],
            "note": "=1+1",
            "when": when,
            "weather": weather,
            "heat": heat,
            "count": (mean + rng.normal(0, 3, n)).round(3),
        }
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    from typer.testing import CliRunner

    from leansvm.cli._app import app

    folder = tmp_path_factory.mktemp("rentals")
    rentals(400).to_csv(folder / "train.csv", index=False)
    rentals(1000, seed=1).to_csv(folder / "new.csv", index=False)
    done = CliRunner().invoke(
        app,
        ["train", str(folder / "train.csv"), "-t", "count", "-o", str(folder / "m.skops"), "-q"],
    )
    assert done.exit_code == 0, done.output
    return folder


def test_columns_are_kept_as_they_are_in_the_file(trained, run, tmp_path):
    command = [
        "predict",
        trained / "m.skops",
        trained / "new.csv",
        "--keep",
        "id",
        "--keep",
        "note",
    ]
    done = run(*command, "-o", "out.csv", "-q")
    assert done.exit_code == 0, done.output
    with open(tmp_path / "out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["id", "note", "prediction"] and len(rows) == 1000
    assert [row["id"] for row in rows[:2]] == ["000000", "000001"]
    assert {row["note"] for row in rows} == {"'=1+1"}  # a spreadsheet must not compute it
    assert run(*command, "-o", "out.parquet", "-q").exit_code == 0
    table = pd.read_parquet(tmp_path / "out.parquet")
    assert list(table) == ["id", "note", "prediction"] and set(table["note"]) == {"=1+1"}
    result = json.loads(run(*command, "--json").stdout)
    assert result["id"][:2] == ["000000", "000001"] and len(result["prediction"]) == 1000


def test_intervals_hold_their_share(trained, run, tmp_path):
    for level in (0.5, 0.9):
        done = run(
            "predict", trained / "m.skops", trained / "new.csv", "--interval", level, "-o", "o.csv"
        )
        assert done.exit_code == 0, done.output
        found = pd.read_csv(tmp_path / "o.csv")
        assert list(found) == ["prediction", "lower", "upper"]
        truth = pd.read_csv(trained / "new.csv")["count"]
        inside = truth.between(found["lower"], found["upper"]).mean()
        assert abs(inside - level) < 0.08


def test_predictions_are_those_of_python(trained, run, tmp_path):
    run("predict", trained / "m.skops", trained / "new.csv", "-o", "o.csv")
    model = persistence.load(trained / "m.skops")
    rows = pd.read_csv(trained / "new.csv", parse_dates=["when"])
    found = pd.read_csv(tmp_path / "o.csv")["prediction"]
    np.testing.assert_allclose(found, model.predict(rows), rtol=1e-5)
    assert model.table_.kinds_ == {"when": "date", "weather": "category", "heat": "number"}
    left_out = {"id": "all different", "note": "the same in all rows"}
    assert model.table_.left_out_ == left_out


@pytest.mark.parametrize(
    ("column", "options"),
    [
        ([f"{i % 8:04d}" for i in range(80)], ()),  # pandas reads 0 for 0000
        ([f"{1 + i % 3 / 2:.2f}" for i in range(80)], ("--column", "c=category")),
        ([f"{i % 28 + 1:02d}.03.2023" for i in range(80)], ()),
        ([f"202303{i % 28 + 1:02d}" for i in range(80)], ()),
        ([f"{i % 23}:{i % 60:02d}" for i in range(80)], ()),
        (["missing" if i % 9 == 0 else "abc"[i % 3] for i in range(80)], ()),
        (["--" if i % 9 == 0 else f"{i / 8}" for i in range(80)], ()),
    ],
    ids=["codes", "levels", "points", "compact", "clock", "no text", "no number"],
)
def test_a_frame_of_read_csv_is_predicted_as_the_file(column, options, run, tmp_path):
    x = np.random.default_rng(0).normal(size=80).round(3)
    y = np.where(x + 0.3 * (np.arange(80) % 3) > 0.2, "yes", "no")
    pd.DataFrame({"x": x, "c": column, "y": y}).to_csv(tmp_path / "d.csv", index=False)
    command = ("--target", "y", "-o", "m.skops", "--cv", "0", "--set", "n_basis=20", *options)
    assert run("train", "d.csv", *command).exit_code == 0
    assert run("predict", "m.skops", "d.csv", "-o", "p.csv").exit_code == 0
    found = persistence.load(tmp_path / "m.skops").predict_proba(pd.read_csv(tmp_path / "d.csv"))
    expected = pd.read_csv(tmp_path / "p.csv")
    np.testing.assert_allclose(found, expected.filter(like="probability"), atol=1e-5)


def test_what_is_refused(trained, run, tmp_path):
    model, new = trained / "m.skops", trained / "new.csv"
    done = run("predict", model, new, "--keep", "idd")
    assert done.exit_code == 2 and "no column 'idd'" in done.output
    done = run("predict", model, new, "--interval", "1.5")
    assert done.exit_code == 2 and "between 0 and 1" in done.output
    done = run("predict", model, new, "--interval", "0.9999")
    assert done.exit_code == 2 and "with 400 training rows, it can be at most 0.997" in done.output
    pd.read_csv(new).rename(columns={"id": "prediction"}).to_csv("same.csv", index=False)
    done = run("predict", model, "same.csv", "--keep", "prediction")
    assert done.exit_code == 2 and "the output already has a column of this name" in done.output
    table = rentals(60).assign(count=lambda t: np.where(t["count"] > 20, "many", "few"))
    table.to_csv("classes.csv", index=False)
    assert run("train", "classes.csv", "-t", "count", "-o", "c.skops", "--cv", "0").exit_code == 0
    done = run("predict", "c.skops", "classes.csv", "--interval", "0.9")
    assert done.exit_code == 2 and "predicts classes" in done.output
    rentals(60).to_csv("few.csv", index=False)
    assert run("train", "few.csv", "-t", "count", "-o", "n.skops", "--cv", "0").exit_code == 0
    done = run("predict", "n.skops", "few.csv", "--interval", "0.9")
    assert done.exit_code == 2 and "train it without --cv 0" in done.output


COLUMNS = {
    "text": [" red", "green", "blue "],
    "text with gaps": ["a", "b", "?", "c"],
    "flag": ["True", "False"],
    "flag with gaps": ["true", "false", ""],
    "answer": ["yes", "no"],
    "answer with gaps": ["J", "n", ""],
    "post code": ["01234", "02345", "11111"],
    "day": ["2024-01-05", "2024-02-28", "2023-11-11", ""],
    "moment": ["2024-01-05T08:30:00Z", "2024-02-28T23:00:00Z"],
    "clock": ["08:30", "17:05", "23:59"],
    "number": ["1", "2", "", "4"],
}


@pytest.mark.parametrize("name", [*COLUMNS, "numbers alone"])
def test_python_predicts_the_frame_of_the_training_file(run, tmp_path, name):
    """What pandas makes of a file gives the same predictions as the file itself."""
    rng, n = np.random.default_rng(0), 90
    places = rng.integers(0, len(COLUMNS.get(name, "ab")), n)
    frame = pd.DataFrame({"x": rng.normal(size=n).round(3), "z": rng.normal(size=n).round(3)})
    if name in COLUMNS:
        frame[name] = np.array(COLUMNS[name])[places]
    frame["y"] = frame["x"] + 2.0 * places + rng.normal(0, 0.1, n)
    frame.to_csv("data.csv", index=False)
    options = ["-e", "LSSVR", "-s", "C=1", "--cv", "0", "-q"]
    assert run("train", "data.csv", "-t", "y", *options, "-o", "m.skops").exit_code == 0
    assert run("predict", "m.skops", "data.csv", "-o", "p.csv", "-q").exit_code == 0
    wanted = pd.read_csv("p.csv")["prediction"]
    model, given = persistence.load("m.skops"), pd.read_csv("data.csv")
    np.testing.assert_allclose(model.predict(given), wanted, atol=1e-9)
    np.testing.assert_allclose(model.predict(given.drop(columns="y")), wanted, atol=1e-9)
    row = given.drop(columns="y").iloc[5].to_dict()
    assert Predictor(model).predict(row) == pytest.approx(wanted[5])
    assert name not in COLUMNS or np.std(wanted) > 0.5


@pytest.mark.parametrize("many", [False, True])  # levels, which get mean targets
def test_a_model_of_the_command_takes_its_rows_back_in_python(run, tmp_path, many):
    rng = np.random.default_rng(0)
    days = pd.date_range("2024-01-01", periods=300)
    shop = [f"s{i}" for i in rng.integers(0, 60 if many else 3, 300)]
    frame = pd.DataFrame({"day": days.strftime("%d.%m.%Y"), "shop": shop})
    frame["ok"], frame["x"] = rng.choice(["yes", "no"], 300), rng.normal(size=300)
    frame["y"] = np.where(frame.x + rng.normal(size=300) > 0, "up", "down")
    frame.to_csv("d.csv", index=False)
    quick = ("-s", "gamma=0.1", "-s", "kernel=rbf", "-s", "n_basis=20", "--cv", "0")
    assert run("train", "d.csv", "-t", "y", "-o", "m.skops", *quick).exit_code == 0
    model, rows = persistence.load("m.skops"), pd.read_csv("d.csv")
    model.keep_rows(rows, rows.y)  # dates as text, and one more column
    assert model.predict_set(rows[:3]).shape == (3, 2)
    with pytest.raises(ValueError, match="rows that the model was fitted on"):
        model.keep_rows(rows, rows.y[::-1])
    fitted = SparseLSSVC(kernel="rbf", gamma=0.1, n_basis=20, random_state=0)
    fitted.fit(rows.assign(day=days)[["day", "shop", "ok", "x"]], rows.y)
    fitted.save("p.skops")
    again = persistence.load("p.skops").keep_rows(rows, rows.y)  # day-first text for dates
    known = fitted.predict_set(rows)
    np.testing.assert_array_equal(again.predict_set(rows), known)


def test_predict_says_each_warning_once_as_a_note(run, tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "y": np.sin(2 * x[:, 0]) + x[:, 1]})
    frame.to_csv("d.csv", index=False)
    assert (
        run("train", "d.csv", "-t", "y", "-o", "m", "-s", "n_basis=30", "--cv", "0").exit_code == 0
    )
    frame.assign(a=frame.a + 100).to_csv("far.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        done = run("predict", "m", "far.csv", "-o", "p.csv")
        silent = run("predict", "m", "far.csv", "-o", "p.csv", "--quiet")
    assert done.stderr.count("note: ") == 1 and "outside the range" in done.stderr
    assert silent.exit_code == 0 and silent.stderr == ""


def test_predictions_and_intervals_have_the_same_digits(run, tmp_path):
    x = np.linspace(0, 1, 60)
    pd.DataFrame({"x": x, "y": 1e7 + np.sin(9 * x)}).to_csv("d.csv", index=False)
    quick = ("-s", "gamma=0.1", "-s", "kernel=rbf", "-s", "n_basis=20", "--cv", "3")
    assert run("train", "d.csv", "-t", "y", "-o", "m", *quick).exit_code == 0
    assert run("predict", "m", "d.csv", "-o", "p.csv", "--interval", "0.8").exit_code == 0
    found = pd.read_csv("p.csv")
    middle = (found.lower + found.upper) / 2
    np.testing.assert_allclose(middle, found.prediction, atol=1e-6)


def test_predict_says_why_there_is_no_score(run, tmp_path):
    frame = pd.DataFrame({"x": np.arange(40.0), "y": ["u", "v"] * 20})
    frame.to_csv("d.csv", index=False)
    assert run("train", "d.csv", "-t", "y", "-o", "m", "-e", "lssvm", "--cv", "0").exit_code == 0
    frame.assign(y=frame.y.where(frame.x > 2)).to_csv("some.csv", index=False)
    done = run("predict", "m", "some.csv", "-o", "p.csv")
    assert done.exit_code == 0 and "no score: 3 of 40 rows have no target in 'y'" in done.stderr
    frame.assign(y=None).to_csv("none.csv", index=False)
    assert "note" not in run("predict", "m", "none.csv", "-o", "p.csv").stderr


def test_yes_and_no_may_be_digits_later(run, tmp_path):
    frame = pd.DataFrame(
        {"x": np.arange(40.0) % 7, "ok": ["ja", "nein"] * 20, "y": ["u", "v"] * 20}
    )
    frame.to_csv("d.csv", index=False)
    assert run("train", "d.csv", "-t", "y", "-o", "m", "-e", "lssvm", "--cv", "0").exit_code == 0
    frame.assign(ok=(frame.ok == "ja").astype(int)).to_csv("n.csv", index=False)
    done = run("predict", "m", "n.csv", "-o", "p.csv")
    assert done.exit_code == 0 and "accuracy 1.0000" in done.stderr


def test_info_shows_the_scores_of_a_rare_class(run, tmp_path):
    x = np.arange(100.0)
    frame = pd.DataFrame({"x": x, "y": np.where(x % 10 == 0, "yes", "no")})
    frame.to_csv("d.csv", index=False)
    assert run("train", "d.csv", "-t", "y", "-o", "m", "-e", "lssvm", "--cv", "2").exit_code == 0
    shown = run("info", "m").stdout
    for name in ("accuracy", "recall of yes", "average precision of yes", "AUC", "estimated by"):
        assert name in shown


def test_the_kind_of_a_column_that_does_not_fit_it_is_named(run, tmp_path):
    frame = pd.DataFrame({"city": ["Rome", "Oslo"] * 20, "y": [f"ticket {i}" for i in range(40)]})
    frame.assign(y=["u", "v"] * 20).to_csv("d.csv", index=False)
    done = run("train", "d.csv", "-t", "y", "-o", "m", "--column", "city=number")
    assert "40 of 40 values are not; remove --column 'city=number'" in done.stderr
    frame.to_csv("d.csv", index=False)
    done = run("train", "d.csv", "-t", "y", "-o", "m")
    assert "such as 'ticket 0'" in done.stderr
    assert "train or tune." in run("predict", "--help").stdout


def test_leave_one_out_needs_rows_for_each_encoded_feature(run, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=1200), "city": rng.integers(0, 28, 1200)})
    frame = frame.assign(city="c" + frame.city.astype(str), y=frame.x + rng.normal(size=1200))
    quick = ("-s", "gamma=0.1", "-s", "kernel=rbf", "-s", "n_basis=20")
    for names, method in ((["x", "y"], "exact leave-one-out"), (["x", "city", "y"], "5-fold")):
        frame[names].to_csv("d.csv", index=False)
        assert method in run("train", "d.csv", "-t", "y", "-o", "m", *quick).stdout
