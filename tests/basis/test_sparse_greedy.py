"""Sparse greedy approximation: gains are drops of the trace, residual columns stay exact."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from leansvm.basis.candidates import best_of
from leansvm.basis.candidates.best_of import CandidateRows
from leansvm.basis.candidates.pool import CandidateStream
from leansvm.basis.cholesky import FactorRows
from leansvm.basis.sparse_greedy import SparseGreedy, _ByTrace
from leansvm.kernels import Kernel
from leansvm.rows import MemoryBlocks

RBF = Kernel("rbf", gamma=0.5)


def make_data(n=120, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 3)), rng.uniform(0.2, 3.0, n)


def residual(K, basis):
    """K - P P' for these basis points."""
    basis = list(basis)
    return K - K[:, basis] @ np.linalg.solve(K[np.ix_(basis, basis)], K[basis]) if basis else K


@pytest.fixture
def record(monkeypatch):
    """Candidates, gains and residual columns (of a single block) of every step."""
    steps = []

    def gains(self):
        values = original(self)
        use = self.pool.usable
        columns = self.blocks.map(lambda block: block.kept(CandidateRows).pool[use])
        steps.append((self.pool.rows[use], values[use], np.concatenate(columns, axis=1)))
        return values

    original = _ByTrace.gains
    monkeypatch.setattr(_ByTrace, "gains", gains)
    return steps


