"""Data files: what is understood, and messages that name file, line, column or row."""

import bz2
import gzip

import numpy as np
import pytest
from numpy.testing import assert_array_equal

for module in ("typer", "rich", "pyarrow", "pandas"):
    pytest.importorskip(module)

from leansvm.cli._output import CommandError  # noqa: E402
from leansvm.cli._read import Conventions, read, read_like  # noqa: E402
from leansvm.cli._read._frame import frame_of  # noqa: E402
from leansvm.cli._read._table import FileTable, find_form, read_table  # noqa: E402


@pytest.fixture
def file(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def test_kinds_of_columns(file):
    text = "n,s,b,d,empty,y\n1,a,true,2020-01-02,,u\n,?,false,2020-01-03,,v\n2.5,b,,,,u\n"
    data = read(file("d.csv", text), target="y")
    kinds = {"n": "number", "s": "category", "b": "yes/no", "d": "date", "empty": "number"}
    assert data.kinds == kinds and data.notes == []
    assert_array_equal(data.X["n"], [1, np.nan, 2.5])
    assert data.X["b"].tolist() == [True, False, None]
    assert (data.X["d"][1] - data.X["d"][0]).days == 1
    assert data.X["s"].tolist()[0] == "a" and np.isnan(data.X["s"].tolist()[1])
    assert_array_equal(data.y, ["u", "v", "u"])


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_delimiters(file, delimiter):
    text = f"a{delimiter}b{delimiter}y\n1{delimiter}x, z{delimiter}0\n"
    path = file("d.csv", text + text.partition("\n")[2].replace("x", "w"))
    data = read(path, target="y", columns={"a": "number"})
    assert data.X["b"].tolist() == ["x, z", "w, z"]


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_packed_csv(file, suffix, pack):
    data = read(file(f"d.csv{suffix}", pack(b"a,y\n1,0\n2,1\n")), target="y")
    assert_array_equal(data.X["a"], [1, 2])


def test_a_wrong_value_late_in_a_long_file_is_found(file):
    lines = ["1,0"] * 300_000 + ["1.5,0", "x,1"]
    path = file("d.csv", "\n".join(["a,y", *lines]))
    with pytest.raises(CommandError, match=r"d\.csv, line 300003, column 'a': 'x' is not a number"):
        read(path, target="y")
    asked = read(path, target="y", columns={"a": "category"})
    assert asked.kinds == {"a": "category"} and asked.X["a"].iloc[-1] == "x"
    spelled = read(path, target="y", conventions=Conventions(missing=("x",)))
    assert spelled.kinds == {"a": "number"} and np.isnan(spelled.X["a"].iloc[-1])


def test_parquet_with_a_dictionary_column(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.table({
        "a": pa.array(["u", "v", None]).dictionary_encode(),
        "t": pa.array([0, 86_400_000, None], pa.timestamp("ms")),
        "y": [1.5, 2.5, 3.5],
    })  # fmt: skip
    parquet.write_table(table, tmp_path / "d.parquet")
    data = read(tmp_path / "d.parquet", target="y")
    assert data.kinds == {"a": "category", "t": "date"}
    assert data.X["t"].astype(str).tolist()[:2] == ["1970-01-01", "1970-01-02"]
    assert data.y.dtype == np.float64


def parquet_of(path, **columns):
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table(columns), path)
    return path


def test_times_of_parquet_as_fine_as_they_are(tmp_path):
    import pyarrow as pa

    day, hour = 86_400_000_000_000, 3_600_000_000_000
    path = parquet_of(
        tmp_path / "d.parquet",
        fine=pa.array([day + 1, 1500, None], pa.timestamp("ns")),
        micro=pa.array([1, day // 1000, None], pa.timestamp("us")),
        date=pa.array([3, 4, None], pa.date32()),
        time=pa.array([hour + 1, 2 * hour, None], pa.time64("ns")),
        y=[1.5, 2.5, 3.5],
    )
    data = read(path, target="y")
    assert data.kinds == {"fine": "date", "micro": "date", "date": "date", "time": "time"}
    day = np.timedelta64(1, "D")
    dates = {
        name: (data.X[name] - np.datetime64(0, "D")) / day for name in ("fine", "micro", "date")
    }
    assert_array_equal(dates["fine"], [1, 1 / 8.64e10, np.nan])
    assert_array_equal(dates["micro"], [1 / 8.64e10, 1, np.nan])
    assert_array_equal(dates["date"], [3, 4, np.nan])
    assert data.X["time"].tolist()[:2] == ["01:00:00", "02:00:00"]


def test_intervals_are_refused(tmp_path):
    import pyarrow as pa

    steps = pa.array([(1, 2, 3), (4, 5, 6)], pa.month_day_nano_interval())
    path = tmp_path / "d.parquet"
    path.touch()
    table = FileTable(path, pa.table({"a": steps, "y": [1.5, 2.5]}))  # Parquet has none
    with pytest.raises(CommandError, match=r"column 'a': values of type .* cannot be used"):
        frame_of(table, ["a", "y"], "y", {}, Conventions())


def test_the_index_of_pandas_is_no_feature(tmp_path):
    path = tmp_path / "d.parquet"
    columns = {"a": [1.0, 2.5, 4.0], "__index_level_0__": [2, 0, 1], "y": ["u", "v", "u"]}
    data = read(parquet_of(path, **columns), target="y")
    assert data.kinds == {"a": "number"}
    (note,) = data.notes
    assert "'__index_level_0__' is left out: it is the index of a pandas data frame" in note
    kept = read(path, target="y", columns={"__index_level_0__": "number"})
    assert list(kept.kinds) == ["a", "__index_level_0__"]


def test_categories_of_pandas_are_read_like_the_text_of_a_csv_file(file, tmp_path):
    import pandas as pd

    text = "answer,size,n,y\nyes,1.5,7,u\nno,2.5,8,v\n,?,7,u\nyes,1.5,8,v\n"
    path = file("d.csv", text)
    expected = read(path, target="y")
    assert expected.kinds == {"answer": "yes/no", "size": "number", "n": "number"}
    table = pd.read_csv(path, dtype=str).assign(n=[7, 8, 7, 8]).astype("category")
    table.to_parquet(tmp_path / "d.parquet")
    data = read_like(tmp_path / "d.parquet", expected.kinds, 3, target="y")
    for name in expected.kinds:
        assert data.X[name].dtype == expected.X[name].dtype
    assert data.X.equals(expected.X)
    assert_array_equal(data.y, expected.y)
    spelled = read(tmp_path / "d.parquet", target="y", conventions=Conventions(missing=("yes",)))
    assert spelled.X["answer"].isna().tolist() == [True, False, True, True]


def test_the_text_of_parquet_is_what_fit_makes_of_it(tmp_path):
    import pandas as pd

    from leansvm.tables import TableEncoder

    path = tmp_path / "d.parquet"
    table = pd.DataFrame(
        {
            "text": ["1.5", "-2", None, "3e2"],
            "code": ["01", "02", "01", "02"],
            "grade": pd.Categorical(["1", "2", "1", "2"]),
            "day": ["2024-03-01", "2024-03-02", "2024-03-03", None],
            "clock": ["08:30", "09:00", "10:00", "11:15"],
            "gap": ["1", "--", "missing", "4"],
            "word": ["a", "b", "a", "b"],
        }
    )
    table.assign(y=["u", "v", "u", "v"]).to_parquet(path)
    data = read(path, target="y")
    expected = TableEncoder().fit(pd.read_parquet(path).drop(columns="y"))
    assert data.kinds == expected.kinds_
    assert [name for name, kind in data.kinds.items() if kind == "number"] == ["text", "gap"]
    np.testing.assert_allclose(TableEncoder().fit_transform(data.X), expected.transform(table))


def test_parquet_text_of_nearly_numbers_is_noted(tmp_path):
    texts = [str(i / 8) for i in range(60)] + ["many"]
    path = parquet_of(tmp_path / "d.parquet", a=texts, y=["u", "v"] * 30 + ["u"])
    data = read(path, target="y")
    assert data.kinds == {"a": "category"}
    assert (
        "'a' is read as text, because 1 of its 61 different values is not a number" in data.notes[0]
    )


def test_svmlight_and_npz(file, tmp_path):
    data = read(file("d.svm", "+1 1:0.5 4:2 # note\n-1 2:1\n"))
    assert data.X.shape == (2, 4) and data.kinds is None
    assert_array_equal(data.y, [1, -1])
    packed = read(file("d.svm.bz2", bz2.compress(b"1 1:1\n2 1:3\n")))
    assert_array_equal(packed.X.toarray(), [[1], [3]])
    np.savez(tmp_path / "d.npz", X_train=np.eye(2), y_train=np.array(["a", "b"]))
    assert_array_equal(read(tmp_path / "d.npz").y, ["a", "b"])


def test_features_are_counted_as_in_the_training_file(file):
    from_0 = read(file("d.svm", "1 0:5 2:1\n0 1:2\n"))
    from_1 = read(file("e.svm", "1 1:5 3:1\n0 2:2\n"))
    assert (from_0.reading, from_1.reading) == ({"zero_based": True}, {"zero_based": False})
    assert_array_equal(from_0.X.toarray(), from_1.X.toarray())
    new = file("new.svm", "1 1:5\n")  # has no index 0, whatever it counts from
    for data, expected in ((from_0, [[0, 5, 0]]), (from_1, [[5, 0, 0]])):
        found = read_like(new, None, 3, target=None, reading=data.reading)
        assert_array_equal(found.X.toarray(), expected)
    with pytest.raises(CommandError, match=r"line 2: '0:5', but the training file .* from 1"):
        read_like(file("d.svm", "1 1:1\n1 0:5\n"), None, 3, target=None, reading=from_1.reading)
    with pytest.raises(CommandError, match="not written by leansvm train"):
        read_like(new, None, 3, target=None, reading={"zero_based": [1]})


def test_fewer_columns_than_the_model_are_zeros(file):
    data = read_like(file("d.svm", "+1 1:0.5\n"), None, 4, target=None)
    assert data.X.shape == (1, 4)
    with pytest.raises(CommandError, match="4 features, but the model was trained on 2"):
        read_like(file("d.svm", "+1 4:0.5\n"), None, 2, target=None)


def test_columns_are_put_in_the_order_of_training(file):
    path = file("d.csv", "extra,b,a\n9,x,1\n9,y,2\n")
    data = read_like(path, {"a": "number", "b": "category"}, 2, target="y")
    assert list(data.X.columns) == ["a", "b"] and data.y is None


def test_numbers_where_training_had_text(file):
    data = read_like(file("d.csv", "b\n7\n1.5\n\n"), {"b": "category"}, 1, target=None)
    assert data.X["b"].tolist() == ["7", "1.5"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("d.csv", "a,y\n", "d.csv: there are no rows"),
        ("d.csv", "y\n1\n2\n", "no features besides the target"),
        ("d.csv", "a,a,y\n1,2,3\n", "more than one column is called 'a'"),
        ("d.csv", "a,y\n1,2\n1,\n", "line 3, column 'y': the target is missing"),
        ("d.csv", "\n\n", "the file is empty"),
        ("d.parquet", "PAR1 nonsense", "not a readable Parquet file"),
        ("d.npz", "nonsense", "not a readable npz file"),
        ("d.xyz", "a,y\n", "unknown file type"),
    ],
)
def test_unusable_tables(file, name, content, message):
    with pytest.raises(CommandError) as caught:
        read(file(name, content), target="y")
    assert message in str(caught.value) and name in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("+1 1:1\n-1 2:x\n", "d.svm, line 2: '2:x' is not of the form index:value"),
        ("+1 1:1\n\n-1 3:1 2:1\n", "line 3: the index of '2:1' is not larger"),
        ("+1 1:1\nyes 2:1\n", "line 2: the label 'yes' is no number"),
        ("", "d.svm: "),
    ],
)
def test_unusable_svmlight(file, content, message):
    with pytest.raises(CommandError) as caught:
        read(file("d.svm", content))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"Z": np.eye(2)}, "no array X"),
        ({"X": np.eye(2)}, "no array y"),
        ({"X": np.arange(3.0), "y": np.arange(3)}, "X must have rows and columns"),
        ({"X": np.eye(2), "y": np.arange(3)}, r"y \(3,\)"),
        ({"X": np.eye(2), "y": np.arange(2).astype("M8[D]")}, r"y has type datetime64\[D\]"),
        ({"X": np.eye(2), "y": np.arange(2).astype("m8[s]")}, r"y has type timedelta64\[s\]"),
        ({"X": np.eye(2), "y": np.array([1j, 2])}, "y has type complex128"),
        ({"X": np.eye(2), "y": np.array([b"a", b"b"])}, r"y has type \|S1"),
        ({"X": np.eye(2), "y": np.zeros(2, [("a", "f8")])}, "but must hold numbers or text"),
        ({"X": np.zeros((2, 2), "M8[D]"), "y": np.arange(2)}, r"X has type datetime64\[D\]"),
        ({"X": np.full((2, 2), "a"), "y": np.arange(2)}, "X has type <U1, but must hold numbers"),
    ],
)
def test_unusable_npz(tmp_path, arrays, message):
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(CommandError, match=message):
        read(tmp_path / "d.npz")


