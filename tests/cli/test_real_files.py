"""Files as spreadsheets and databases write them: each is read right, or refused by its place."""

import gzip
import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

for module in ("typer", "rich", "pyarrow", "pandas", "skops"):
    pytest.importorskip(module)

from leansvm.cli._output import CommandError  # noqa: E402
from leansvm.cli._read import Conventions, read, read_like  # noqa: E402

NAN = float("nan")


def day(text):
    return float(np.datetime64(text, "D").astype(int))


def table(*lines, sep=";", end="\n"):
    return end.join(sep.join(line.split()) for line in lines) + end


GERMAN = table("größe preis ort y", "1,5 1.234,50 Köln ja", "2,25 99,9 Bonn nein")
ENGLISH = 'size,price,y\n1.5,"1,234.50",u\n2.25,99.9,v\n'
NUMBERS = {"größe": [1.5, 2.25], "preis": [1234.5, 99.9]}

READ_RIGHT = {
    # encodings of the same German table
    "utf-8": (GERMAN.encode(), NUMBERS),
    "utf-8 with a mark": (GERMAN.encode("utf-8-sig"), NUMBERS),
    "latin-1": (GERMAN.encode("latin-1"), NUMBERS),
    "windows-1252 with a euro sign": (
        table("größe preis y", "1,5 3€ u", "2,25 4€ v").encode("cp1252"),
        {"größe": [1.5, 2.25], "preis": [3, 4]},
    ),
    "utf-16": (GERMAN.encode("utf-16"), NUMBERS),
    "utf-16 without a mark": (GERMAN.encode("utf-16-le"), NUMBERS),
    "utf-16 with tabs": (GERMAN.replace(";", "\t").encode("utf-16"), NUMBERS),
    "utf-32": (GERMAN.encode("utf-32"), NUMBERS),
    "lines of Windows": (GERMAN.replace("\n", "\r\n").encode("cp1252"), NUMBERS),
    # separators
    "commas": (ENGLISH.encode(), {"size": [1.5, 2.25], "price": [1234.5, 99.9]}),
    "tabs": (table("a b y", "1,5 2 u", "2,5 3 v", sep="\t"), {"a": [1.5, 2.5], "b": [2, 3]}),
    "bars": (table("a b y", "1.5 2 u", "2.5 3 v", sep="|"), {"a": [1.5, 2.5], "b": [2, 3]}),
    "Excel names its separator": ("sep=;\na;b;y\n1,5;2;u\n2,5;3;v\n", {"a": [1.5, 2.5]}),
    "spaces after commas": ("a, b, y\n1, 2, u\n3, 4, v\n", {"a": [1, 3], "b": [2, 4]}),
    "a separator at the end of every line": ("a;y;\n1,5;u;\n2,5;v;\n", {"a": [1.5, 2.5]}),
    "empty lines": ("\na,y\n\n1,u\n\n2,v\n\n", {"a": [1, 2]}),
    "a name with a line end in it": ('"a\nb",y\n1,u\n2,v\n', {"a\nb": [1, 2]}),
    # numbers
    "thousands with points": (table("a y", "1.234.567 u", "12 v"), {"a": [1234567, 12]}),
    "thousands with commas": ('a,y\n"1,234,567",u\n12,v\n', {"a": [1234567, 12]}),
    "thousands with spaces": ("a;y\n1 234,5;u\n12\u00a0000;v\n", {"a": [1234.5, 12000]}),
    "thousands with apostrophes": (table("a y", "1'234.5 u", "12 v"), {"a": [1234.5, 12]}),
    "three digits after a point": (table("a y", "1.234 u", "2.345 v"), {"a": [1.234, 2.345]}),
    "the same in a file of decimal commas": (
        table("a b y", "1.234 0,5 u", "2.345 1,5 v"),
        {"a": [1234, 2345], "b": [0.5, 1.5]},
    ),
    "three digits after a comma, another column decides": (
        table("a b y", "1,234 0,5 u", "2,345 1,5 v"),
        {"a": [1.234, 2.345]},
    ),
    "the same, and points decide": (
        table("a b y", "1,234 0.5 u", "2,345 1.5 v"),
        {"a": [1234, 2345]},
    ),
    "percent and money": ("a,b,y\n5 %,$3.50,u\n7.5 %,-$4,v\n", {"a": [5, 7.5], "b": [3.5, -4]}),
    "signs and exponents": ("a,y\n+1e3,u\n−2.5E-1,v\n", {"a": [1000, -0.25]}),
    # missing values
    "missing in many spellings": (
        "a,y\n1,u\nNA,v\n-,u\n#NV,v\nk.A.,u\n#DIV/0!,v\n null ,u\n.,v\n2,u\n",
        {"a": [1, NAN, NAN, NAN, NAN, NAN, NAN, NAN, 2]},
    ),
    # dates, times, yes and no
    "ISO dates": (
        "a,y\n2024-02-29,u\n2023-01-31,v\n",
        {"a": [day("2024-02-29"), day("2023-01-31")]},
    ),
    "German dates": (
        table("a y", "03.01.2020 u", "1.2.21 v"),
        {"a": [day("2020-01-03"), day("2021-02-01")]},
    ),
    "British dates": (
        "a,y\n03/04/2020,u\n31/01/2020,v\n",
        {"a": [day("2020-04-03"), day("2020-01-31")]},
    ),
    "American dates": (
        "a,y\n03/04/2020,u\n01/31/2020,v\n",
        {"a": [day("2020-03-04"), day("2020-01-31")]},
    ),
    "another column decides the order": (
        "a,b,y\n03/04/2020,12/31/2020,u\n05/06/2020,01/02/2020,v\n",
        {"a": [day("2020-03-04"), day("2020-05-06")]},
    ),
    "dates with a time": (
        "a,y\n2020-01-01 12:00,u\n2020-01-02T06:00:00Z,v\n2020-01-01T01:00+01:00,u\n",
        {"a": [day("2020-01-01") + 0.5, day("2020-01-02") + 0.25, day("2020-01-01")]},
    ),
    "afternoons": (
        "a,y\n1/31/2020 6:00 PM,u\n2/1/2020 12:00 am,v\n",
        {"a": [day("2020-01-31") + 0.75, day("2020-02-01")]},
    ),
    "dates with names of months": (
        "a,b,y\n3-Jan-2020,\"Mar 4, 2020\",u\n5-Oct-2021,\"May 6, 2021\",v\n",
        {
            "a": [day("2020-01-03"), day("2021-10-05")],
            "b": [day("2020-03-04"), day("2021-05-06")],
        },
    ),
    "dates without separators": (
        "a,y\n20240229,u\n20230131,v\n",
        {"a": [day("2024-02-29"), day("2023-01-31")]},
    ),
    "times of day": ("a,y\n06:30,u\n18:00:36,v\n", {"a": [6.5, 18.01]}),
    "yes and no": ("a,b,y\nyes,TRUE,u\nno,FALSE,v\n,TRUE,u\n", {"a": [1, 0, NAN], "b": [1, 0, 1]}),
    "ja and nein": (table("a b y", "Ja wahr u", "Nein falsch v"), {"a": [1, 0], "b": [1, 0]}),
}  # fmt: skip


