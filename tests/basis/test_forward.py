"""ForwardSelection against brute-force decreases of the objective."""

import numpy as np
import pytest

from leansvm import ReducedSVR
from leansvm.basis import Fit, ForwardSelection
from leansvm.basis.candidates.best_of import CandidateRows
from leansvm.basis.cholesky import FactorRows
from leansvm.basis.forward import _Forward, _is_a_stop
from leansvm.basis.selector import go_on
from leansvm.kernels import Kernel
from leansvm.losses import Huber, Logistic, Squared, SquaredHinge
from leansvm.newton.refit import refit
from leansvm.rows import MemoryBlocks
from tests.plain import PlainReducedSVC, PlainSparseLSSVC

KERNEL = Kernel("rbf", gamma=0.5)


def problem(m=150, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 2))
    y = np.where(np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=m) > 0, 1.0, -1.0)
    return X, y, rng.uniform(0.5, 2.0, size=m)


class Recorded(_Forward):
    """Keeps what every step looked at: rows, f, b and gains."""

    def gains(self):
        gains = super().gains()
        f = np.concatenate([block.kept(CandidateRows).f[0] for block in self.blocks._blocks])
        self.steps.append((self.pool.rows.copy(), f, float(self.b[0]), gains))
        return gains


@pytest.mark.parametrize("loss", [Squared(), SquaredHinge(), Huber(1.0), Logistic(3.0)])
@pytest.mark.parametrize("regularizer", ["rkhs", "coef"])
@pytest.mark.parametrize("bias_penalty", [0.0, 2.0, np.inf])
def test_gains_are_newton_decrements_of_the_objective(loss, regularizer, bias_penalty):
    X, y, s = problem()
    C, has_bias = 5.0, np.isfinite(bias_penalty)
    blocks = MemoryBlocks(X, y[:, None], s, tile_rows=40)
    fit = Fit(C, bias_penalty, loss, regularizer, margin=True, refit=refit)
    selector, rng = ForwardSelection(12, tol=-np.inf), np.random.RandomState(0)
    candidates = Recorded(blocks, KERNEL, 6, selector, rng, fit)
    candidates.steps = []
    chosen = candidates.choose(go_on).indices
    for k, (rows, f, b, gains) in enumerate(candidates.steps):
        u = 1 - y * f
        g_i, h_i = s * y * loss.derivative(u), s * loss.second_derivative(u)
        for row, gain in zip(rows[:4], gains, strict=False):
            if row in chosen[:k]:
                continue
            K = KERNEL.block(X, X[[row]])[:, 0]
            # of lam/2 |f|^2: lam times the function's value, without b, at the row
            slope = (f[row] - b) / C if regularizer == "rkhs" else 0.0
            gradient, hessian = slope - K @ g_i, 1 / C + K**2 @ h_i
            expected = 0.5 * gradient**2 / hessian
            if has_bias:  # less what the bias alone would bring
                G = np.array([gradient, bias_penalty * b / C - g_i.sum()])
                H = np.array([[hessian, K @ h_i], [K @ h_i, bias_penalty / C + h_i.sum()]])
                expected = 0.5 * G @ np.linalg.solve(H, G) - 0.5 * G[1] ** 2 / H[1, 1]
            assert gain == pytest.approx(expected, rel=1e-7, abs=1e-10)
    assert len(candidates.steps) == 6


@pytest.mark.parametrize("regularizer", ["rkhs", "coef"])
def test_it_beats_a_random_basis_of_the_same_size(regularizer):
    X, y, _ = problem(600)
    models = [
        PlainReducedSVC(
            10.0, regularizer=regularizer, gamma=0.5, basis=basis, n_basis=12, random_state=seed
        ).fit(X, y)
        for basis in ("forward", "random")
        for seed in range(4)
    ]
    objectives = np.array([model.objective_ for model in models])
    assert objectives[:4].mean() < objectives[4:].mean()


def test_a_prefix_is_the_smaller_choice_and_blocks_do_not_matter():
    X, y, s = problem(300)
    fit = Fit(10.0, 0.0, SquaredHinge(), "rkhs", margin=True, refit=refit)
    chosen = []
    for n_basis, tile_rows in ((20, 50), (20, 300), (9, 77)):
        blocks = MemoryBlocks(X, y[:, None], s, tile_rows=tile_rows)
        found = ForwardSelection(random_state=3).select(blocks, KERNEL, n_basis, fit=fit)
        chosen.append(found.indices.tolist())
    assert chosen[0] == chosen[1]
    assert chosen[0][:9] == chosen[2]


@pytest.mark.parametrize("regularizer", ["rkhs", "coef"])
def test_copies_and_rows_of_no_weight_are_never_chosen(regularizer):
    X, y, _ = problem(30)
    X, y = np.tile(X, (4, 1)), np.tile(y, 4)
    weight = np.ones(len(y))
    weight[:5] = weight[30:35] = weight[60:65] = weight[90:95] = 0.0
    fit = Fit(10.0, 0.0, SquaredHinge(), regularizer, margin=True, refit=refit)
    blocks = MemoryBlocks(X, y[:, None], weight)
    found = ForwardSelection(random_state=0).select(blocks, KERNEL, 120, fit=fit)
    assert len(np.unique(X[found.indices], axis=0)) == len(found.indices) == 25
    assert np.all(weight[found.indices] > 0)
    assert (found.L is None) == (regularizer == "coef")


def test_whitened_basis_is_left_for_the_model():
    X, y, _ = problem(100)
    fit = Fit(10.0, 0.0, SquaredHinge(), "rkhs", margin=True, refit=refit)
    blocks = MemoryBlocks(X, y[:, None], tile_rows=33)
    found = ForwardSelection(random_state=0).select(blocks, KERNEL, 10, fit=fit)
    P = np.concatenate([block.kept(FactorRows).P[:, :10] for block in blocks._blocks])
    np.testing.assert_allclose(P @ found.L.T, KERNEL.block(X, X[found.indices]), atol=1e-9)
    assert all(set(block.state) <= {FactorRows} for block in blocks._blocks)


def test_sizes_at_which_everything_is_fitted_again():
    assert [k for k in range(1, 40) if _is_a_stop(k)] == [
        1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 23, 27, 32, 39,
    ]  # fmt: skip


def test_it_serves_every_estimator_and_task():
    X, y, _ = problem(200)
    labels = np.digitize(X[:, 0], [-0.5, 0.5])
    assert (
        PlainSparseLSSVC(10.0, basis="forward", n_basis=8, random_state=0).fit(X, y).score(X, y)
        > 0.8
    )
    for loss in ("squared", "huber", "logistic"):
        model = PlainReducedSVC(10.0, loss=loss, basis="forward", n_basis=10, random_state=0)
        assert model.fit(X, labels).score(X, labels) > 0.9
    target = np.stack([np.sin(X[:, 0]), np.cos(X[:, 1])], axis=1)
    model = ReducedSVR(100.0, delta=0.1, basis="forward", n_basis=15, random_state=0)
    assert model.fit(X, target).score(X, target) > 0.95


def test_it_asks_for_the_model():
    X, y, _ = problem(20)
    with pytest.raises(ValueError, match=r"loss of the model: pass fit=Fit"):
        ForwardSelection().select(MemoryBlocks(X, y[:, None]), KERNEL, 3)
    with pytest.raises(ValueError, match="needs a function"):
        ForwardSelection().select(MemoryBlocks(X, y[:, None]), KERNEL, 3, fit=Fit(1.0))
    with pytest.raises(ValueError, match="n_candidates"):
        PlainReducedSVC(basis=ForwardSelection(0), n_basis=3).fit(X, y)
