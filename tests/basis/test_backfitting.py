"""Backfitting against a plain implementation of zhou2016, eqs. (20) to (30), and direct solves."""

import numpy as np
import pytest
from scipy import sparse
from scipy.linalg import solve_triangular
from sklearn.base import clone

from leansvm.basis import Fit
from leansvm.basis.backfitting import Backfitting
from leansvm.basis.candidates import best_of
from leansvm.basis.candidates.pool import CandidateStream
from leansvm.basis.candidates.rounds import Rounds
from leansvm.basis.cholesky import FactorRows
from leansvm.kernels import Kernel
from leansvm.rows import MemoryBlocks

BIAS = {"free": 0.0, "penalised": 3.0, "none": np.inf}
RBF = Kernel("rbf", gamma=0.5)


def kept_bytes(block):
    fields = (a for kept in block.state.values() for a in vars(kept).values())
    return sum(a.nbytes for a in fields if a is not None)


def make_data(n=120, outputs=1, seed=0, weighted=False):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    waves = [np.sin(2 * X[:, 0]) + X[:, 1], X[:, 2] ** 2 - X[:, 0]]
    y = np.stack(waves, axis=1)[:, :outputs] + 0.1 * rng.standard_normal((n, outputs)) + 2.0
    weight = rng.uniform(0.2, 3.0, n) if weighted else None
    return X, y, weight


def centring(weight, bias_penalty, C):
    """Return S cen as a matrix: S - s s' / (n + bias_penalty / C)."""
    return np.diag(weight) - np.outer(weight, weight) / (weight.sum() + bias_penalty / C)


def dense_objective(K, basis, y, weight, C, bias_penalty):
    """Minimum of the objective on these basis points, by least squares in the whitened basis."""
    L = np.linalg.cholesky(K[np.ix_(basis, basis)])
    P = solve_triangular(L, K[:, basis].T, lower=True).T
    root, k = np.sqrt(C * weight)[:, None], len(basis)
    bias = np.zeros((len(K), 0)) if np.isinf(bias_penalty) else root
    end = np.zeros((1, k + bias.shape[1]))
    if bias.shape[1]:
        end[0, k] = np.sqrt(bias_penalty)
    A = np.vstack([np.hstack([root * P, bias]), np.eye(k, k + bias.shape[1]), end])
    b = np.vstack([root * y, np.zeros((k + 1, y.shape[1]))])
    x = np.linalg.lstsq(A, b, rcond=None)[0]
    return 0.5 * np.sum((A @ x - b) ** 2)


def plain(K, y, weight, fit, steps):
    """Algorithm 2 as printed, on the candidates of each step; return picks, gradients, mu."""
    S, lam = centring(weight, fit.bias_penalty, fit.C), 1 / fit.C
    A, h = lam * K + K @ S @ K, K @ S @ y
    B, L, alpha = [], np.zeros((0, 0)), np.zeros((0, y.shape[1]))
    slopes, curvatures = [], []
    for candidates in steps:
        u, mu = A[np.ix_(B, candidates)], A[candidates, candidates]  # (21), (22)
        slopes.append(u.T @ alpha - h[candidates])
        curvatures.append(mu)
        j = int(np.argmax((slopes[-1] ** 2).sum(axis=1) / (2 * mu)))  # (27), (28)
        v = solve_triangular(L, u[:, j], lower=True) if B else np.zeros(0)
        nu = np.sqrt(mu[j] - v @ v)
        back = solve_triangular(L, v, lower=True, trans="T") if B else v
        move = np.outer(np.append(back, -1.0), slopes[-1][j] / nu**2)
        L = np.block([[L, np.zeros((len(B), 1))], [v, np.array([[nu]])]])  # (29)
        alpha = np.vstack([alpha, np.zeros((1, y.shape[1]))]) + move  # (30)
        B.append(candidates[j])
    return B, slopes, curvatures


@pytest.fixture
def record(monkeypatch):
    """Candidates of every step with their gradients and curvatures."""
    steps = []

    def recorded(original):
        def derivatives(self):
            G, mu = original(self)
            usable = self.pool.usable
            steps.append((self.pool.rows[usable], G[usable], mu[usable]))
            return G, mu

        return derivatives

    monkeypatch.setattr(Rounds, "derivatives", recorded(Rounds.derivatives))
    return steps