def as_numbers(column):
    """Return dates as days, times of day as hours, yes and no as 1 and 0."""
    if column.dtype.kind == "M":
        return (column - np.datetime64(0, "D")) / np.timedelta64(1, "D")
    if isinstance(column[0], str):
        parts = [[int(part) for part in text.split(":")] for text in column]
        return [h + m / 60 + s / 3600 for h, m, s in parts]
    return column.astype(float)


@pytest.mark.parametrize(("content", "expected"), READ_RIGHT.values(), ids=READ_RIGHT)
def test_read_right(tmp_path, content, expected):
    path = tmp_path / "d.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    data = read(path, target="y")
    for name, values in expected.items():
        assert_allclose(as_numbers(data.X[name]), values, rtol=1e-12)
    if "ort" in data.X:
        assert data.X["ort"].tolist() == ["Köln", "Bonn"]
    # a model that was trained on this file reads it in the same way
    again = read_like(path, data.kinds, len(data.kinds), target="y", reading=data.reading)
    assert again.X.equals(data.X) and again.y.tolist() == data.y.tolist()


REFUSED = {
    "a comma that may be either": (
        'a,y\n"1,234",u\n5,v\n',
        "d.csv, line 2, column 'a': '1,234' may be 1.234 or 1234, and nothing in the file",
    ),
    "a date that may be either": (
        "a,y\n01/01/2020,u\n03/04/2020,v\n",
        "d.csv, line 3, column 'a': '03/04/2020' may begin with the day or with the month",
    ),
    "a date that does not exist": (
        "a,y\n" + "2023-01-01,u\n" * 10 + "2023-02-29,v\n",
        "d.csv, line 12, column 'a': '2023-02-29' is not a date, as 10 of 11 values are",
    ),
    "a word among numbers": (
        'a,b,y\n"two\nlines",1,u\n' + "x,1,u\n" * 10 + "\nx,many,v\n",
        "d.csv, line 15, column 'b': 'many' is not a number, as 11 of 12 values are; correct it, "
        "read it as a missing value with --missing 'many', or read the column as text with "
        "--column 'b=categ",
    ),
    "infinity": ("a,y\n" + "1,u\n" * 10 + "inf,v\n", "line 12, column 'a': 'inf' is not a number"),
    "decimal commas between commas": (
        "a,b,y\n1,5,2,5,u\n",
        "d.csv, line 2: 5 values, but the header has 3 columns; values with a comma need quotes",
    ),
    "too few values": (
        'a;b;y\n1;"x\n";u\n2;u\n',
        "d.csv, line 4: 2 values, but the header has 3 columns",
    ),
    "a quote that is never closed": (
        'a,b,y\n1,2,u\n3,"4,u\n' + "1,2,u\n" * 5,
        "d.csv, line 3: 2 values, but the header has 3 columns; a quote that opens in this line",
    ),
    "no header": ("1.5,2\n3,4\n", "d.csv, line 1: the first line should hold the names"),
    "the same name twice": ("a,a,y\n1,2,3\n", "d.csv, line 1: more than one column is called 'a'"),
    "one damaged letter": (
        "a,y\nKöln,u\n".encode() + b"Bo\xffn,v\n",
        "d.csv, line 3: the byte 0xFF is not UTF-8, but other letters of the file are",
    ),
    "half a letter of UTF-16": (
        "a,y\n1,u\n".encode("utf-16") + b"x",
        "the file begins as UTF-16, but this line is not",
    ),
    "an Excel workbook": (b"PK\x03\x04rest", "d.csv: this is an Excel workbook"),
    "not text": (b"a,y\n1,2\n\x00\x01\x02", "d.csv, line 3: a zero byte; this is not a text file"),
    "a date to predict": ("a,y\n1,2020-01-01\n2,2020-01-02\n", "column 'y': the target is a date"),
    "a word in a target of numbers": (
        "a,y\n" + "".join(f"{i},{i / 8}\n" for i in range(20)) + "7,n.b.\n",
        "d.csv, line 22, column 'y': 'n.b.' is not a number",
    ),
    "texts to predict": (
        "a,y\n" + "".join(f"{i * i},name {i}\n" for i in range(30)),
        "column 'y': the target has 30 different texts in 30 rows",
    ),
    "a missing target": (
        "a,y\n1,u\n2,NA\n3,v\n",
        "d.csv, line 3, column 'y': the target is missing in 1 rows, first in this one",
    ),
}