def test_a_single_array_is_no_npz(tmp_path):
    with (tmp_path / "d.npz").open("wb") as file:
        np.save(file, np.eye(2))
    with pytest.raises(CommandError, match=r"d.npz: this is a single array \(npy\); save X and y"):
        read(tmp_path / "d.npz")


def test_a_parquet_target_that_is_a_date_is_refused_as_in_csv(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    when = pa.array(np.resize(np.array(["2024-01-05", "2024-02-06"], "M8[us]"), 6))
    parquet.write_table(pa.table({"x": np.arange(6.0), "when": when}), tmp_path / "d.parquet")
    with pytest.raises(CommandError, match=r"the target is a date.*--column 'when=category'"):
        read(tmp_path / "d.parquet", target="when")
    data = read(tmp_path / "d.parquet", target="when", columns={"when": "category"})
    assert len(set(data.y)) == 2 and data.y[0].startswith("2024-01-05")
    like = read_like(tmp_path / "d.parquet", {"x": "number"}, 1, target="when")
    assert like.X.shape == (6, 1)  # predictions do not need it


def test_a_header_may_be_long(tmp_path):
    names = [f"{'x' * 100}{i}" for i in range(1500)]
    rows = "\n".join(",".join(str((i * j) % 7) for i in range(1500)) for j in range(1, 8))
    path = tmp_path / "d.csv"
    path.write_text(f"{','.join(names)}\n{rows}\n")
    assert path.read_text().index("\n") > 131_072  # Python's limit of a value
    assert list(read_table(path, "csv").names) == names
    path.write_text(f"{','.join(['a', 'b'] * 10_000)}\n{','.join(['1'] * 20_000)}\n")
    assert len(find_form(path).names) == 20_000
    with pytest.raises(CommandError, match="more than one column is called 'a', 'b'"):
        read_table(path, "csv")


@pytest.mark.parametrize(("mark", "name"), [(",", "commas"), (";", "semicolons")])
def test_a_header_of_very_many_columns_is_refused(tmp_path, mark, name):
    path = tmp_path / "d.csv"
    path.write_text(f"{mark.join(f'c{i}' for i in range(300_000))}\n")
    with pytest.raises(CommandError, match=f"line 1: 300,000 columns between {name}; .* 20,000"):
        read_table(path, "csv")


def test_file_and_model_must_be_of_one_kind(file):
    with pytest.raises(CommandError, match="trained on a table with named columns, this is svm"):
        read_like(file("d.svm", "1 1:1\n"), {"a": "number"}, 1, target=None)
    with pytest.raises(CommandError, match="trained on rows without column names, this is csv"):
        read_like(file("d.csv", "a\n1\n"), None, 1, target=None)
    with pytest.raises(CommandError, match=r"none\.csv: there is no such file"):
        read_like(file("x", "").with_name("none.csv"), None, 1, target=None)


@pytest.mark.parametrize(
    "y",
    [np.array([2**63, 2**64 - 1], np.uint64), np.array([1e19, -1e300]), np.array([2**53 + 1, 0])],
    ids=["uint64", "float64", "int64"],
)
def test_large_whole_targets_stay_what_they_are(tmp_path, y):
    import pyarrow as pa
    from pyarrow import parquet

    np.savez(tmp_path / "d.npz", X=np.eye(2), y=y)
    parquet.write_table(pa.table({"a": [2**60, 2], "y": y}), tmp_path / "d.parquet")
    for data in (read(tmp_path / "d.npz"), read(tmp_path / "d.parquet", target="y")):
        assert data.y.dtype == y.dtype
        assert_array_equal(data.y, y)
    assert data.X["a"][0] == 2.0**60


@pytest.mark.parametrize("index", [2_000_000_000, 5_000_000_000])
def test_an_index_that_would_fill_the_memory_is_refused(file, monkeypatch, index):
    monkeypatch.setattr("leansvm.rows.available_memory", lambda: 10**10)
    with pytest.raises(CommandError, match=r"d.svm.*index.*2,000,000,000|5000000000:1' is too"):
        read(file("d.svm", f"1 1:1\n0 {index}:1\n"))