@pytest.mark.parametrize("keep_pool", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_gains_and_columns_equal_recomputed_ones(record, keep_pool, weighted):
    X, weight = make_data()
    s = weight if weighted else np.ones(len(X))
    blocks = MemoryBlocks(X, weight=weight if weighted else None, tile_rows=50)
    found = SparseGreedy(12, keep_pool=keep_pool, random_state=0).select(blocks, RBF, 20)
    K = RBF.block(X, X)
    for k, (rows, gains, columns) in enumerate(record):
        H = residual(K, found.indices[:k])
        np.testing.assert_allclose(columns, H[rows], atol=1e-12)
        drops = s @ H[:, rows] ** 2 / H[rows, rows]
        np.testing.assert_allclose(gains, drops, rtol=1e-8)
        assert found.indices[k] == rows[np.argmax(drops)]
    trace = [s @ residual(K, found.indices[: k + 1]).diagonal() for k in range(20)]
    np.testing.assert_allclose(found.report["trace"], trace, rtol=1e-10)


def test_all_rows_as_candidates_lower_the_trace_most():
    X, _ = make_data(50)
    K = RBF.block(X, X)
    found = SparseGreedy(500, random_state=0).select(MemoryBlocks(X), RBF, 6)
    for k in range(6):
        H = residual(K, found.indices[:k])
        with np.errstate(divide="ignore", invalid="ignore"):
            drops = np.where(H.diagonal() > 1e-10, (H**2).sum(axis=0) / H.diagonal(), 0)
        assert found.indices[k] == np.argmax(drops)


class Scripted(CandidateStream):
    """Offers rows in a given order."""

    order: np.ndarray

    def __init__(self, rng, allowed):
        super().__init__(rng, allowed)
        self._queue = self.order.copy()


def test_weights_equal_repetition(monkeypatch):
    X, _ = make_data(80)
    rng = np.random.default_rng(3)
    counts = rng.integers(0, 4, 80)
    first = np.cumsum(counts) - counts
    order = rng.permutation(np.flatnonzero(counts))
    monkeypatch.setattr(best_of, "CandidateStream", Scripted)
    monkeypatch.setattr(Scripted, "order", order, raising=False)
    weighted = SparseGreedy(5).select(MemoryBlocks(X, weight=counts.astype(float)), RBF, 9)
    monkeypatch.setattr(Scripted, "order", first[order])
    copies = SparseGreedy(5).select(MemoryBlocks(np.repeat(X, counts, axis=0)), RBF, 9)
    assert first[weighted.indices].tolist() == copies.indices.tolist()
    np.testing.assert_allclose(weighted.report["trace"], copies.report["trace"], rtol=1e-12)


@pytest.mark.parametrize("integer", [False, True])
def test_same_points_whatever_the_blocks(integer):
    X, weight = make_data(300)
    if integer:
        X = np.round(X)
    runs = []
    for count in (1, 3, 50):
        blocks = MemoryBlocks(X, weight=weight, tile_rows=-(-300 // count))
        runs.append(SparseGreedy(20, random_state=2).select(blocks, RBF, 30))
    for other in runs[1:]:
        assert other.indices.tolist() == runs[0].indices.tolist()
        np.testing.assert_allclose(other.report["trace"], runs[0].report["trace"], atol=1e-9)


@pytest.mark.parametrize("keep_pool", [True, False])
def test_prefix_factor_and_state(keep_pool):
    X, _ = make_data(150)
    selector = SparseGreedy(15, keep_pool=keep_pool)
    blocks = MemoryBlocks(X, tile_rows=40)
    small = selector.select(blocks, RBF, 8, random_state=1)
    large = selector.select(blocks, RBF, 25, random_state=1)
    assert selector.nested and not selector.uses_targets
    assert small.indices.tolist() == large.indices[:8].tolist()
    P = blocks.concatenate(lambda block: block.kept(FactorRows).P[:, :25])
    np.testing.assert_allclose(P @ large.L.T, RBF.block(X, X[large.indices]), atol=1e-12)
    np.testing.assert_allclose(P[large.indices], large.L, atol=1e-7)
    assert all(blocks.map(lambda block: set(block.state) == {FactorRows}))


@pytest.mark.parametrize("keep_pool", [True, False])
def test_equal_rows_rank_and_zero_weights(keep_pool):
    X, _ = make_data(12)
    selector = SparseGreedy(4, keep_pool=keep_pool, random_state=0)
    found = selector.select(MemoryBlocks(np.tile(X, (6, 1)), tile_rows=20), RBF, 40)
    assert found.report["stop"] == "rank"
    assert sorted(found.indices % 12) == list(range(12))
    weight = np.tile([1.0, 0.0], 60)
    X, _ = make_data(120)
    found = selector.select(MemoryBlocks(X, weight=weight), Kernel("linear"), 20)
    assert len(found.indices) == 3 and np.all(found.indices % 2 == 0)
    assert found.report["trace"][-1] == pytest.approx(0.0, abs=1e-9)


def test_callback_clone_and_other_forms():
    X, _ = make_data(100)
    selector = SparseGreedy(9, random_state=0)
    assert clone(selector).get_params() == selector.get_params()
    found = selector.select(MemoryBlocks(X), RBF, 20, on_step=lambda k: k == 5)
    assert len(found.indices) == 5 and found.report["stop"] == "callback"
    forms = ((sparse.csr_array(X), RBF), (RBF.block(X, X), Kernel("precomputed")))
    for rows, kernel in forms:
        other = selector.select(MemoryBlocks(rows, tile_rows=30), kernel, 5)
        assert other.indices.tolist() == found.indices.tolist()
    with pytest.raises(ValueError, match="n_candidates"):
        SparseGreedy(0).select(MemoryBlocks(X), RBF, 5)


def test_trace_stays_true_for_smooth_kernels():
    X = np.random.default_rng(0).standard_normal((300, 2))
    kernel = Kernel("rbf", gamma=0.1)
    found = SparseGreedy(20, random_state=0).select(MemoryBlocks(X), kernel, 60)
    values, vectors = np.linalg.eigh(kernel.block(X, X))
    F = vectors * np.sqrt(np.maximum(values, 0.0))  # K = F F'
    for k in (20, 40, 60):
        Q = np.linalg.qr(F[found.indices[:k]].T)[0]
        trace = np.sum((F - F @ Q @ Q.T) ** 2)
        assert found.report["trace"][k - 1] == pytest.approx(trace, rel=1e-6, abs=1e-7)