@pytest.mark.parametrize(("content", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_by_its_place(tmp_path, content, message):
    path = tmp_path / "d.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(CommandError) as caught:
        read(path, target="y")
    assert message in str(caught.value)


def rows(**columns):
    lines = [",".join([*columns, "y"])]
    values = zip(*columns.values(), strict=True)
    lines += [",".join([*map(str, row), "uv"[i % 2]]) for i, row in enumerate(values)]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("id", range(1, 41), "whole numbers and the name of an id"),
        ("", range(40), "whole numbers and the name of an id"),
        ("customerId", [7 * i % 101 + 1000 for i in range(40)], "the name of an id"),
        ("name", [f"person {i}" for i in range(40)], "all different"),
        ("zip", [f"0{i * 37:04d}" for i in range(40)], "all different"),
        ("country", ["DE"] * 40, "the same in all rows"),
        ("remark", [""] * 40, "no values"),
    ],
)
def test_columns_that_say_nothing_are_left_out(run, tmp_path, name, values, reason):
    x = np.random.default_rng(0).normal(size=40)
    (tmp_path / "d.csv").write_text(rows(**{name: values, "x": x}))
    done = run("train", "d.csv", "-t", "y", "-o", "m", "-e", "lssvm", "--cv", "0")
    assert done.exit_code == 0, done.stderr
    name = name or "Unnamed: 0"
    assert f"column '{name}' is left out: {reason}" in " ".join(done.stderr.split()) or reason in (
        " ".join(done.stderr.split())
    )
    (tmp_path / "new.csv").write_text("x\n1.5\n")
    done = run("predict", "m", "new.csv")  # which does not need the column
    assert done.exit_code == 0, done.stderr