@pytest.mark.parametrize("bias", BIAS)
@pytest.mark.parametrize(("outputs", "weighted"), [(1, False), (2, True)])
@pytest.mark.parametrize("keep_pool", [True, False])
def test_equals_the_plain_algorithm(record, bias, outputs, weighted, keep_pool):
    X, y, weight = make_data(outputs=outputs, weighted=weighted)
    fit = Fit(C=5.0, bias_penalty=BIAS[bias])
    selector = Backfitting(20, keep_pool=keep_pool, random_state=1)  # rounds of four points
    blocks = MemoryBlocks(X, y, weight, tile_rows=50)
    found = selector.select(blocks, RBF, 20, fit=fit)
    s = np.ones(len(X)) if weight is None else weight
    picks, slopes, curvatures = plain(RBF.block(X, X), y, s, fit, [step[0] for step in record])
    assert found.indices.tolist() == picks
    for (_, G, mu), G_plain, mu_plain in zip(record, slopes, curvatures, strict=True):
        np.testing.assert_allclose(G, G_plain, atol=1e-9 * np.abs(slopes[0]).max())
        np.testing.assert_allclose(mu, mu_plain, rtol=1e-10)
    gains = [(G**2).sum(axis=1).max() for G in slopes]
    assert len(gains) == len(found.report["gain"]) == 20


def test_all_rows_as_candidates_is_exhaustive_search():
    X, y, _ = make_data(60)
    fit = Fit(C=10.0)
    found = Backfitting(1000, random_state=0).select(MemoryBlocks(X, y), RBF, 10, fit=fit)
    rest, steps = np.arange(len(X)), []
    for t in found.indices:
        steps.append(rest)
        rest = rest[rest != t]
    assert found.indices.tolist() == plain(RBF.block(X, X), y, np.ones(60), fit, steps)[0]


@pytest.mark.parametrize("bias", BIAS)
@pytest.mark.parametrize("C", [1e-2, 1.0, 1e2, 1e4])
def test_objective_is_the_minimum_for_every_prefix(C, bias):
    X, y, weight = make_data(outputs=2, weighted=True)
    fit = Fit(C=C, bias_penalty=BIAS[bias])
    blocks = MemoryBlocks(X, y, weight, tile_rows=50)
    found = Backfitting(15, random_state=0).select(blocks, RBF, 25, fit=fit)
    objective = found.report["objective"]
    assert np.all(np.diff(objective) <= 0)
    K = RBF.block(X, X)
    for k in (1, 2, 10, 25):
        direct = dense_objective(K, found.indices[:k], y, weight, C, fit.bias_penalty)
        assert objective[k - 1] == pytest.approx(direct, rel=1e-10)
    # a step lowers the objective by at least what its candidate alone would
    drop = -np.diff(objective)
    assert np.all(drop >= C * found.report["gain"][1:] * (1 - 1e-6) - 1e-12 * objective[0])


def extended_objective(X, y, basis, gamma, C):
    """The free-bias objective in extended precision."""
    wide = X.astype(np.longdouble)
    K = np.exp(-gamma * ((wide[:, None] - wide[basis]) ** 2).sum(axis=2))
    L = K[basis].copy()  # Cholesky, column by column
    for j in range(len(basis)):
        L[j:, j] = (L[j:, j] - L[j:, :j] @ L[j, :j]) / np.sqrt(L[j, j] - L[j, :j] @ L[j, :j])
    P = K.copy()
    for j in range(len(basis)):
        P[:, j] = (P[:, j] - P[:, :j] @ L[j, :j]) / L[j, j]
    P = P - P.mean(axis=0)
    y = y.astype(np.longdouble) - y.astype(np.longdouble).mean(axis=0)
    M, left = P.T @ P + np.eye(len(basis)) / np.longdouble(C), (y**2).sum()
    rhs = P.T @ y
    for j in range(len(basis)):  # left = y'y - |R^-T P'y|^2
        left -= (rhs[j] ** 2).sum() / M[j, j]
        factor = M[j + 1 :, j] / M[j, j]
        rhs[j + 1 :] -= factor[:, None] * rhs[j]
        M[j + 1 :, j + 1 :] -= np.outer(factor, M[j, j + 1 :])
    return float(0.5 * np.longdouble(C) * left)


@pytest.mark.parametrize("C", [1e-6, 1e-2, 1e4, 1e7])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_objective_in_extended_precision(C, offset):
    X, y, _ = make_data(200)
    y = y + offset
    kernel = Kernel("rbf", gamma=0.02)  # smooth: squared pivots of K_BB down to 1e-9
    found = Backfitting(20, random_state=0).select(MemoryBlocks(X, y), kernel, 40, fit=Fit(C))
    exact = extended_objective(X, y, found.indices, 0.02, C)
    assert found.report["objective"][-1] == pytest.approx(exact, rel=1e-6)


class Scripted(CandidateStream):
    """Offers rows in a given order."""

    order: np.ndarray

    def __init__(self, rng, allowed):
        super().__init__(rng, allowed)
        self._queue = self.order.copy()


