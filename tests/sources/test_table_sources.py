"""Tables in files and in Dask frames: the encoder learns from a sample and works block by block."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import leansvm
from leansvm.tables import fitting
from tests.plain import PlainReducedSVC, PlainSparseLSSVC, PlainSparseLSSVR

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
csv, parquet = pytest.importorskip("pyarrow.csv"), pytest.importorskip("pyarrow.parquet")

N = 600


def table(n=N, seed=0):
    """Text with gaps, many levels, dates, booleans, categories, numbers with gaps, a text id."""
    rng = np.random.default_rng(seed)
    hours = pd.to_timedelta(rng.integers(0, 9000, n), unit="h")
    return pd.DataFrame(
        {
            "age": np.where(rng.random(n) < 0.1, np.nan, rng.normal(40, 10, n)),
            "city": rng.choice(["Rome", "Oslo", None], n, p=[0.5, 0.4, 0.1]),
            "shop": [f"shop {i}" for i in rng.integers(0, 60, n)],
            "when": pd.Timestamp("2024-01-01") + hours,
            "member": rng.random(n) < 0.5,
            "plan": pd.Categorical(rng.choice(["a", "b", "c"], n)),
            "count": rng.integers(0, 9, n),
            "code": [f"c{i:05d}" for i in rng.permutation(n)],
        }
    )


X = table()
NEW = table(200, seed=1).assign(shop="never seen")
SHIFT = 8.0 * X["member"] + X["shop"].str[5:].astype(float) / 6
VALUE = (X["age"].fillna(40) + SHIFT + np.random.default_rng(2).normal(0, 2, N)).to_numpy()
LABEL = np.where(np.median(VALUE) < VALUE, "high", "low")
MANY = np.array(["a", "b", "c"])[np.digitize(VALUE, np.quantile(VALUE, [0.3, 0.6]))]
WEIGHT = np.random.default_rng(3).integers(0, 3, N).astype(float)


def models():
    options = {"n_basis": 40, "C": 1.0, "random_state": 0}
    return [
        (PlainSparseLSSVC(calibrate=True, **options), LABEL),
        (PlainSparseLSSVC(**options), MANY),
        (PlainReducedSVC(**options), LABEL),
        (PlainSparseLSSVR(**options), VALUE),
    ]


def values(model, rows):
    method = "decision_function" if hasattr(model, "classes_") else "predict"
    return np.asarray(getattr(model, method)(rows))


def written(path, X, **columns):
    whole = X.assign(**columns)
    if path.suffix == ".csv":
        csv.write_csv(pa.Table.from_pandas(whole, preserve_index=False), path)
        return csv.read_csv(path).select(list(X)).to_pandas()
    whole.to_parquet(path, row_group_size=170)
    return X


@pytest.mark.parametrize("format", ["parquet", "csv", "feather"])
@pytest.mark.parametrize("number", range(4))
def test_a_file_gives_the_model_of_the_frame(tmp_path, format, number):
    model, y = models()[number]
    if format == "feather":
        X.assign(y=y).to_feather(tmp_path / "x.feather")
        rows = X
    else:
        rows = written(tmp_path / f"x.{format}", X, y=y)
    data = leansvm.open_dataset(tmp_path / f"x.{format}", target="y")
    assert data.is_table
    expected = values(model.fit(rows, y), NEW)
    found = model.fit(data)
    assert found.table_.describe().startswith("2 numbers (1 with missing values), 4 categories")
    assert found.table_.left_out_ == {"code": "all different"}
    assert list(found.feature_names_in_) == list(X)
    assert_allclose(values(found, NEW), expected, rtol=1e-10, atol=1e-10)
    assert_allclose(values(found, data), values(found, rows), rtol=1e-10, atol=1e-10)
    assert 0.5 < found.score(data) == pytest.approx(found.score(rows, y))


def test_weights_and_learned_scales(tmp_path):
    written(tmp_path / "x.parquet", X, y=VALUE, w=WEIGHT)
    data = leansvm.open_dataset(tmp_path / "x.parquet", target="y", sample_weight="w")
    model = leansvm.SparseLSSVR(n_basis=40, random_state=0)
    expected = model.fit(X, VALUE, WEIGHT).predict(NEW)
    assert_allclose(model.fit(data).predict(NEW), expected, rtol=1e-8)


def test_several_files_with_other_categories(tmp_path):
    for i, rows in enumerate((X[:200], X[200:])):
        plan = rows["plan"].cat.remove_unused_categories().cat.as_ordered()
        rows.assign(plan=plan, y=LABEL[rows.index]).to_parquet(tmp_path / f"{i}.parquet")
    model, y = models()[0]
    expected = values(model.fit(X, y), NEW)
    found = model.fit(leansvm.open_dataset(tmp_path, target="y"))
    assert_allclose(values(found, NEW), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_numbers_and_booleans_with_gaps(tmp_path, format):
    flags = pd.array(X["member"].where(X["count"] > 0), dtype="boolean")
    rows = X[["age", "count"]].assign(flag=flags)
    path = tmp_path / f"x.{format}"
    written(path, rows, y=LABEL)
    data = leansvm.open_dataset(path, target="y")
    assert not data.is_table and data.has_gaps()
    model, y = models()[0]
    expected = values(model.fit(rows, y), rows)
    assert_allclose(values(model.fit(data), rows), expected, rtol=1e-10, atol=1e-10)
    assert_allclose(values(model, data), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_nan_in_a_file_is_a_missing_number(tmp_path, dtype):
    """Parquet tells NaN from null and counts nulls alone."""
    rows = X[["age", "count"]].astype(dtype)
    columns = {name: pa.array(rows[name].to_numpy()) for name in rows}
    parquet.write_table(
        pa.table({**columns, "y": LABEL}), tmp_path / "x.parquet", row_group_size=100
    )
    data = leansvm.open_dataset(tmp_path / "x.parquet", target="y")
    assert parquet.read_table(tmp_path / "x.parquet")["age"].null_count == 0
    assert not data.is_table and data.has_gaps()
    model, y = models()[0]
    expected = values(model.fit(rows.astype(np.float64), y), rows.astype(np.float64))
    assert_allclose(values(model.fit(data), data), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("format", ["parquet", "csv"])
def test_files_of_numbers_have_no_encoder(tmp_path, format):
    written(tmp_path / f"x.{format}", X[["count"]].assign(age=X["age"].fillna(40)), y=LABEL)
    data = leansvm.open_dataset(tmp_path / f"x.{format}", target="y")
    assert not data.is_table and not data.has_gaps()
    assert not hasattr(models()[0][0].fit(data), "table_")


def test_a_sample_of_the_rows_is_enough(tmp_path, monkeypatch):
    written(tmp_path / "x.parquet", X, y=VALUE)
    data = leansvm.open_dataset(tmp_path / "x.parquet", target="y")
    monkeypatch.setattr(fitting, "SAMPLE_ROWS", 300)
    model = models()[3][0].fit(data)
    assert len(model.table_._columns[2].known) < 61 and model.n_rows_seen_ == N
    assert model.score(X, VALUE) > 0.8


def test_rows_do_not_see_their_own_target(tmp_path):
    # a target of noise: means of a level's own rows would predict it
    noise = np.random.default_rng(4).normal(size=N)
    rows = pd.DataFrame({"level": [f"l{i // 3}" for i in range(N)], "x": np.arange(N) % 7})
    written(tmp_path / "x.parquet", rows, y=noise)
    data = leansvm.open_dataset(tmp_path / "x.parquet", target="y")
    blocks = []
    fitted = leansvm.tables.TableEncoder().fit_transform(rows, noise)

    class Spy(PlainSparseLSSVR):
        def _prepare(self, data, run):
            blocks.append(data.blocks().take(np.arange(N)[::-1])[::-1])
            return super()._prepare(data, run)

    Spy(n_basis=20, C=1.0, random_state=0).fit(data)
    assert_array_equal(blocks[0], fitted)
    assert abs(np.corrcoef(fitted[:, 0], noise)[0, 1]) < 0.2


def test_batches_and_what_is_refused(tmp_path):
    written(tmp_path / "x.parquet", X, y=LABEL)
    data = leansvm.open_dataset(tmp_path / "x.parquet", target="y")
    model = PlainSparseLSSVC(n_basis=20, C=1.0, random_state=0).partial_fit(data)
    assert model.partial_fit(data).n_rows_seen_ == 2 * N
    numbers = leansvm.open_dataset(tmp_path / "x.parquet", target="y", features=["count", "member"])
    plain = PlainSparseLSSVC(n_basis=20, C=1.0).fit(numbers)
    with pytest.raises(ValueError, match="expecting 2 features"):
        plain.predict(data)
    with pytest.raises(ValueError, match="X has no columns 'age'"):
        model.predict(numbers)
    with pytest.raises(ValueError, match="takes only numbers"):
        PlainSparseLSSVC(kernel=lambda A, B: A @ B.T).fit(data)
    nested = pa.table({"a": [[1], [2]], "b": [1.0, 2.0], "y": ["u", "v"]})
    parquet.write_table(nested, tmp_path / "nested.parquet")
    nested = leansvm.open_dataset(tmp_path / "nested.parquet", target="y")
    with pytest.raises(TypeError, match="Column 'a' holds List"):
        PlainSparseLSSVC(n_basis=1).fit(nested)


def test_values_of_another_kind_in_later_blocks_are_named(tmp_path):
    rows = pd.DataFrame({"price": ["1.5", "2"] * 300, "x": np.arange(600.0), "y": VALUE})
    rows.to_parquet(tmp_path / "0.parquet")
    rows.assign(price="cheap").to_parquet(tmp_path / "1.parquet")
    model = PlainSparseLSSVR(n_basis=5, C=1.0)
    model.fit(leansvm.open_dataset(tmp_path / "0.parquet", target="y"))
    later = leansvm.open_dataset(tmp_path / "1.parquet", features=["price", "x"])
    with pytest.raises(ValueError, match="Column 'price' had numbers in training, but now 'cheap'"):
        model.predict(later)


# ---------------------------------------------------------------------------- Dask


def dask_frames(X, y, npartitions=4):
    dd = pytest.importorskip("dask.dataframe", reason="dask is not installed")
    pytest.importorskip("distributed", reason="distributed is not installed")
    return [dd.from_pandas(p, npartitions, sort=False) for p in (X, pd.Series(y, index=X.index))]


@pytest.mark.parametrize("number", [1, 3])
def test_dask_frames_give_the_model_of_the_frame(scheduler, number):
    model, y = models()[number]
    expected = values(model.fit(X, y), NEW)
    found = model.fit(*dask_frames(X, y))
    assert_allclose(values(found, NEW), expected, rtol=1e-10, atol=1e-10)
    later = values(found, dask_frames(NEW, NEW["count"])[0])
    assert_allclose(later, values(found, NEW), rtol=1e-12)


def test_dask_frames_of_numbers_with_gaps(scheduler):
    rows = X[["age", "count"]].astype({"count": "Int64"})
    model, y = models()[0]
    expected = values(model.fit(rows, y), rows)
    found = model.fit(*dask_frames(rows, y))
    assert_allclose(values(found, rows), expected, rtol=1e-10, atol=1e-10)
    assert not hasattr(model.fit(*dask_frames(rows[["count"]], y)), "table_")


def test_dask_frames_with_text_need_a_model_of_tables():
    frame = dask_frames(X, LABEL)[0]
    model = PlainSparseLSSVC(n_basis=5, C=1.0).fit(X[["count"]], LABEL)
    with pytest.raises(ValueError, match="expecting 1 features"):
        model.predict(frame)
    with pytest.raises(ValueError, match="was fitted on numbers"):
        model.predict(frame[["city"]].rename(columns={"city": "count"}))
