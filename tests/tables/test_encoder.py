"""What each kind of column becomes, and that weights count like copies."""

import datetime as dt
import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler

from leansvm.tables import TableEncoder
from tests.checks import run_checks

RNG = np.random.default_rng(0)


def mixed(n=400, seed=0):
    rng = np.random.default_rng(seed)
    start = np.datetime64("2024-03-01T00:00")
    return pd.DataFrame(
        {
            "age": np.where(rng.random(n) < 0.1, np.nan, rng.normal(40, 10, n)),
            "city": rng.choice(["Rome", "Oslo", "Bonn", "Kyiv"], n, p=[0.5, 0.3, 0.19, 0.01]),
            "shop": [f"shop {i}" for i in rng.integers(80, size=n)],
            "member": rng.random(n) < 0.3,
            "time": start + rng.integers(20_000, size=n).astype("timedelta64[m]"),
            "id": [f"customer {i}" for i in range(n)],
            "plan": "basic",
            "fax": [None] * n,
        }
    )


def target(table):
    shop = table["shop"].str[5:].astype(int)
    return np.sin(shop * 7.0) + 0.05 * table["age"].fillna(40) + (table["city"] == "Rome")


def test_scikit_learn_checks():
    run_checks(TableEncoder())


def test_kinds_and_summary():
    table = mixed()
    encoder = TableEncoder().fit(table, target(table))
    assert encoder.kinds_ == {
        "age": "number",
        "city": "category",
        "shop": "category",
        "member": "category",
        "time": "date",
    }
    assert encoder.left_out_ == {
        "id": "all different",
        "plan": "the same in all rows",
        "fax": "no values",
    }
    assert encoder.describe() == (
        "1 number (1 with missing values), 3 categories, 1 date; left out: id (all different), "
        "plan (the "
        "same in all rows), fax (no values)"
    )
    assert list(encoder.feature_names_in_) == list(table)


def test_features_tell_their_column_group_and_kind():
    table = mixed()
    encoder = TableEncoder().fit(table, target(table))
    names = encoder.get_feature_names_out()
    features = encoder.transform(table)
    assert features.shape == (len(table), len(names))
    assert len(encoder.columns_) == len(encoder.groups_) == len(encoder.numeric_) == len(names)
    shown = dict(zip(names, zip(encoder.columns_, encoder.numeric_, strict=True), strict=True))
    assert shown["age"] == ("age", True) and shown["age:missing"] == ("age", False)
    assert shown["city=Rome"] == ("city", False) and shown["shop:mean"] == ("shop", True)
    assert shown["time:days"] == ("time", True) and shown["time:hour_sin"] == ("time", False)
    group = dict(zip(names, encoder.groups_, strict=True))
    assert group["city=Rome"] == group["city=Oslo"] != group["age"] != group["age:missing"]
    assert group["time:hour_sin"] == group["time:hour_cos"] != group["time:weekday_sin"]
    assert group["shop:mean"] != group["shop:rare"]
    assert sorted(set(encoder.groups_)) == list(range(max(encoder.groups_) + 1))


def test_numbers_are_filled_by_the_median_and_standardised():
    table = mixed()[["age"]]
    raw = TableEncoder(standardize=False).fit_transform(table)
    filled = table["age"].fillna(table["age"].median())
    np.testing.assert_allclose(raw[:, 0], filled)
    np.testing.assert_array_equal(raw[:, 1], table["age"].isna())
    scaled = TableEncoder().fit_transform(table)
    np.testing.assert_allclose(scaled[:, :1], StandardScaler().fit_transform(filled.to_frame()))


def test_different_levels_have_distance_one():
    table = pd.DataFrame({"c": list("aabbcc") * 10})
    features = TableEncoder().fit_transform(table)
    squares = ((features[:, None] - features) ** 2).sum(axis=2)
    different = table["c"].to_numpy()[:, None] != table["c"].to_numpy()
    np.testing.assert_allclose(squares, different, atol=1e-15)


def test_two_levels_are_one_feature_and_also_have_distance_one():
    encoder = TableEncoder().fit(pd.DataFrame({"c": ["no"] * 30 + ["yes"] * 20}))
    np.testing.assert_array_equal(encoder.get_feature_names_out(), ["c=yes"])
    np.testing.assert_array_equal(encoder.transform(pd.DataFrame({"c": ["no", "yes"]})), [[0], [1]])


