"""How often a data set in files is read, by every selector and estimator."""

from collections import Counter

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn import config_context
from sklearn.datasets import make_moons

import leansvm
from leansvm import ReducedSVR
from leansvm.basis import CSI, SparseGreedy
from leansvm.basis.choose import SELECTORS
from leansvm.estimators import kernel_machine
from leansvm.rows import MemoryBlocks, Targets, declare
from tests.plain import PlainReducedSVC, PlainSparseLSSVC, PlainSparseLSSVR

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

X, y = make_moons(600, noise=0.2, random_state=0)
# in the whole fit: X as a whole, and some rows of it
MOST = {
    "random": (1, 2),
    "pivoted-cholesky": (4, 6),
    "random-pivoted-cholesky": (4, 6),
    "backfitting": (4, 6),
    "forward": (4, 6),
    "csi": (4, 6),
    "sparse-greedy": (4, 6),
    "entropy": (1, 6),
    "medoids": (1, 3),
}
BY_VALUE = ("random", "entropy", "medoids")  # few rows are put in order first


@pytest.fixture
def counted(tmp_path, monkeypatch):
    """A data set of several row groups, and what has been read of it."""
    from pyarrow import parquet

    path = tmp_path / "x.parquet"
    parquet.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "y": y}), path, row_group_size=90)
    data, reads = leansvm.open_dataset(path, target="y"), Counter()
    kind = type(data)
    read, pieces = kind.read, kind.pieces

    def counting_read(self, parts, n_rows):
        reads.update(parts)
        return read(self, parts, n_rows)

    def counting_pieces(self, *args):
        reads["some"] += 1
        return pieces(self, *args)

    monkeypatch.setattr(kind, "read", counting_read)
    monkeypatch.setattr(kind, "pieces", counting_pieces)
    with config_context(working_memory=0.1):
        yield data, reads


@pytest.mark.parametrize(
    ("name", "few_rows"),
    [*((name, 100_000) for name in SELECTORS), *((name, 100) for name in BY_VALUE)],
)
def test_selectors_read_few_times(counted, monkeypatch, name, few_rows):
    if name == "medoids":
        pytest.importorskip("kmedoids", reason="kmedoids is not installed")
    data, reads = counted
    model = PlainSparseLSSVC(C=1.0, gamma=1.0, basis=name, n_basis=50, random_state=0)
    model.set_params(calibrate=False)
    monkeypatch.setattr(kernel_machine, "_ROWS_DRAWN_BY_VALUES", few_rows)
    expected = model.fit(X, y).support_
    model.fit(data)
    assert_array_equal(model.support_, expected)
    whole, some = MOST[name]
    if len(X) <= few_rows and name in BY_VALUE:
        whole += 2  # the order of their values
    assert reads["X"] <= whole and reads["some"] <= some


def test_scale_is_one_pass_and_random_rows_are_none(counted, monkeypatch):
    data, reads = counted
    monkeypatch.setattr(kernel_machine, "_ROWS_DRAWN_BY_VALUES", 100)  # rows are drawn by position
    blocks = data.blocks(Targets(None))
    assert blocks.variance() == pytest.approx(X.var())
    assert reads == {"X": 1}
    model = PlainSparseLSSVC(C=1.0, gamma="scale", n_basis=30, random_state=0, calibrate=False)
    expected = model.fit(X, y).support_
    reads.clear()
    assert_array_equal(model.fit(data).support_, expected)
    assert reads["X"] == 2  # the scale, the sums


@pytest.mark.parametrize(
    "model",
    [
        PlainSparseLSSVC("gcv", n_basis=20),
        PlainSparseLSSVC("loo", n_basis="auto", calibrate=True),
        PlainSparseLSSVR(10.0, n_basis=20, basis="backfitting"),
        PlainReducedSVC(n_basis=20, calibrate=True),
        PlainReducedSVC(1.0, n_basis=20, loss="huber", regularizer="coef", basis="forward"),
        ReducedSVR(n_basis=20, basis="csi"),
    ],
)
def test_all_passes_of_all_estimators_declare_what_they_read(counted, model):
    data, reads = counted
    model = model.set_params(random_state=0)
    model.fit(data)
    model.predict(data)
    model.score(data)
    assert reads["X"] <= 4 + 4 + 2  # merging or solving, each from blocks of its own; answers


def test_rows_stay_only_where_the_budget_has_room(counted):
    data, reads = counted
    for budget, most in ((10**7, 4), (X.nbytes, 8)):
        reads.clear()
        blocks = data.blocks(Targets(None), budget=budget)
        totals = [float(blocks.sum(total)) for _ in range(8)]
        assert reads["X"] == most
        assert totals == [totals[0]] * 8
        reads.clear()
        assert_array_equal(blocks.take(np.array([599, 3, 3])), X[[599, 3, 3]])
        assert reads["some"] == (most == 8)
        assert np.isclose(totals[0], X.sum())


def test_what_is_not_declared_is_not_there(counted):
    data, _ = counted
    blocks = data.blocks(Targets(None), budget=10**7)
    for _ in range(5):
        blocks.sum(total)
    assert blocks.map(sees_rows) == [False] * blocks.n_blocks  # though they are in memory by now


def test_undeclared_functions_are_refused_outside_memory(counted):
    data, _ = counted

    def undeclared(block):
        return float(block.X.sum())

    blocks = data.blocks(Targets(None))
    with pytest.raises(TypeError, match=r"undeclared does not say .*leansvm.rows.declare"):
        blocks.sum(undeclared)
    assert np.isclose(blocks.sum(declare("X")(undeclared)), X.sum())
    assert np.isclose(MemoryBlocks(X).sum(lambda block: block.X.sum()), X.sum())


@pytest.mark.parametrize("basis", ["csi", "sparse-greedy", "forward", "entropy"])
def test_a_cluster_lets_selectors_change_what_they_declare_alone(client, basis):
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    few = {"csi": CSI(look_ahead=5), "sparse-greedy": SparseGreedy(12)}.get(basis, basis)
    model = PlainSparseLSSVC(C=1.0, gamma=1.0, basis=few, n_basis=8, random_state=0)
    expected = model.fit(X, y).support_
    model.fit(da.from_array(X, chunks=(200, 2)), da.from_array(y, chunks=200))
    assert_array_equal(model.support_, expected)


@declare("X")
def total(block):
    return block.X.sum()


@declare("y")
def sees_rows(block):
    return block.X is not None