@pytest.mark.parametrize("keep_pool", [True, False])
def test_weights_equal_repetition(monkeypatch, keep_pool):
    X, y, _ = make_data(200, outputs=2)
    rng = np.random.default_rng(3)
    counts = rng.integers(0, 4, 200)
    first = np.cumsum(counts) - counts  # first copy of each row
    order = rng.permutation(np.flatnonzero(counts))
    monkeypatch.setattr(best_of, "CandidateStream", Scripted)
    selector, fit = Backfitting(5, keep_pool=keep_pool), Fit(C=20.0, bias_penalty=1.0)
    monkeypatch.setattr(Scripted, "order", order, raising=False)
    weighted = selector.select(MemoryBlocks(X, y, counts.astype(float)), RBF, 9, fit=fit)
    monkeypatch.setattr(Scripted, "order", first[order])
    repeated = MemoryBlocks(np.repeat(X, counts, axis=0), np.repeat(y, counts, axis=0))
    copies = selector.select(repeated, RBF, 9, fit=fit)
    assert first[weighted.indices].tolist() == copies.indices.tolist()
    np.testing.assert_allclose(weighted.report["objective"], copies.report["objective"], rtol=1e-12)


@pytest.mark.parametrize("keep_pool", [True, False])
@pytest.mark.parametrize("integer", [False, True])
def test_same_points_whatever_the_blocks(integer, keep_pool):
    X, y, _ = make_data(300)
    if integer:  # equal rows and ties
        X = np.round(X)
    selector, runs = Backfitting(20, keep_pool=keep_pool, random_state=2), []
    for count in (1, 3, 50):
        blocks = MemoryBlocks(X, y, tile_rows=-(-300 // count))
        runs.append(selector.select(blocks, RBF, 30, fit=Fit(30.0)))
    for other in runs[1:]:
        assert other.indices.tolist() == runs[0].indices.tolist()
        np.testing.assert_allclose(other.report["objective"], runs[0].report["objective"])


def test_rounds_end_before_rounding_decides(monkeypatch):
    X, y, _ = make_data(300)
    smooth, lengths, runs = Kernel("rbf", gamma=0.02), [], []

    def append(self, slots, start):
        lengths.append(len(slots))
        original(self, slots, start)

    original = Rounds._append
    monkeypatch.setattr(Rounds, "_append", append)
    for tile_rows in (300, 70, 7):
        blocks = MemoryBlocks(X, y, tile_rows=tile_rows)
        runs.append(Backfitting(40, random_state=0).select(blocks, smooth, 40, fit=Fit(1e6)))
    assert lengths[0] > 4 and 1 in lengths
    assert runs[0].indices.tolist() == runs[1].indices.tolist() == runs[2].indices.tolist()
    exact = extended_objective(X, y, runs[0].indices, 0.02, 1e6)
    for run in runs:
        assert run.report["objective"][-1] == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("keep_pool", [True, False])
@pytest.mark.parametrize("n_candidates", [1, 2, 70])
def test_few_and_many_candidates(n_candidates, keep_pool):
    X, y, weight = make_data(60, outputs=2, weighted=True)
    weight[::3] = 0.0
    blocks = MemoryBlocks(X, y, weight, tile_rows=25)
    selector = Backfitting(n_candidates, keep_pool=keep_pool, random_state=0)
    found = selector.select(blocks, RBF, 60, fit=Fit(9.0))
    assert found.report["stop"] == "rank" and len(set(found.indices)) == len(found.indices) == 40
    K = RBF.block(X, X)
    for k in (1, 7, 40):
        direct = dense_objective(K, found.indices[:k], y, weight, 9.0, 0.0)
        assert found.report["objective"][k - 1] == pytest.approx(direct, rel=1e-8)


@pytest.mark.parametrize("keep_pool", [True, False])
def test_prefix_is_the_smaller_run(keep_pool):
    X, y, _ = make_data(200)
    selector = Backfitting(15, keep_pool=keep_pool)
    small, large = (
        selector.select(MemoryBlocks(X, y), RBF, k, random_state=5, fit=Fit(1.0)) for k in (8, 30)
    )
    assert small.indices.tolist() == large.indices[:8].tolist()
    assert selector.nested and selector.uses_targets


def test_factor_and_what_the_blocks_keep():
    X, y, _ = make_data(100)
    blocks = MemoryBlocks(X, y, tile_rows=30)
    found = Backfitting(10, random_state=0).select(blocks, RBF, 20, fit=Fit(10.0))
    P = blocks.concatenate(lambda block: block.kept(FactorRows).P[:, : len(found.indices)])
    K = RBF.block(X, X)
    np.testing.assert_allclose(P @ found.L.T, K[:, found.indices], atol=1e-12)
    np.testing.assert_allclose(P[found.indices], found.L, atol=1e-7)
    D = blocks.concatenate(lambda block: block.kept(FactorRows).D)
    np.testing.assert_allclose(D, 1 - (P**2).sum(axis=1), atol=1e-12)
    assert all(blocks.map(lambda block: set(block.state) == {FactorRows}))


@pytest.mark.parametrize("keep_pool", [True, False])
def test_state_columns_are_what_the_blocks_keep(keep_pool):
    X, y, _ = make_data(100)
    blocks, kept = MemoryBlocks(X, y, tile_rows=30), []
    selector = Backfitting(10, keep_pool=keep_pool, random_state=0)

    def look(k):
        kept.append(blocks.sum(kept_bytes))
        return k == 12

    selector.select(blocks, RBF, 20, fit=Fit(10.0), on_step=look)
    assert set(kept) == {8 * len(X) * selector.state_columns(20)}


@pytest.mark.parametrize("keep_pool", [True, False])
def test_equal_rows_are_chosen_once(keep_pool):
    X, y, _ = make_data(12)
    blocks = MemoryBlocks(np.tile(X, (6, 1)), np.tile(y, (6, 1)), tile_rows=20)
    selector = Backfitting(4, keep_pool=keep_pool, random_state=0)
    found = selector.select(blocks, RBF, 40, fit=Fit(1e4))
    assert found.report["stop"] == "rank"
    assert sorted(found.indices % 12) == list(range(12))


def test_stops_at_the_rank():
    X, y, _ = make_data(150)
    blocks = MemoryBlocks(X, y, tile_rows=40)
    found = Backfitting(10, random_state=0).select(blocks, Kernel("linear"), 20, fit=Fit(1.0))
    assert (len(found.indices), found.report["stop"]) == (3, "rank")
    assert found.L.shape == (3, 3)


def test_rows_without_weight_are_not_chosen():
    X, y, weight = make_data(60, weighted=True)
    weight[::2] = 0.0
    found = Backfitting(7, random_state=0).select(MemoryBlocks(X, y, weight), RBF, 60, fit=Fit(9.0))
    assert len(found.indices) > 20 and np.all(found.indices % 2 == 1)


def test_tolerance_ends_the_choice():
    X, y, _ = make_data(200)
    arguments = (MemoryBlocks(X, y), RBF, 60)
    gains = Backfitting(30, random_state=0).select(*arguments, fit=Fit(1.0)).report["gain"]
    first = int(np.argmax(gains < 0.05 * gains[0]))
    tol = float(gains[first])
    found = Backfitting(30, tol=tol, random_state=0).select(*arguments, fit=Fit(1.0))
    assert (len(found.indices), found.report["stop"]) == (first, "tol")
    # the first point is taken in any case, here for targets that the bias alone fits
    flat = MemoryBlocks(X, np.ones((200, 1)))
    assert len(Backfitting(random_state=0).select(flat, RBF, 5, fit=Fit(1.0)).indices) == 1


def test_callback_and_errors():
    X, y, _ = make_data(50)
    blocks, sizes = MemoryBlocks(X, y), []

    def stop_at_four(k):
        sizes.append(k)
        return k == 4

    selector = Backfitting(random_state=0)
    found = selector.select(blocks, RBF, 20, fit=Fit(1.0), on_step=stop_at_four)
    assert sizes == [1, 2, 3, 4] and found.report["stop"] == "callback"
    with pytest.raises(ValueError, match="fit="):
        selector.select(blocks, RBF, 5)
    with pytest.raises(ValueError, match="n_candidates"):
        Backfitting(0).select(blocks, RBF, 5, fit=Fit(1.0))
    assert clone(selector).get_params() == selector.get_params()


@pytest.mark.parametrize("keep_pool", [True, False])
@pytest.mark.parametrize("form", ["csr", "precomputed", "float32", "callable"])
def test_other_forms_of_the_same_data(form, keep_pool):
    X, y, _ = make_data(100)
    X = X.astype(np.float32).astype(np.float64)
    rows = {"csr": sparse.csr_array(X), "precomputed": RBF.block(X, X), "float32": X.astype("f4")}
    kernel = {"precomputed": Kernel("precomputed"), "callable": Kernel(RBF.block)}
    selector = Backfitting(9, keep_pool=keep_pool, random_state=0)
    reference, found = (
        selector.select(MemoryBlocks(Z, y, tile_rows=30), k, 15, fit=Fit(5.0))
        for Z, k in ((X, RBF), (rows.get(form, X), kernel.get(form, RBF)))
    )
    assert found.indices.tolist() == reference.indices.tolist()