def test_rare_and_unseen_levels_share_a_feature():
    table = pd.DataFrame({"c": ["a"] * 800 + ["b"] * 800 + ["x"] * 5 + ["y"] * 5})
    encoder = TableEncoder().fit(table)
    assert list(encoder.get_feature_names_out()) == ["c=a", "c=b", "c:rare"]
    x, new, none = encoder.transform(pd.DataFrame({"c": ["x", "never seen", None]}))
    np.testing.assert_array_equal(x, new)
    np.testing.assert_array_equal(none, new)
    encoder = TableEncoder().fit(pd.DataFrame({"c": list("abc") * 20}))
    assert not encoder.transform(pd.DataFrame({"c": ["new"]})).any()


def test_missing_is_a_level():
    table = pd.DataFrame({"c": ["a", "b", None] * 20})
    encoder = TableEncoder().fit(table)
    assert set(encoder.get_feature_names_out()) == {"c=a", "c=b", "c:missing"}


def test_dates_have_a_trend_and_cycles():
    times = pd.date_range("2024-01-01", periods=24 * 500, freq="h")
    encoder = TableEncoder(standardize=False)
    features = encoder.fit_transform(pd.DataFrame({"t": times}))
    by_name = dict(zip(encoder.get_feature_names_out(), features.T, strict=True))
    np.testing.assert_allclose(by_name["t:days"], np.arange(len(times)) / 24)
    for cycle, position, length in (
        ("hour", times.hour, 24),
        ("weekday", times.day_of_week, 7),
        ("month", times.month - 1, 12),
        ("yearday", times.day_of_year - 1, 365.25),
    ):
        angle = 2 * np.pi * np.asarray(position) / length
        np.testing.assert_allclose(by_name[f"t:{cycle}_sin"], np.sin(angle), atol=1e-9)
        np.testing.assert_allclose(by_name[f"t:{cycle}_cos"], np.cos(angle), atol=1e-9)


def test_cycles_that_do_not_vary_are_left_out():
    days = pd.DataFrame({"t": pd.date_range("2024-01-01", periods=20)})
    names = TableEncoder().fit(days).get_feature_names_out()
    assert not [name for name in names if "hour" in name or "month" in name]
    assert "t:weekday_sin" in names


@pytest.mark.parametrize("given", [2.0, 3.0])
def test_weights_count_like_copies(given):
    table = mixed(300)
    y = target(table).to_numpy()
    weight = np.ones(300)
    weight[::3] = given
    weight[7] = 0.0
    copies = np.repeat(np.arange(300), weight.astype(int))
    copies = np.random.default_rng(1).permutation(copies)
    for answer in (y, y > 3):
        weighed, repeated = TableEncoder(), TableEncoder()
        features = weighed.fit_transform(table, answer, weight)
        np.testing.assert_allclose(
            repeated.fit_transform(table.iloc[copies], answer[copies]), features[copies], atol=1e-10
        )
        np.testing.assert_allclose(
            weighed.transform(table), repeated.transform(table), rtol=0, atol=1e-10
        )
        assert weighed.left_out_ == repeated.left_out_


def test_the_size_of_small_weights_does_not_matter():
    table, weight = mixed(), RNG.uniform(0.5, 1, 400)
    y = target(table)
    one, other = (TableEncoder().fit_transform(table, y, weight * size) for size in (1e-3, 1e-6))
    np.testing.assert_allclose(one, other, atol=1e-9)


def test_a_row_does_not_see_its_own_target():
    """With targets that are noise the means of training rows say nothing about them."""
    rng = np.random.default_rng(3)
    table = pd.DataFrame(
        {"c": rng.integers(400, size=4000).astype(str), "x": rng.normal(size=4000)}
    )
    table["c"] = "level " + table["c"]
    y = rng.normal(size=4000)
    encoder = TableEncoder()
    own = encoder.fit_transform(table, y)[:, list(encoder.get_feature_names_out()).index("c:mean")]
    assert abs(np.corrcoef(own, y)[0, 1]) < 0.05


def test_means_by_level_are_shrunk_means():
    rng = np.random.default_rng(3)
    level = rng.integers(100, size=5000)
    effect = rng.normal(size=100)
    y = effect[level] + rng.normal(size=5000)
    table = pd.DataFrame({"c": np.char.add("l", level.astype(str)), "x": rng.normal(size=5000)})
    encoder = TableEncoder(standardize=False).fit(table, y)
    place = list(encoder.get_feature_names_out()).index("c:mean")
    found = encoder.transform(table)[:, place]
    plain = pd.Series(y).groupby(level).transform("mean")
    count = pd.Series(y).groupby(level).transform("size")
    shrunk = (plain * count + y.mean()) / (count + 1)  # the variances are 1 and 1
    np.testing.assert_allclose(found, shrunk, atol=0.02)
    unseen = encoder.transform(pd.DataFrame({"c": ["new"], "x": [0.0]}))
    np.testing.assert_allclose(unseen[0, place], y.mean())


