"""States, groups and learning curves are the same wherever the rows are."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import leansvm
from leansvm.model_selection import KFoldSums, cross_val_from_sums, learning_curve_from_sums
from leansvm.persistence import StateError
from tests.plain import PlainSparseLSSVC, PlainSparseLSSVR

rng = np.random.default_rng(8)
M = 300
X = rng.normal(size=(M, 4))
TARGETS = np.column_stack([np.sin(2 * X[:, 0]) + 30, X[:, 1] * X[:, 2]])
LABELS = np.digitize(X[:, 0] + X[:, 3], [-0.6, 0.6])
WEIGHT = rng.uniform(0.5, 2.0, size=M)
GROUPS = rng.integers(0, 4, size=M)
POINTS = rng.normal(size=(20, 4))
OPTIONS = {"gamma": 0.3, "basis": POINTS}


class Call:
    """Lets a source call any function with its rows, as it calls ``fit``."""

    def __init__(self, function, *args, **kwargs):
        self.function, self.args, self.kwargs = function, args, kwargs

    def fit(self, rows, y=None, sample_weight=None):
        return self.function(*self.args, rows, y, sample_weight=sample_weight, **self.kwargs)


@pytest.mark.parametrize("task", ["targets", "labels"])
def test_states_add_up_and_forget(source, task):
    estimator, y = (PlainSparseLSSVR, TARGETS) if task == "targets" else (PlainSparseLSSVC, LABELS)
    pooled = estimator("kfold", **OPTIONS).fit(X, y, sample_weight=WEIGHT)
    site = estimator("kfold").fit_from_state(pooled.state().empty())
    first, second = np.arange(120), np.arange(120, M)
    parts = [
        source.fit(Call(site.state), X[rows], y[rows], WEIGHT[rows]) for rows in (first, second)
    ]
    merged = estimator("kfold").fit_from_state(parts[0] + parts[1])
    assert_allclose(merged.cv_curve_, pooled.cv_curve_, rtol=1e-8)
    assert_allclose(merged.dual_coef_, pooled.dual_coef_, rtol=1e-8, atol=1e-10)
    left = estimator(5.0).fit_from_state(parts[0] + parts[1] - parts[0])
    again = estimator(5.0, **OPTIONS).fit(X[second], y[second], sample_weight=WEIGHT[second])
    assert_allclose(left.dual_coef_, again.dual_coef_, rtol=1e-8, atol=1e-9)
    assert source.apply(merged, "predict", X).shape == y.shape


def test_basis_rows_are_found_everywhere(source):
    model = PlainSparseLSSVR(5.0, gamma=0.3, n_basis=10, random_state=0).fit(X, TARGETS)
    mine = np.append(model.support_[:2], np.setdiff1d(np.arange(M), model.support_)[:40])
    state = source.fit(Call(model.state), X[mine], TARGETS[mine])
    with pytest.raises(StateError, match="2 of the 10 basis points"):
        model.state() - state


def test_groups_and_learning_curves(source):
    folds = KFoldSums(None, groups=GROUPS)
    model = PlainSparseLSSVR(5.0, **OPTIONS)
    for function in (cross_val_from_sums, learning_curve_from_sums):
        options = {"folds": folds, "C": [0.1, 10.0]}
        here = function(model, X, TARGETS, sample_weight=WEIGHT, **options)
        there = source.fit(Call(function, model, **options), X, TARGETS, WEIGHT)
        for name in ("errors", "weight", "train_errors", "test_errors", "train_sizes"):
            if hasattr(here, name):
                assert_allclose(getattr(there, name), getattr(here, name), rtol=1e-8)
    fitted = source.fit(PlainSparseLSSVR(folds, **OPTIONS), X, TARGETS, WEIGHT)
    whole = PlainSparseLSSVR(folds, **OPTIONS).fit(X, TARGETS, sample_weight=WEIGHT)
    assert_allclose(fitted.cv_curve_, whole.cv_curve_, rtol=1e-8)


@pytest.mark.parametrize("C", [5.0, "kfold"])
def test_a_federated_fit_over_four_shards_is_the_pooled_one(tmp_path, C):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    paths = [tmp_path / f"site-{k}.parquet" for k in range(4)]
    for path, rows in zip(paths, np.array_split(np.arange(M), 4), strict=True):
        columns = {f"x{j}": X[rows, j] for j in range(4)}
        columns |= {"a": TARGETS[rows, 0], "b": TARGETS[rows, 1], "w": WEIGHT[rows]}
        parquet.write_table(pyarrow.table(columns), path, row_group_size=30)

    def opened(source):
        return leansvm.open_dataset(source, target=["a", "b"], sample_weight="w")

    public = PlainSparseLSSVR(1.0, gamma=0.3, n_basis=25, random_state=0)
    names = [f"x{j}" for j in range(4)]
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    public.fit(
        pandas.DataFrame(rng.normal(size=(200, 4)), columns=names), rng.normal(size=(200, 2))
    )
    plan = public.state().empty()
    plan.save(tmp_path / "plan")
    states = []
    for k, path in enumerate(paths):
        site = PlainSparseLSSVR(C).fit_from_state(type(plan).load(tmp_path / "plan"))
        site.state(opened(path)).save(tmp_path / f"sums-{k}")
        states.append(type(plan).load(tmp_path / f"sums-{k}"))
    merged = PlainSparseLSSVR(C).fit_from_state(sum(states))
    pooled = PlainSparseLSSVR(C, gamma=0.3, basis=plan.points).fit(opened(paths))
    at = pandas.DataFrame(X, columns=names)
    difference = merged.predict(at) - pooled.predict(at)
    assert np.abs(difference).max() <= 1e-10 * np.abs(pooled.predict(at)).max()
    assert merged.C_ == pooled.C_
    assert_allclose(merged.objective_, pooled.objective_, rtol=1e-10)


def test_groups_come_from_a_column_of_the_files(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    names = np.array(["north", "south", "east", "west"])[GROUPS]
    columns = {f"x{j}": X[:, j] for j in range(4)} | {"y": TARGETS[:, 0], "clinic": names}
    for k, rows in enumerate((slice(0, 130), slice(130, M))):
        table = pyarrow.table(columns)[rows]
        parquet.write_table(table, tmp_path / f"{k}.parquet", row_group_size=50)
    data = leansvm.open_dataset(tmp_path, target="y", features=[f"x{j}" for j in range(4)])
    clinic = data.column("clinic")
    assert clinic.tolist() == names.tolist()
    folds = KFoldSums(None, groups=clinic)
    model = PlainSparseLSSVR(5.0, **OPTIONS)
    there = cross_val_from_sums(model, data, folds=folds)
    here = cross_val_from_sums(model, X, TARGETS[:, 0], folds=KFoldSums(None, groups=names))
    assert there.names == here.names == ["east", "north", "south", "west"]
    assert_allclose(there.errors, here.errors, rtol=1e-8)
    with pytest.raises(ValueError, match="no column 'ward'"):
        data.column("ward")


def test_groups_may_be_a_dask_array():
    da = pytest.importorskip("dask.array")
    model = PlainSparseLSSVR(5.0, **OPTIONS)
    rows, y = da.from_array(X, chunks=(100, 4)), da.from_array(TARGETS, chunks=(100, 2))
    folds = KFoldSums(None, groups=da.from_array(GROUPS, chunks=100))
    there = cross_val_from_sums(model, rows, y, folds=folds)
    here = cross_val_from_sums(model, X, TARGETS, folds=KFoldSums(None, groups=GROUPS))
    assert_allclose(there.errors, here.errors, rtol=1e-8)
