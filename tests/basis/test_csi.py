"""CSI against brute force: pivots, gains, the updated scores and the factors it leaves behind."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from leansvm.basis import Fit
from leansvm.basis.cholesky import FactorRows, pivoted_cholesky
from leansvm.basis.csi.in_block import WindowRows
from leansvm.basis.csi.selector import CSI, _Search
from leansvm.kernels import Kernel
from leansvm.rows import MemoryBlocks
from tests.basis.test_backfitting import kept_bytes

KERNELS = {
    "rbf": Kernel("rbf", gamma=0.3),
    "linear": Kernel("linear"),
    "poly": Kernel("poly", gamma=0.5, coef0=1.0, degree=2),
}


def kept_field(block, name):
    return getattr(block.kept(FactorRows if name in "PD" else WindowRows), name)


def data(m=60, d=3, outputs=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, d))
    return X, np.sign(rng.normal(size=(m, outputs)) + 2 * X[:, :1] * X[:, 1:2])


def select(X, Y, weight=None, *, kernel="rbf", n_basis=20, tile_rows=None, A=0.0, **options):
    blocks = MemoryBlocks(X, Y, weight, tile_rows=tile_rows or len(X))
    options = {"tol": 0.0, **options}
    chosen = CSI(**options).select(blocks, KERNELS[kernel], n_basis, fit=Fit(2.0, A))
    return chosen, blocks


def centred(Z, s, A):
    """Rows whose inner products are those of Z with the bias taken out (A of the penalty, / C)."""
    n = s.sum()
    mean = s @ Z / n
    tau = n if np.isinf(A) else n * A / (n + A)
    return np.vstack([np.sqrt(s)[:, None] * (Z - mean), np.sqrt(tau) * mean])


def criterion(K, G, Y, s, trade_off, A):
    """Return J of a factor G."""
    Y_c, G_c = centred(Y, s, A), centred(G, s, A)
    rest = Y_c - G_c @ np.linalg.lstsq(G_c, Y_c, rcond=1e-13)[0]
    trace = s @ (K.diagonal() - np.sum(G**2, axis=1)) / (s @ K.diagonal())
    return (1 - trade_off) * trace + trade_off * np.sum(rest**2) / np.sum(Y_c**2)


def gains_of_all_rows(E, Q, Y, s, K, trade_off, A):
    """Exact drop of J for every row, from the whole residual matrix."""
    Y_c = centred(Y, s, A)
    usable = (E.diagonal() > 1e-12 * K.max()) & (s > 0)
    columns = E / np.sqrt(np.where(usable, E.diagonal(), 1.0))
    q = centred(columns, s, A)
    for _ in range(2):
        q = q - Q @ (Q.T @ q)
    norms = np.linalg.norm(q, axis=0)
    new = norms > 1e-9 * np.linalg.norm(columns, axis=0)
    q = q / np.where(new, norms, 1.0)
    explained = np.where(new, np.sum((q.T @ Y_c) ** 2, axis=1), 0.0)
    gain = (1 - trade_off) * (s @ columns**2) / (s @ K.diagonal())
    gain = gain + trade_off * explained / np.sum(Y_c**2)
    return np.where(usable, gain, -1.0), columns, np.where(new, q, 0.0)


def greedy(K, Y, s, n_basis, trade_off, A=0.0):
    """Brute force: the whole residual matrix, every row's exact gain."""
    E, Q = K.copy(), np.empty((len(K) + 1, 0))
    pivots, gains = [], []
    for _ in range(n_basis):
        scores, columns, q = gains_of_all_rows(E, Q, Y, s, K, trade_off, A)
        t = int(np.argmax(np.round(scores, 11)))
        if scores[t] < 0:
            break
        pivots.append(t)
        gains.append(scores[t])
        E = E - np.outer(columns[:, t], columns[:, t])
        Q = np.column_stack([Q, q[:, t]])
    return np.array(pivots), np.array(gains)


# ---------------------------------------------------------------------------- the choice


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("tile_rows", [80, 13])
def test_without_look_ahead_it_is_pivoted_cholesky(kernel, tile_rows):
    X, Y = data(80, 6)
    expected = pivoted_cholesky(MemoryBlocks(X), KERNELS[kernel], 30).indices
    chosen, _ = select(X, Y, kernel=kernel, n_basis=30, tile_rows=tile_rows, look_ahead=0)
    assert_array_equal(chosen.indices, expected)


@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly"])
@pytest.mark.parametrize("A", [0.0, 2.0, np.inf])
@pytest.mark.parametrize("weighted", [False, True])
def test_with_full_look_ahead_it_is_the_brute_force_greedy_choice(kernel, A, weighted):
    X, Y = data(50, 3, outputs=2)
    s = np.random.default_rng(1).integers(0, 4, len(X)).astype(float) if weighted else None
    chosen, _ = select(X, Y, s, kernel=kernel, A=A, look_ahead=50, trade_off=0.9, tile_rows=17)
    s = np.ones(len(X)) if s is None else s
    K = KERNELS[kernel].block(X, X)
    pivots, gains = greedy(K, Y, s, 20, 0.9, A / 2.0)
    assert_allclose(chosen.report["gains"], gains, rtol=1e-9, atol=1e-12)
    assert_allclose(chosen.report["expected_gains"], chosen.report["gains"], atol=1e-11)
    if kernel == "rbf":  # the last row of a rank-deficient kernel is a tie between all of them
        assert_array_equal(chosen.indices, pivots)