def test_equal_rows_of_a_single_column_still_get_useful_means():
    """Copies cannot be in different folds; they must not get the mean of the other class."""
    rng = np.random.default_rng(0)
    level = rng.integers(60, size=6000)
    share = rng.random(60)
    y = rng.random(6000) < share[level]
    encoder = TableEncoder()
    features = encoder.fit_transform(pd.DataFrame({"c": np.char.add("l", level.astype(str))}), y)
    mean = features[:, list(encoder.get_feature_names_out()).index("c:mean")]
    assert abs(np.corrcoef(mean, share[level])[0, 1]) > 0.95


def test_many_classes_give_ten_means_and_no_target_none():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"c": [f"l{i}" for i in rng.integers(50, size=3000)]})
    names = TableEncoder().fit(table, rng.integers(15, size=3000)).get_feature_names_out()
    assert sum(":mean" in name for name in names) == 10
    names = TableEncoder().fit(table).get_feature_names_out()
    assert not [name for name in names if ":mean" in name]


def test_pandas_polars_and_arrow_give_the_same():
    table = mixed()
    y = target(table)
    one = TableEncoder().fit(table, y)
    other = TableEncoder().fit(pl.from_pandas(table), y)
    np.testing.assert_array_equal(one.transform(table), other.transform(pl.from_pandas(table)))
    np.testing.assert_array_equal(one.transform(table), other.transform(table))
    arrow = pl.from_pandas(table).to_arrow()
    np.testing.assert_array_equal(one.transform(arrow), other.transform(table))


def test_order_of_the_rows_changes_nothing():
    table = mixed()
    y, order = target(table), np.random.default_rng(0).permutation(400)
    features = TableEncoder().fit_transform(table, y)
    moved = TableEncoder().fit_transform(table.iloc[order], y.iloc[order])
    np.testing.assert_allclose(moved, features[order], atol=1e-10)


def test_clone_pickle_and_set_output():
    table = mixed()
    encoder = TableEncoder().fit(table, target(table))
    again = pickle.loads(pickle.dumps(encoder))
    np.testing.assert_array_equal(again.transform(table), encoder.transform(table))
    frame = clone(encoder).set_output(transform="pandas").fit_transform(table, target(table))
    assert list(frame.columns) == list(encoder.get_feature_names_out())


def test_arrays_with_gaps():
    X = RNG.normal(size=(50, 3))
    X[::5, 1] = np.nan
    encoder = TableEncoder(standardize=False).fit(X)
    assert list(encoder.get_feature_names_out()) == ["x0", "x1", "x1:missing", "x2"]
    np.testing.assert_allclose(encoder.transform(X)[0, 1], np.nanmedian(X[:, 1]))
    assert not np.isnan(encoder.transform(np.full((1, 3), np.nan))).any()


def test_times_of_day_and_durations():
    table = pl.DataFrame(
        {
            "at": [dt.time(h, 30) for h in range(24)],
            "for": [dt.timedelta(hours=6 * h) for h in range(24)],
        }
    )
    encoder = TableEncoder(standardize=False)
    features = encoder.fit_transform(table)
    by_name = dict(zip(encoder.get_feature_names_out(), features.T, strict=True))
    np.testing.assert_allclose(by_name["at:hours"], np.arange(24) + 0.5)
    np.testing.assert_allclose(by_name["for"], np.arange(24) / 4)
    assert encoder.kinds_ == {"at": "time", "for": "number"}
    np.testing.assert_allclose(
        encoder.transform(pl.DataFrame({"at": ["07:30"], "for": [0.5]}))[0, 0], 7.5
    )