def test_nothing_but_a_counter_is_refused(run, tmp_path):
    (tmp_path / "d.csv").write_text(rows(id=range(30)))
    done = run("train", "d.csv", "-t", "y", "-o", "m", "--cv", "0")
    assert done.exit_code == 1 and "no usable column" in done.stderr


def test_useful_columns_stay(tmp_path):
    rng = np.random.default_rng(0)
    columns = {
        "year": range(1980, 2020),
        "grid": rng.permutation(40),
        "income": rng.permutation(40_000)[:40],
        "plz": [f"0{i % 4}067" for i in range(40)],
        "city": ["Oslo", "Rome"] * 20,
    }
    path = tmp_path / "d.csv"
    path.write_text(rows(**columns))
    data = read(path, target="y")
    assert list(data.X) == list(columns)
    assert data.kinds["plz"] == "category" and data.X["plz"][0] == "00067"
    assert data.notes == [
        "column 'plz' is a category: its numbers have leading zeros or too many digits"
    ]


def test_conventions_of_the_user_and_of_the_model_decide(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text('a,b,y\n"1,234",03/04/2020,u\n"5,678",05/06/2020,v\n')
    german = read(path, target="y", conventions=Conventions(",", "day-first"))
    assert_allclose(german.X["a"], [1.234, 5.678])
    assert_allclose(as_numbers(german.X["b"]), [day("2020-04-03"), day("2020-06-05")])
    american = read(path, target="y", conventions=Conventions(".", "month-first"))
    assert_allclose(american.X["a"], [1234, 5678])
    assert_allclose(as_numbers(american.X["b"]), [day("2020-03-04"), day("2020-05-06")])
    for data in (german, american):
        again = read_like(path, data.kinds, 2, target=None, reading=data.reading)
        assert again.X.equals(data.X)


def test_a_file_of_another_country_is_read_by_its_own_marks(tmp_path):
    """A model of a German file, and rows with decimal points: the file itself decides."""
    path = tmp_path / "d.csv"
    path.write_text("a,b\n1.234,0.5\n2.345,1.5\n")
    kinds, reading = {"a": "number", "b": "number"}, {"decimal": ","}
    assert_allclose(read_like(path, kinds, 2, target=None, reading=reading).X["a"], [1.234, 2.345])
    path.write_text("a;b\n1.234;5\n2.345;6\n")  # here the file leaves it open
    assert_allclose(read_like(path, kinds, 2, target=None, reading=reading).X["a"], [1234, 2345])


def test_a_wrong_target_does_not_keep_rows_from_being_predicted(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text("a,y\n" + "1,2\n" * 20 + "1,n.b.\n")
    data = read_like(path, {"a": "number"}, 1, target="y")
    assert data.y.tolist() == ["2"] * 20 + ["n.b."]


@pytest.mark.parametrize("reading", [{"decimal": 5}, {"dates": "ymd"}, {"missing": [1]}])
def test_odd_conventions_of_a_model_are_refused(tmp_path, reading):
    path = tmp_path / "d.csv"
    path.write_text("a\n1\n")
    with pytest.raises(CommandError, match="not written by leansvm train"):
        read_like(path, {"a": "number"}, 1, target=None, reading=reading)


def test_packed_files_of_any_encoding(tmp_path):
    path = tmp_path / "d.csv.gz"
    path.write_bytes(gzip.compress(GERMAN.encode("cp1252")))
    data = read(path, target="y")
    assert data.X["ort"].tolist() == ["Köln", "Bonn"]
    assert data.form == ["Windows-1252 text", "semicolons", "decimal commas"]
    assert data.words() == "2 numbers, 1 category"


# ---------------------------------------------------------------------------- commands


def german_and_plain(folder, n=120):
    """Write the same rows as German Excel does and as everybody else does."""
    rng = np.random.default_rng(0)
    x, date = rng.normal(size=(n, 2)) * [1, 3000], rng.integers(18_000, 19_000, n)
    label = np.where(x[:, 0] * x[:, 1] > 0, "schön", "trüb")
    plain, german = ["id,a,b,d,y"], ["id;a;b;d;y"]
    for i in range(n):
        day_text = str(np.datetime64(int(date[i]), "D"))
        plain.append(f"{i + 1},{x[i, 0]:.4f},{x[i, 1]:.2f},{day_text},{label[i]}")
        number = f"{x[i, 1]:,.2f}".translate(str.maketrans(",.", ".,"))
        there = ".".join(reversed(day_text.split("-")))
        german.append(f"{i + 1};{x[i, 0]:.4f};{number};{there};{label[i]}".replace(".", ",", 1))
    (folder / "plain.csv").write_text("\n".join(plain) + "\n")
    (folder / "german.csv").write_bytes(("\r\n".join(german) + "\r\n").encode("cp1252"))


def test_a_german_file_gives_the_model_of_the_plain_one(run, tmp_path):
    german_and_plain(tmp_path)
    options = ("-t", "y", "-e", "lssvm", "-s", "gamma=0.5", "--cv", "2", "--no-calibrate")
    found = {}
    for name in ("german", "plain"):
        done = run("train", f"{name}.csv", "-o", name, *options)
        assert done.exit_code == 0, done.stderr
        assert "column 'id' is left out: whole numbers" in done.stderr
        found[name] = done.stderr.splitlines()
        predicted = run("predict", name, f"{name}.csv")
        assert predicted.exit_code == 0, predicted.stderr
        found[f"{name} predictions"] = predicted.stdout
    assert found["plain"][1] == "3 numbers, 1 date; target: schön/trüb"
    assert found["german"][1] == (
        "3 numbers, 1 date; target: schön/trüb (Windows-1252 text, semicolons, decimal commas)"
    )
    assert found["german predictions"] == found["plain predictions"]
    crossed = run("predict", "plain", "german.csv")  # a model reads files of either kind
    assert crossed.stdout == found["plain predictions"]


def test_options_say_what_a_file_leaves_open(run, tmp_path):
    lines = [
        f'"{i},{100 + i}",{i % 7},{"x" if i == 3 else i % 5},{"uv"[i % 2]}' for i in range(1, 40)
    ]
    (tmp_path / "d.csv").write_text("\n".join(["a,b,c,y", *lines]) + "\n")
    train = ("train", "d.csv", "-t", "y", "-o", "m", "-e", "lssvm", "--cv", "0")
    refused = run(*train)
    assert refused.exit_code == 1 and "'1,101' may be 1.101 or 1101" in refused.stderr
    refused = run(*train, "--decimal", ",")
    assert refused.exit_code == 1 and "line 4, column 'c': 'x' is not a number" in refused.stderr
    done = run(*train, "--decimal", ",", "--missing", "x", "--column", "b=category")
    assert done.exit_code == 0, done.stderr
    assert "2 numbers, 1 category; target: u/v" in done.stderr
    again = run("predict", "m", "d.csv", "-q", "-o", "p.csv")  # the model keeps all of it
    assert again.exit_code == 0, again.stderr


def test_left_out_rows_score_as_refitting_does(run, tmp_path):
    """Probabilities and scores of --cv loo are those of models fitted without each row."""
    from sklearn.base import clone
    from sklearn.metrics import log_loss, roc_auc_score

    from leansvm import persistence

    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = (X[:, 0] + 0.5 * rng.normal(size=40) > 0).astype(int)
    np.savez(tmp_path / "d.npz", X=X, y=y)
    done = run("train", "d.npz", "-o", "m", "-e", "lssvm", "-s", "gamma=0.3", "--cv", "loo",
               "--no-scale", "--json")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    scores = json.loads(done.stdout)["evaluation"]["scores"]
    model = persistence.load(tmp_path / "m")
    values = np.empty(40)
    for i in range(40):
        rows = np.arange(40) != i
        other = clone(model).set_params(C=model.C_, calibrate=False).fit(X[rows], y[rows])
        values[i] = other.decision_function(X[[i]])[0]
    ends, z = [-np.inf, -0.9, -0.5, 0.0, 0.5, 0.9, np.inf], 0.0
    for slope, low, high in zip(model.calibration_slopes_, ends, ends[1:], strict=False):
        z += slope * (np.clip(values, low, high) - np.clip(0.0, low, high))
    p = np.exp(-np.logaddexp(0, -z))
    assert scores["AUC"] == pytest.approx(roc_auc_score(y, values))
    assert scores["accuracy"] == pytest.approx(np.mean((values > 0) == y))
    assert scores["log-loss"] == pytest.approx(log_loss(y, p), rel=1e-6)


def test_gammas_of_a_sparse_matrix_are_those_of_the_same_numbers():
    from scipy.sparse import csr_array

    from leansvm.cli._tune_search import _gammas

    X = 1e8 + np.random.default_rng(0).normal(size=(50, 3))  # E[x^2] - E[x]^2 would be rounding
    assert _gammas(csr_array(X)) == _gammas(X)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_tune_compares_left_out_rows_without_refitting(run, tmp_path, task):
    """Every candidate is scored on the same points; the best one is trained."""
    from leansvm import SparseLSSVC, SparseLSSVR

    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    f = np.sin(2 * X[:, 0]) + np.cos(2 * X[:, 1]) + 0.3 * rng.normal(size=80)
    y = f if task == "regression" else (f > 0).astype(int)
    np.savez(tmp_path / "d.npz", X=X, y=y)
    done = run("tune", "d.npz", "-o", "m", "--json", "--cv", "loo", "--no-scale", "-q",
               "--no-calibrate")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    scores = {trial["gamma"]: trial["score"] for trial in result["trials"]}
    assert len(scores) == 8 and scores[result["parameters"]["gamma"]] == max(scores.values())
    machine = SparseLSSVR if task == "regression" else SparseLSSVC
    for gamma in [value for value in scores if value != "learn"][::3]:
        model = machine("loo", kernel="rbf", gamma=gamma, n_basis=40, random_state=0).fit(X, y)
        if task == "regression":
            expected = 1 - np.mean(model.loo_residuals_**2) / y.var()
        else:
            expected = np.mean((2 * y - 1 - model.loo_residuals_ > 0) == y)
        assert scores[gamma] == pytest.approx(expected)


def test_many_rows_are_scored_by_leave_one_out(run, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 2))
    np.savez(tmp_path / "d.npz", X=X, y=X[:, 0] > 0)
    done = run("train", "d.npz", "-o", "m", "--json", "-s", "n_basis=20", "-s", "gamma=0.3")
    assert json.loads(done.stdout)["evaluation"]["method"] == "exact leave-one-out"
    few = run("train", "d.npz", "-o", "m", "--json", "-e", "l2", "-s", "C=1", "--no-calibrate")
    assert json.loads(few.stdout)["evaluation"]["method"] == "5-fold cross-validation"
