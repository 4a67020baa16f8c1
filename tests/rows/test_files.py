"""Data sets in files: formats, labels, weights, batches, bounded state, errors."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.datasets import make_moons

import leansvm
from leansvm import LSSVC
from leansvm.basis import PivotedCholesky
from leansvm.estimators import kernel_machine
from leansvm.kernels import Kernel
from leansvm.model_selection import basis_path
from leansvm.rows import MemoryBlocks, Targets
from tests.plain import PlainReducedSVC, PlainSparseLSSVC, PlainSparseLSSVR

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

X, y = make_moons(500, noise=0.2, random_state=0)
NAMES = np.array(["moon", "sun"])[y]
WEIGHT = np.random.default_rng(1).uniform(0.0, 2.0, len(X)).round()


@pytest.fixture(autouse=True)
def small_tiles():
    with config_context(working_memory=0.05):
        yield


def table(**columns):
    return pa.table({"a": X[:, 0], "b": X[:, 1], **columns})


def write(data, path, format="parquet"):
    if format == "parquet":
        from pyarrow import parquet

        parquet.write_table(data, path, row_group_size=90)
    elif format == "csv":
        from pyarrow import csv

        csv.write_csv(data, path)
    else:
        from pyarrow import feather

        feather.write_feather(data, path, chunksize=70, compression="uncompressed")
    return path


def model(**parameters):
    fixed = {"gamma": 1.0, "n_basis": 25, "random_state": 0, "calibrate": False}
    return PlainSparseLSSVC(**(fixed | parameters))


@pytest.mark.parametrize("format", ["parquet", "csv", "feather", "arrow"])
def test_formats(tmp_path, format):
    data = table(label=NAMES, w=WEIGHT)
    write(data.slice(0, 123), tmp_path / f"1.{format}", format)
    write(data.slice(123), tmp_path / f"2.{format}", format)
    found = leansvm.open_dataset(tmp_path, target="label", sample_weight="w")
    assert repr(found) == "Dataset(500 rows, 2 features, target='label', 2 files)"
    expected = model().fit(X, NAMES, WEIGHT)
    fitted = model().fit(found)
    assert_array_equal(fitted.support_, expected.support_)
    assert_allclose(fitted.dual_coef_, expected.dual_coef_, rtol=1e-10)
    assert_array_equal(fitted.classes_, ["moon", "sun"])
    assert_array_equal(fitted.predict(found), expected.predict(X))
    assert fitted.score(found) == expected.score(X, NAMES, WEIGHT)


def test_the_model_is_that_of_rows_in_memory_to_the_last_bit(tmp_path):
    data = leansvm.open_dataset(write(table(y=y), tmp_path / "x.parquet"), target="y")
    for basis in ("random", "pivoted-cholesky"):
        expected = model(basis=basis).fit(X, y)
        fitted = model(basis=basis).fit(data)
        assert_array_equal(fitted.dual_coef_, expected.dual_coef_)
        assert_array_equal(fitted.decision_function(data), expected.decision_function(X))


def test_reduced_machines(tmp_path):
    data = leansvm.open_dataset(write(table(y=y), tmp_path / "x.parquet"), target="y")
    parameters = {"gamma": 1.0, "n_basis": 25, "random_state": 0}
    for loss in ("squared_hinge", "logistic"):
        expected = PlainReducedSVC(loss=loss, **parameters).fit(X, y).decision_function(X)
        fitted = PlainReducedSVC(loss=loss, cache_size=0.2, **parameters).fit(data)
        assert_allclose(fitted.decision_function(data), expected, atol=1e-8)


def test_columns_float32_and_many_targets(tmp_path):
    data = table(y=X[:, 0] ** 2, z=np.sin(X[:, 1]), unused=NAMES)
    data = data.set_column(0, "a", data["a"].cast("float32"))
    data = data.set_column(1, "b", data["b"].cast("float32"))
    path = write(data, tmp_path / "x.parquet")
    found = leansvm.open_dataset(path, target=["y", "z"], features=["b", "a"])
    assert found.dtype == np.float32 and found.shape == (500, 2)
    rows = X[:, ::-1].astype(np.float32)
    targets = np.column_stack([X[:, 0] ** 2, np.sin(X[:, 1])])
    expected = PlainSparseLSSVR(n_basis=25, random_state=0).fit(rows, targets)
    fitted = PlainSparseLSSVR(n_basis=25, random_state=0).fit(found)
    assert_array_equal(fitted.dual_coef_, expected.dual_coef_)
    assert fitted.predict(found).shape == (500, 2)
    assert list(fitted.feature_names_in_) == ["b", "a"]
    assert fitted.score(found) == pytest.approx(expected.score(rows, targets))


def test_partial_fit_over_data_sets_and_batches(tmp_path):
    data = leansvm.open_dataset(write(table(y=y, w=WEIGHT), tmp_path / "x.parquet"), target="y")
    assert data.shape[1] == 3  # the weight is a feature unless it is named
    data = leansvm.open_dataset(tmp_path / "x.parquet", target="y", sample_weight="w")
    expected = model(basis=np.arange(25)).fit(data)
    by_batches = model(basis=np.arange(25))
    sizes = []
    for batch in data.batches(64):
        sizes.append(len(batch.X))
        by_batches.partial_fit(batch.X, batch.y, classes=[0, 1], sample_weight=batch.sample_weight)
    assert sum(sizes) == 500 and max(sizes) == 64
    assert_allclose(by_batches.dual_coef_, expected.dual_coef_, rtol=1e-6)
    twice = model(basis=np.arange(25)).partial_fit(data).partial_fit(data)
    double = model(basis=np.arange(25)).fit(X, y, 2 * WEIGHT)
    assert twice.n_rows_seen_ == 1000
    assert_allclose(twice.dual_coef_, double.dual_coef_, rtol=1e-6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("columns", [{}, {"c": NAMES}], ids=["numbers", "text"])
def test_predictions_batch_by_batch(tmp_path, columns):
    data = leansvm.open_dataset(write(table(y=y, **columns), tmp_path / "x.parquet"), target="y")
    fitted = model(basis=np.arange(9)).fit(data)
    found = [fitted.predict(batch.X) for batch in data.as_table().batches(70)]
    assert_array_equal(np.concatenate(found), fitted.predict(data))


def test_leave_one_out_merges_equal_rows(tmp_path):
    twice = np.r_[np.arange(500), np.arange(100)]
    data = pa.table({"a": X[twice, 0], "b": X[twice, 1], "y": y[twice]})
    found = leansvm.open_dataset(write(data, tmp_path / "x.parquet"), target="y")
    fitted = model(C="loo").fit(found)
    expected = model(C="loo").fit(X[twice], y[twice])
    assert_array_equal(fitted.support_, expected.support_)
    assert_allclose(fitted.loo_residuals_, expected.loo_residuals_, atol=1e-10)
    with pytest.raises(MemoryError, match="leave-one-out residuals of 600 rows"):
        model(C="loo", cache_size=0.01).fit(found)


def test_state_beyond_the_budget_lies_in_files(tmp_path):
    data = leansvm.open_dataset(write(table(y=y), tmp_path / "x.parquet"), target="y")
    kernel = Kernel("rbf", gamma=1.0)
    rows = MemoryBlocks(X, y[:, None].astype(float), columns=60)
    expected = PivotedCholesky(batch=8).select(rows, kernel, 20)
    blocks = data.blocks(Targets(None), columns=60, budget=20_000)
    found = PivotedCholesky(batch=8).select(blocks, kernel, 20)
    assert_array_equal(found.indices, expected.indices)
    assert 0 < blocks.states.in_memory <= 20_000 < blocks.states.on_disk
    whole = model(basis="backfitting", select_on="all", cache_size=0.02, C=10.0).fit(data)
    assert_array_equal(whole.dual_coef_, model(basis="backfitting", C=10.0).fit(X, y).dual_coef_)


def test_selection_on_a_sample_keeps_classes_in_proportion(tmp_path):
    labels = (np.arange(500) % 10 == 0).astype(int)
    data = leansvm.open_dataset(write(table(y=labels), tmp_path / "x.parquet"), target="y")
    parameters = {"basis": "pivoted-cholesky", "select_on": 100, "C": 10.0}
    fitted = model(**parameters).fit(data)
    assert fitted.fit_report_["selection"]["selected_on"] == 100
    assert_array_equal(fitted.support_, model(**parameters).fit(X, labels).support_)


def test_only_what_is_needed_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(
        kernel_machine, "_ROWS_DRAWN_BY_VALUES", 100
    )  # fewer are read to put them in order
    data = leansvm.open_dataset(write(table(y=y), tmp_path / "x.parquet"), target="y")
    seen, read = [], type(data).read
    monkeypatch.setattr(
        type(data), "read", lambda self, parts, n: seen.append(parts) or read(self, parts, n)
    )
    model(gamma=1.0, C=1.0).fit(data)
    assert seen[0] == {"y"}  # classes: the target alone
    assert sum("X" in parts for parts in seen) == 1  # the sums; basis points are taken by number


def test_clear_errors(tmp_path):
    path = write(table(y=y, name=NAMES), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="no column 'z'"):
        leansvm.open_dataset(path, target="z")
    with pytest.raises(ValueError, match="format must be one of"):
        leansvm.open_dataset(tmp_path / "x.xlsx")
    data = leansvm.open_dataset(path, target="y", features=["a", "b"])
    with pytest.raises(ValueError, match="contains its targets"):
        model().fit(data, y)
    with pytest.raises(ValueError, match=r"open_dataset\(\.\.\., target"):
        model().fit(leansvm.open_dataset(path, features=["a", "b"]))
    with pytest.raises(TypeError, match="LSSVC needs rows in memory"):
        LSSVC().fit(data, y)
    with pytest.raises(ValueError, match="precomputed"):
        model(kernel="precomputed").fit(data)
    with pytest.raises(ValueError, match="feature names"):
        model().fit(data).predict(leansvm.open_dataset(path, features=["b", "a"]))
    with pytest.raises(ValueError, match="expecting 2 features"):
        model().fit(X, y).predict(leansvm.open_dataset(path, features=["b"]))
    with pytest.raises(ValueError, match="score needs the targets"):
        model().fit(data).score(leansvm.open_dataset(path, features=["a", "b"]))


@pytest.mark.parametrize("given", [None, "csv"])
def test_no_files_and_files_of_two_formats_are_refused(tmp_path, given):
    with pytest.raises(ValueError, match=r"found no files in \[\]"):
        leansvm.open_dataset([], format=given)
    with pytest.raises(ValueError, match="found no files in"):
        leansvm.open_dataset(tmp_path, format=given)
    files = [write(table(y=y), tmp_path / f"a.{kind}", kind) for kind in ("csv", "parquet")]
    for source in (tmp_path, files, files[::-1]):
        with pytest.raises(ValueError) as caught:
            leansvm.open_dataset(source, format=given)
        if given is None:
            assert "mixes files of the formats csv and parquet: pass a list" in str(caught.value)
        else:
            assert "a.parquet" in str(caught.value) and str(caught.value).isprintable()


def changed(name, row, value, **columns):
    """The rows with one value replaced."""
    data = table(**columns)
    values = data[name].to_pylist()
    values[row] = value
    return data.set_column(data.column_names.index(name), name, pa.array(values))


@pytest.mark.parametrize("format", ["parquet", "csv"])
@pytest.mark.parametrize(
    ("name", "value", "parameters", "message"),
    [
        ("b", np.inf, {"basis": np.arange(9), "C": 1.0}, "Input X contains infinity"),
        ("y", None, {}, "Input y contains NaN."),
        ("w", -1.0, {}, "Negative values in data passed to `sample_weight`."),
    ],
    ids=["infinity", "missing label", "negative weight"],
)
def test_errors_name_file_row_group_row_and_column(
    tmp_path, format, name, value, parameters, message
):
    for i in range(4):
        write(table(y=y, w=WEIGHT), tmp_path / f"{i}.{format}", format)
    write(changed(name, 212, value, y=y, w=WEIGHT), tmp_path / f"4.{format}", format)
    with pytest.raises(ValueError) as caught:
        model(**parameters).fit(leansvm.open_dataset(tmp_path, target="y", sample_weight="w"))
    group = ", row group 2" if format == "parquet" else ""
    place = f"4.{format}{group}, row 212 (the first is 0), column '{name}'."
    assert str(caught.value).startswith(message) and str(caught.value).endswith(place)


def test_targets_and_points_that_are_no_numbers_are_named(tmp_path):
    path = write(changed("t", 100, np.nan, t=X[:, 0]), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"t.parquet, row group 1, row 100 .*, column 't'"):
        PlainSparseLSSVR(n_basis=9, random_state=0).fit(leansvm.open_dataset(path, target="t"))
    path = write(changed("a", 7, np.nan, t=X[:, 0]), tmp_path / "a.parquet")
    data = leansvm.open_dataset(path, target="t")
    with pytest.raises(ValueError, match=r"a.parquet, row group 0, row 7 .*, column 'a'"):
        data.blocks(Targets(None)).take(np.array([9, 7, 7]))


@pytest.mark.parametrize(
    ("later", "message"),
    [
        ({"y": y}, r"2.parquet has no column 'a'"),
        ({"a": NAMES, "y": y}, r"2.parquet: column 'a' holds text, but numbers in the first file"),
        ({"a": y, "y": NAMES}, r"2.parquet: column 'y' holds text, but numbers in the first file"),
        ({"a": y, "y": y > 0}, r"2.parquet: column 'y' holds booleans, but numbers in the first"),
    ],
    ids=["missing", "text", "other labels", "truth values"],
)
def test_a_later_file_that_is_different_is_named(tmp_path, later, message):
    write(pa.table({"a": X[:, 0], "y": y}), tmp_path / "1.parquet")
    write(pa.table(later), tmp_path / "2.parquet")
    with pytest.raises(ValueError, match=message):
        leansvm.open_dataset(tmp_path, target="y")


def test_numbers_of_other_types_in_later_files(tmp_path):
    write(pa.table({"a": X[:, 0], "y": y}), tmp_path / "1.parquet")
    write(pa.table({"a": y > 0, "y": y.astype(np.int8)}), tmp_path / "2.parquet")
    both = leansvm.open_dataset(tmp_path, target="y")
    assert_array_equal(np.vstack([batch.X for batch in both.batches()])[:, 0], np.r_[X[:, 0], y])


def test_a_csv_value_that_is_no_number_is_named(tmp_path):
    (tmp_path / "1.csv").write_text("a,y\n1,0\n2,1\n")
    (tmp_path / "2.csv").write_text("a,y\n1,0\n" + "2,1\n" * 400_000 + "x,1\n")
    with pytest.raises(ValueError, match=r"2\.csv: .*invalid value 'x'"):
        model(basis=np.arange(2)).fit(leansvm.open_dataset(tmp_path, target="y"))


def test_columns_in_names_of_folders_are_refused(tmp_path):
    from pyarrow import dataset

    (tmp_path / "year=2024").mkdir()
    write(table(y=y), tmp_path / "year=2024" / "x.parquet")
    found = dataset.dataset(tmp_path, partitioning="hive")
    with pytest.raises(ValueError, match=r"x.parquet: column 'year' is in the name of a folder"):
        leansvm.open_dataset(found, target="y")
    assert leansvm.open_dataset(found, target="y", features=["a", "b"]).shape == (500, 2)
    assert leansvm.open_dataset(tmp_path, target="y").shape == (500, 2)


def test_mixed_labels_of_a_dask_frame_are_named():
    dd = pytest.importorskip("dask.dataframe", reason="dask is not installed")
    import dask
    import pandas as pd

    labels = pd.Series(["moon", "sun"] * 150 + ["moon", 1] * 100, dtype=object)
    with dask.config.set({"dataframe.convert-string": False, "scheduler": "threads"}):
        parts = [
            dd.from_pandas(part, npartitions=5)
            for part in (pd.DataFrame(X, columns=["a", "b"]), labels)
        ]
        with pytest.raises(ValueError, match=r"Some labels in y are text .* partition 3, row 0"):
            model().fit(*parts)


def test_rows_that_disappear_are_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_machine, "_ROWS_DRAWN_BY_VALUES", 100)
    path = write(table(y=y), tmp_path / "x.csv", "csv")
    data = leansvm.open_dataset(path, target="y")
    write(table(y=y).slice(0, 400), path, "csv")
    with pytest.raises(OSError, match="fewer rows now than the 500 that it had"):
        model(C=1.0).fit(data)
    with pytest.raises(OSError, match="400 rows now, but it had 500"):
        model(C=1.0, basis=np.arange(10)).fit(data)


def test_a_basis_path_over_files_is_that_of_the_rows_in_memory(tmp_path):
    data = leansvm.open_dataset(write(table(y=y), tmp_path / "x.parquet"), target="y")
    machine = model(basis="pivoted-cholesky", n_basis=12)
    expected, found = basis_path(machine, X, y), basis_path(machine, data)
    assert_allclose(found.loo, expected.loo, rtol=1e-9)
    assert_array_equal(found.support, expected.support)
    with pytest.raises(TypeError, match="X_score must be an array in memory"):
        basis_path(machine, X, y, X_score=data)
    with pytest.raises(MemoryError, match="leave-one-out residuals of 500 rows"):
        basis_path(machine.set_params(C=1.0, cache_size=0.01), data)


@pytest.mark.filterwarnings("error")
def test_many_classes_are_no_regression(tmp_path):
    labels = np.arange(500) % 25
    data = leansvm.open_dataset(write(table(y=labels), tmp_path / "x.parquet"), target="y")
    fitted = model(C=1.0).fit(data)
    assert_array_equal(fitted.classes_, np.arange(25))
    assert_allclose(fitted.dual_coef_, model(C=1.0).fit(X, labels).dual_coef_, rtol=1e-9)