def test_a_column_of_numbers_with_a_few_texts_is_told():
    texts = [f"{x:.2f}" for x in np.linspace(0, 9, 60)]
    with pytest.warns(
        UserWarning, match="Column 'price' is read as text, because 1 of its 60 different"
    ):
        TableEncoder().fit(pd.DataFrame({"price": [*texts[1:], "on request"], "x": texts}))
    codes = pd.DataFrame({"code": [f"{i}" if i % 5 else f"{i}b" for i in range(60)]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TableEncoder().fit(codes.assign(x=range(60)), np.arange(60))  # every fifth is none
        TableEncoder().fit(pd.DataFrame({"price": texts}), np.arange(60))


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (
            [f"{d:02}/10/2023" for d in range(1, 29)],
            "look like dates, such as '01/10/2023'.*dayfirst",
        ),
        ([f"{d} March 2023 08:30" for d in range(1, 29)], "look like dates, such as '1 March"),
        ([f"2023-03-{d:02}" for d in range(1, 29)] + ["soon"], "1 of its 29 .* is not a date"),
        ([f"€1,{d}00.50" for d in range(1, 9)], "look like numbers, such as '€1,100.50'"),
        ([f"{d},5" for d in range(9)], "look like numbers, such as '0,5'"),
        ([f"€{d}.3k" for d in range(9)], "look like numbers, such as '€0.3k'.* 9.3k as 9300"),
        ([f"{d}.3k" for d in range(5)] + ["7", "9", "800"], "look like numbers, such as '0.3k'"),
        ([f"${d}.2M" for d in range(5)] + ["$7K"], "look like numbers, such as"),
        ([f"{d}%" for d in range(9)], "look like numbers, such as '0%'"),
        ([f"({d})" for d in range(9)], r"look like numbers, such as '\(0\)'"),
        ([f"2020-01-{d:02}" for d in range(1, 31)] + ["2020-02-30"], "1 of its 31 .*2020-02-30"),
        ([f"2020-01-{d:02}" for d in range(1, 31)] + ["0000-00-00"], "1 of its 31 .*0000-00-00"),
    ],
)
def test_text_that_looks_like_dates_or_numbers_is_told(texts, words):
    table = pd.DataFrame({"c": texts * 3, "x": np.arange(3.0 * len(texts))})
    with pytest.warns(UserWarning, match=f"Column 'c' is read as text, .*{words}"):
        TableEncoder().fit(table)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TableEncoder().fit(table.astype({"c": "category"}))


@pytest.mark.parametrize(
    "levels",
    [
        ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "other"],
        ["007", "008", "009", "010", "011"],
        ["12-05", "13-05", "14-07", "15-09", "16-01"],
        ["1.2.3", "1.2.4", "1.3.0", "2.0.0", "2.0.1"],
        ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"],
        ["0664 123 456", "0664 123 457", "0664 123 458", "0664 123 459"],
        ["low 1", "low 2", "low 3", "low 4", "high 1"],
        ["8:30", "9:30", "10:30", "11:30", "12:30"],
    ],
)
def test_ordinary_levels_raise_no_warning(levels):
    table = pd.DataFrame({"c": levels * 4, "x": np.arange(4.0 * len(levels))})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert TableEncoder().fit(table).kinds_["c"] == "category"


@pytest.mark.parametrize("mark", ["n/a", " - ", "?", "NA", "NaT", "null", "None", "k.A.", ""])
def test_marks_of_missing_values_in_text_dates(mark):
    days = pd.Series(pd.date_range("2020-01-01", periods=100).strftime("%Y-%m-%d"), dtype=object)
    table = pd.DataFrame({"a": np.arange(100) % 7.0, "d": days})
    table["t"] = [f"{i % 24:02}:30" for i in range(100)]
    gaps, marked = table.copy(), table.copy()
    gaps.loc[5] = [np.nan, None, None]
    marked.loc[5] = [np.nan, mark, mark]
    wanted, encoder = TableEncoder().fit(gaps), TableEncoder().fit(marked)
    assert encoder.kinds_ == {"a": "number", "d": "date", "t": "time"}
    np.testing.assert_array_equal(encoder.transform(marked), wanted.transform(gaps))
    np.testing.assert_array_equal(wanted.transform(marked), wanted.transform(gaps))
    row = wanted.row_encoder()(marked.loc[5].to_dict())
    np.testing.assert_allclose(row, wanted.transform(gaps)[5], atol=1e-12)


def test_whole_numbers_that_are_dates_are_told():
    days = pd.date_range("2020-01-01", periods=40).strftime("%Y%m%d")
    for given in (days.astype(int), days):
        with pytest.warns(
            UserWarning, match=r"'d' is read as numbers, .*20200101.*format='%Y%m%d'"
        ):
            TableEncoder().fit(pd.DataFrame({"d": given, "x": range(40)}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TableEncoder().fit(pd.DataFrame({"d": days.astype(int) + 40, "x": range(40)}))


def test_levels_that_differ_in_spaces_are_one_and_in_case_are_told():
    towns = ["Berlin", "Berlin ", " Berlin", "Bonn"] * 10
    encoder = TableEncoder().fit(pd.DataFrame({"c": towns, "x": range(40)}))
    assert [*encoder.get_feature_names_out()] == ["c=Bonn", "x"]
    with pytest.warns(
        UserWarning, match="Column 'c' has 'Berlin' and 'berlin' as different"
    ) as got:
        TableEncoder().fit(pd.DataFrame({"c": [*towns, "berlin"], "x": range(41)}))
    assert got[0].filename == __file__