@pytest.mark.parametrize("look_ahead", [0, 7, 40])
@pytest.mark.parametrize("A", [0.0, 3.0, np.inf])
def test_gains_add_up_to_the_drop_of_the_criterion(look_ahead, A):
    X, Y = data(150, 3, outputs=2)
    s = np.random.default_rng(1).uniform(0.2, 3.0, len(X))
    chosen, blocks = select(X, Y, s, A=A, n_basis=45, look_ahead=look_ahead, tile_rows=40)
    G = blocks.concatenate(lambda block: block.kept(FactorRows).P)
    J = criterion(KERNELS["rbf"].block(X, X), G, Y, s, 0.99, A / 2.0)
    assert len(chosen.indices) == 45
    assert_allclose(1.0 - chosen.report["gains"].sum(), J, atol=1e-12)
    assert_allclose(chosen.report["criterion"], J, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_it_lowers_the_criterion_more_than_pivoted_cholesky(seed):
    X, Y = data(400, 4, seed=seed)
    with_targets = select(X, Y, n_basis=30)[0].report["criterion"]
    without = select(X, Y, n_basis=30, look_ahead=0)[0].report["criterion"]
    assert with_targets < without


def test_choice_is_nested():
    X, Y = data(120, 3)
    long = select(X, Y, n_basis=50, look_ahead=10, tile_rows=50)[0].indices
    for n_basis in (1, 7, 33):
        assert_array_equal(
            select(X, Y, n_basis=n_basis, look_ahead=10, tile_rows=50)[0].indices, long[:n_basis]
        )
    assert CSI.nested


@pytest.mark.parametrize("tile_rows", [7, 64, 100])
def test_choice_does_not_depend_on_the_blocks(tile_rows):
    X, Y = data(200, 5)
    assert_array_equal(
        select(X, Y, tile_rows=tile_rows, n_basis=50)[0].indices,
        select(X, Y, n_basis=50)[0].indices,
    )


@pytest.mark.parametrize("gamma", [0.05, 0.2, 1.0])
def test_ties_on_a_symmetric_grid_do_not_depend_on_the_blocks(gamma):
    grid = np.arange(12.0)
    X = np.array([[a, b] for a in grid for b in grid])
    Y = np.where(np.sum((X - 5.5) ** 2, axis=1) < 15, 1.0, -1.0)[:, None]
    kernel = Kernel("rbf", gamma=gamma)
    choices = [
        CSI(look_ahead=10, tol=0.0)
        .select(MemoryBlocks(X, Y, tile_rows=tile_rows), kernel, 40, fit=Fit(1.0))
        .indices
        for tile_rows in (144, 7, 31)
    ]
    assert_array_equal(choices[0], choices[1])
    assert_array_equal(choices[0], choices[2])


def test_choice_does_not_depend_on_the_order_of_the_rows():
    X, Y = data(150, 4)
    for kernel in ("rbf", "poly"):
        order = np.random.default_rng(3).permutation(len(X))
        if kernel == "rbf":  # equal diagonal entries: the first row breaks the tie
            order = np.concatenate([[0], order[order != 0]])
        straight = select(X, Y, kernel=kernel, n_basis=12, look_ahead=10)[0].indices
        permuted = select(X[order], Y[order], kernel=kernel, n_basis=12, look_ahead=10)[0].indices
        assert_array_equal(order[permuted], straight)


def test_weights_count_like_copies():
    X, Y = data(40, 3)
    s = np.random.default_rng(1).integers(0, 4, len(X))
    weighted, _ = select(X, Y, s.astype(float), n_basis=12, look_ahead=40, trade_off=0.9)
    rows = np.repeat(np.arange(len(X)), s)
    K = KERNELS["rbf"].block(X[rows], X[rows])
    pivots, gains = greedy(K, Y[rows], np.ones(len(rows)), 12, 0.9)
    assert_array_equal(weighted.indices, rows[pivots])
    assert_allclose(weighted.report["gains"], gains, rtol=1e-10)


def test_rows_of_zero_weight_are_never_chosen_and_change_nothing():
    X, Y = data(90, 3)
    s = np.random.default_rng(1).uniform(0.5, 2.0, len(X))
    s[::3] = 0.0
    kept = np.flatnonzero(s)
    chosen, _ = select(X, Y, s, look_ahead=10)
    alone, _ = select(X[kept], Y[kept], s[kept], look_ahead=10)
    assert_array_equal(chosen.indices, kept[alone.indices])
    assert_allclose(chosen.report["gains"], alone.report["gains"], rtol=1e-9)


# ---------------------------------------------------------------------------- what is kept


@pytest.mark.parametrize("look_ahead", [0, 8, 40])
def test_factor_in_the_state_is_the_whitened_basis(look_ahead):
    X, Y = data(130, 3)
    chosen, blocks = select(X, Y, n_basis=60, look_ahead=look_ahead, tile_rows=50)
    K = KERNELS["rbf"].block(X, X)
    P = blocks.concatenate(lambda block: block.kept(FactorRows).P)
    D = blocks.concatenate(lambda block: block.kept(FactorRows).D)
    B = chosen.indices
    assert_allclose(chosen.L @ chosen.L.T, K[np.ix_(B, B)], atol=1e-13)
    assert_array_equal(chosen.L, np.tril(chosen.L))
    assert np.all(chosen.L.diagonal() > 0)
    assert_allclose(P @ chosen.L.T, K[:, B], atol=1e-13)
    assert_allclose(D, 1.0 - np.sum(P**2, axis=1), atol=1e-13)
    assert set(blocks.map(lambda block: tuple(block.state))[0]) == {FactorRows}


@pytest.mark.parametrize("A", [0.0, 3.0, np.inf])
def test_updated_scores_equal_recomputed_ones(A):
    X, Y = data(150, 3, outputs=2)
    s = np.random.default_rng(1).uniform(0.2, 3.0, len(X))
    blocks = MemoryBlocks(X, Y, s, tile_rows=40)
    search = _Search(blocks, KERNELS["rbf"], Fit(1.0, A), 30, CSI(look_ahead=12, tol=0.0))
    search.fill_window()
    for _ in range(20):  # fewer than after which the scores are computed afresh
        search.take_best()
    state = {
        name: blocks.concatenate(lambda block, name=name: kept_field(block, name))
        for name in ("P", "Q", "D", "E", "A1", "A3", "Z", "T")
    }
    k, n = 20, 20 + 12
    F = state["P"][:, :n]
    W = F[:, k:]
    Q = np.vstack([state["Q"][:, :n], search._tail])
    T = centred(Y, s, A)
    R = Q[:, k:].T @ centred(W, s, A)
    assert_allclose(Q.T @ Q, np.eye(n), atol=1e-13)
    assert_allclose(Q @ (Q.T @ centred(F, s, A)), centred(F, s, A), atol=1e-12)
    assert_allclose(search._gram, W.T @ (s[:, None] * W), atol=1e-12)
    assert_allclose(search._R, R, atol=1e-12)
    assert_allclose(search._z, Q[:, k:].T @ T, atol=1e-12)
    assert_allclose(state["A1"], np.sum((W @ search._gram) * W, axis=1), atol=1e-12)
    assert_allclose(state["A3"], np.sum((W @ R.T) ** 2, axis=1), atol=1e-12)
    assert_allclose(state["Z"], W @ R.T @ search._z, atol=1e-12)
    assert_allclose(state["D"], state["E"] + np.sum(W**2, axis=1), atol=1e-13)


def test_state_columns_cover_what_is_kept():
    X, Y = data(100, 3)
    selector = CSI(look_ahead=15)
    blocks = MemoryBlocks(X, Y, tile_rows=100)
    search = _Search(blocks, KERNELS["rbf"], Fit(1.0), 30, selector)
    search.fill_window()
    kept = blocks.map(kept_bytes)[0]
    assert kept <= 8 * len(X) * selector.state_columns(30)


# ---------------------------------------------------------------------------- ends


@pytest.mark.parametrize("kernel, rank", [("linear", 3), ("poly", 10)])
@pytest.mark.parametrize("look_ahead", [0, 2, 40])
def test_stops_at_the_rank(kernel, rank, look_ahead):
    X, Y = data(70, 3)
    X = np.vstack([X, X[:20]])
    Y = np.vstack([Y, Y[:20]])
    chosen, blocks = select(X, Y, kernel=kernel, look_ahead=look_ahead)
    assert len(chosen.indices) == rank
    assert np.isfinite(chosen.report["gains"]).all()
    G = blocks.concatenate(lambda block: block.kept(FactorRows).P)
    K = KERNELS[kernel].block(X, X)
    assert_allclose(G @ G.T, K, atol=1e-11 * K.max())
    J = criterion(K, G, Y, np.ones(len(X)), 0.99, 0.0)
    assert_allclose(chosen.report["criterion"], J, atol=1e-10)


@pytest.mark.parametrize("trade_off", [0.0, 1.0])
def test_extreme_trade_offs(trade_off):
    X, Y = data()
    chosen, _ = select(X, Y, trade_off=trade_off, look_ahead=60)
    pivots, gains = greedy(KERNELS["rbf"].block(X, X), Y, np.ones(len(X)), 20, trade_off)
    assert_array_equal(chosen.indices, pivots)
    assert_allclose(chosen.report["gains"], gains, rtol=1e-8)
