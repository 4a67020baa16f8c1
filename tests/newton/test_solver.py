"""Newton's method for reduced machines against L-BFGS, dense formulas and scikit-learn."""

import warnings
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize
from sklearn.svm import LinearSVC

from leansvm.basis.choose import Basis
from leansvm.basis.features import KernelFeatures, whiten
from leansvm.kernels import Kernel
from leansvm.losses import Huber, Logistic, Squared, SquaredHinge, SymmetricHuber
from leansvm.newton import matrix
from leansvm.newton import solver as solver_module
from leansvm.newton.passes import HessianPlan
from leansvm.newton.reduced import ReducedProblem
from leansvm.newton.solver import NewtonSolver
from leansvm.rows import MemoryBlocks
from tests.plain import PlainReducedSVC

LOSSES = [Squared(), SquaredHinge(), Huber(0.1), Huber(1.0), Logistic(10.0), Logistic(1.0)]
SHARP = [Squared(), SquaredHinge(), Huber(), Logistic()]
BIASES = [0.0, 1.0, np.inf]
KERNEL = Kernel("rbf", gamma=0.3)


def problem(seed=0, m=200, noise=0.4):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 3))
    y = np.where(X[:, 0] * X[:, 1] + noise * rng.normal(size=m) > 0, 1.0, -1.0)
    return X, y, rng.integers(1, 4, size=m).astype(float)


def features_of(X, B, regularizer, bias_penalty):
    constant = 1.0 if np.isfinite(bias_penalty) else None
    if regularizer == "coef":
        return KernelFeatures(KERNEL, X[B], constant=constant)
    return whiten(KERNEL, X[B], X[B], constant=constant)


def solved(X, Y, weight, features, loss, C, bias_penalty, *, tile_rows=64, **options):
    blocks = MemoryBlocks(X, Y.reshape(len(X), -1), weight, tile_rows=tile_rows)
    penalty = bias_penalty if np.isfinite(bias_penalty) else 0.0
    options = {"n_outputs": Y.reshape(len(X), -1).shape[1], **options}
    solver = NewtonSolver(blocks, features, bias_penalty=penalty, **options)
    return with_theta(solver, solver.solve(loss, C))


def with_theta(solver, solution):
    """A solution with the coefficients of the whitened columns beside those of the points."""
    found = SimpleNamespace(**vars(solution))
    found.theta, found.history = solver.theta, solution.details["history"]
    return found


def all_outputs(X, Y, s, B, path, *, tile_rows=None, budget=2**30):
    """What ReducedSVC solves on given rows of the basis."""
    blocks = MemoryBlocks(X, Y, s, tile_rows=tile_rows)
    rest = "rkhs", 0.0, True, Y.shape[1], 1e-6, 500, budget, False
    problem = ReducedProblem(blocks, KERNEL, SquaredHinge(), *rest)
    found = problem.fit(Basis(None, X[B]), np.asarray(path))
    assert not any(block.state for block in blocks._blocks)
    return found


class Dense:
    """The objective from its definition, with an independent factor of K_BB."""

    def __init__(self, X, y, s, B, regularizer, bias_penalty, loss, C, margin=True):
        self.Phi = KERNEL.block(X, X[B])
        if regularizer == "rkhs":
            L = cholesky(KERNEL.block(X[B], X[B]), lower=True)
            self.Phi = solve_triangular(L, self.Phi.T, lower=True).T
        self.rho = np.ones(len(B))
        if np.isfinite(bias_penalty):
            self.Phi = np.hstack([self.Phi, np.ones((len(X), 1))])
            self.rho = np.append(self.rho, bias_penalty)
        self.y, self.s, self.loss, self.C = y, s, loss, C
        self.side = y if margin else np.ones_like(y)

    def __call__(self, theta):
        u = self.side * (self.y - self.Phi @ theta)
        value = 0.5 * self.rho @ theta**2 + self.C * self.s @ self.loss.value(u)
        slope = self.C * self.s * self.side * self.loss.derivative(u)
        return value, self.rho * theta - self.Phi.T @ slope

    def minimum(self):
        """High-precision L-BFGS, restarted until it no longer moves."""
        theta, best = np.zeros(self.Phi.shape[1]), np.inf
        options = {"maxiter": 20_000, "maxfun": 100_000, "ftol": 1e-16, "gtol": 1e-12, "maxcor": 50}
        for _ in range(20):
            found = minimize(self, theta, jac=True, method="L-BFGS-B", options=options)
            theta = found.x
            if best - found.fun <= 1e-13 * abs(found.fun):
                break
            best = found.fun
        return found.fun

    def relative_gradient(self, theta):
        zero = self(np.zeros_like(theta))[1]
        return np.linalg.norm(self(theta)[1]) / np.linalg.norm(zero)

    def gap(self, theta):
        """Duality gap at feasible slopes, from the definition of the dual."""
        u = self.side * (self.y - self.Phi @ theta)
        g = self.C * self.s * self.side * self.loss.derivative(u)
        penalised = self.rho > 0
        if not penalised.all():  # a free bias: slopes add up to zero
            plus, minus = np.maximum(g, 0).sum(), -np.minimum(g, 0).sum()
            g = np.where(g > 0, g * min(1, minus / plus), g * min(1, plus / minus))
        conjugate = self.loss.conjugate(
            np.clip(g * self.side / (self.C * self.s), *self.loss.domain)
        )
        v = (self.Phi.T @ g)[penalised]
        dual = g @ self.y - 0.5 * np.sum(v**2 / self.rho[penalised]) - self.C * self.s @ conjugate
        value = self(theta)[0]
        return (value - dual) / value


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: f"{loss.name}{vars(loss)}")
@pytest.mark.parametrize("regularizer", ["rkhs", "coef"])
@pytest.mark.parametrize("C", [1e-3, 1.0, 100.0])
def test_objective_is_that_of_lbfgs(loss, regularizer, C):
    X, y, s = problem(m=120)
    B = np.arange(15)
    for bias_penalty in BIASES:
        features = features_of(X, B, regularizer, bias_penalty)
        found = solved(X, y, s, features, loss, C, bias_penalty)
        dense = Dense(X, y, s, B, regularizer, bias_penalty, loss, C)
        assert found.converged
        assert found.objective == pytest.approx(dense.minimum(), rel=1e-8)


@pytest.mark.parametrize("loss", SHARP, ids=lambda loss: loss.name)
@pytest.mark.parametrize(
    ("regularizer", "bias_penalty"), [("rkhs", 0.0), ("rkhs", np.inf), ("coef", 1.0)]
)
def test_gradient_and_gap_over_eight_decades_of_C(loss, regularizer, bias_penalty):
    X, y, s = problem(m=300)
    B = np.arange(40)
    for C in (1e-3, 1e-1, 10.0, 1e3, 1e5):
        features = features_of(X, B, regularizer, bias_penalty)
        found = solved(X, y, s, features, loss, C, bias_penalty)
        dense = Dense(X, y, s, B, "coef", bias_penalty, loss, C)
        dense.Phi = features.transform(X)
        theta = found.theta[:, 0]
        assert dense.relative_gradient(theta) <= 1.1e-6
        assert abs(dense.gap(theta)) < 1e-6
        assert found.gap == pytest.approx(dense.gap(theta), abs=1e-8)
        assert found.objective == pytest.approx(dense(theta)[0], rel=1e-9)


@pytest.mark.parametrize("bias_penalty", BIASES)
@pytest.mark.parametrize("delta", [0.05, 1.35])
def test_huber_regression_is_that_of_lbfgs(bias_penalty, delta):
    X, y, s = problem()
    target = 30.0 + 5 * X[:, 0] + np.where(y > 0, 0.0, 20.0)
    B = np.arange(20)
    loss = SymmetricHuber(delta)
    found = solved(
        X, target, s, features_of(X, B, "rkhs", bias_penalty), loss, 10.0, bias_penalty,
        margin=False, tol=1e-9,
    )  # fmt: skip
    dense = Dense(X, target, s, B, "rkhs", bias_penalty, loss, 10.0, margin=False)
    assert found.objective == pytest.approx(dense.minimum(), rel=1e-7)


@pytest.mark.parametrize("C", [0.01, 1.0, 50.0])
def test_linear_kernel_with_penalised_bias_is_linear_svc(C):
    X, y, s = problem()
    X = np.hstack([X, X**2])
    theirs = LinearSVC(C=C, dual=False, tol=1e-12, max_iter=100_000).fit(X, y, sample_weight=s)
    ours = PlainReducedSVC(
        2 * C, "linear", bias_penalty=1.0, basis="all", tol=1e-10, regularizer="rkhs"
    ).fit(X, y, sample_weight=s)
    expected = theirs.decision_function(X)
    np.testing.assert_allclose(ours.decision_function(X), expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("loss", [SquaredHinge(), Huber(1e-2)], ids=lambda loss: loss.name)
@pytest.mark.parametrize("bias_penalty", BIASES)
def test_updated_hessians_and_woodbury_give_the_path_of_rebuilt_ones(
    loss, bias_penalty, monkeypatch
):
    X, y, s = problem(m=300, noise=0.0)
    features = features_of(X, np.arange(100), "rkhs", bias_penalty)
    both = [solved(X, y, s, features, loss, 1e3, bias_penalty)]
    plan = matrix.NewtonMatrices.plan
    monkeypatch.setattr(matrix, "_REBUILD_AFTER", 0)
    monkeypatch.setattr(
        matrix.NewtonMatrices, "plan", lambda self, o: plan(self, o, woodbury=False)
    )
    both.append(solved(X, y, s, features, loss, 1e3, bias_penalty))
    kinds = set(both[0].history[0]["hessian"])
    assert "woodbury" in kinds and kinds & {"update", "rebuild"}
    assert set(both[1].history[0]["hessian"]) <= {"rebuild", "none"}
    np.testing.assert_allclose(both[0].theta, both[1].theta, rtol=1e-6, atol=1e-8)
    assert abs(both[0].iterations - both[1].iterations) <= 3


def test_the_gram_matrix_is_that_of_the_curved_rows():
    X, y, s = problem()
    blocks = MemoryBlocks(X, y[:, None], s, tile_rows=33)
    features = features_of(X, np.arange(10), "coef", 0.0)
    solver = NewtonSolver(blocks, features)
    plan = solver.plan
    for as_gram in (True, False):
        solver.plan = lambda o: plan(o, woodbury=False)
        found = with_theta(solver, solver.solve(SquaredHinge(), 50.0 if as_gram else 5.0))
        (output,) = solver.outputs
        solver.plan = lambda o, g=as_gram: HessianPlan("update", as_gram=g)
        solver.for_each([output], solver.factor)
        Phi = np.hstack([KERNEL.block(X, X[:10]), np.ones((len(X), 1))])
        curved = y * (Phi @ found.theta[:, 0]) < 1
        expected = (Phi[curved] * s[curved, None]).T @ Phi[curved]
        np.testing.assert_allclose(output.gram, expected, rtol=1e-10)


def test_blocks_and_recomputed_features_change_nothing():
    X, y, s = problem()
    Y = np.stack([y, -y * np.sign(X[:, 2])], axis=1)
    B, results = np.arange(30), []
    for tile_rows, budget in ((1000, 2**30), (17, 2**30), (17, 3 * 8 * 31**2)):
        found = all_outputs(X, Y, s, B, [10.0], tile_rows=tile_rows, budget=budget)
        assert found.solution.details["kernel_kept"] == (budget == 2**30)
        results.append(np.vstack([found.features.L.T @ found.solution.coef, found.solution.b]))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(results[2], results[0], rtol=1e-7, atol=1e-9)


def test_outputs_in_step_are_outputs_alone():
    X, y, s = problem()
    Y = np.stack([y, np.sign(X[:, 2]), -y], axis=1)
    features = features_of(X, np.arange(30), "coef", 0.0)
    together = solved(X, Y, s, features, Huber(), 10.0, 0.0)
    for o in range(3):
        alone = solved(X, Y[:, o], s, features, Huber(), 10.0, 0.0)
        np.testing.assert_allclose(together.theta[:, [o]], alone.theta, rtol=1e-6, atol=1e-8)
        assert together.history[o]["curved"] == alone.history[0]["curved"]


def test_a_warm_path_reaches_the_cold_solutions_in_fewer_steps():
    X, y, s = problem(m=400, noise=0.1)
    features = features_of(X, np.arange(60), "rkhs", 0.0)
    path = 10.0 ** np.arange(-1, 6)
    warm = all_outputs(X, y[:, None], s, np.arange(60), path).path
    cold = [solved(X, y, s, features, SquaredHinge(), C, 0.0) for C in path]
    for one, other in zip(warm, cold, strict=True):
        assert one.objective == pytest.approx(other.objective, rel=1e-7)
    assert sum(one.iterations for one in warm) < sum(one.iterations for one in cold)


@given(
    seed=st.integers(0, 10_000),
    loss=st.sampled_from(LOSSES),
    regularizer=st.sampled_from(["rkhs", "coef"]),
    bias_penalty=st.sampled_from(BIASES),
    log_C=st.floats(-3, 4),
)
@settings(max_examples=25, deadline=None)
def test_weights_are_repetitions(seed, loss, regularizer, bias_penalty, log_C):
    X, y, s = problem(seed, m=60)
    s[::7] = 0.0
    features = features_of(X, np.arange(1, 12), regularizer, bias_penalty)
    weighted = solved(X, y, s, features, loss, 10.0**log_C, bias_penalty, tol=1e-8)
    rows = np.repeat(np.arange(60), s.astype(int))
    repeated = solved(
        X[rows], y[rows], None, features, loss, 10.0**log_C, bias_penalty, tol=1e-8
    )  # fmt: skip
    assert weighted.objective == pytest.approx(repeated.objective, rel=1e-7)


@given(seed=st.integers(0, 10_000), loss=st.sampled_from(SHARP), log_C=st.floats(-2, 5))
@settings(max_examples=25, deadline=None)
def test_the_objective_never_rises_within_a_stage(seed, loss, log_C):
    X, y, s = problem(seed, m=80)
    features = features_of(X, np.arange(25), "coef", 0.0)
    solver = NewtonSolver(MemoryBlocks(X, y[:, None], s), features)
    solver._stages = lambda loss: (loss,)
    with mock.patch.object(solver_module, "_EASY", np.inf):  # no smaller C before this one
        found = solver.solve(loss, 10.0**log_C)
    objective = np.array(found.details["history"][0]["objective"])
    assert np.all(np.diff(objective) <= 1e-9 * objective[:-1])


def test_a_loss_that_only_curves_next_to_the_margin_and_no_curved_row_at_all():
    X, y, s = problem()
    features = features_of(X, np.arange(5), "rkhs", 0.0)
    blocks = MemoryBlocks(X, y[:, None], s)
    solver = NewtonSolver(blocks, features)
    solver._stages = lambda loss: (loss,)  # u = 1 is far outside of |u| <= delta
    found = solver.solve(Huber(1e-3), 1e-4)
    dense = Dense(X, y, s, np.arange(5), "rkhs", 0.0, Huber(1e-3), 1e-4)
    assert found.converged
    assert found.objective == pytest.approx(dense.minimum(), rel=1e-6)


def test_the_line_search_ends_at_the_minimum():
    X, y, s = problem()
    features = features_of(X, np.arange(10), "coef", 0.0)
    dense = Dense(X, y, s, np.arange(10), "coef", 0.0, SquaredHinge(), 4.0)
    for scale in (1e-5, 1e3):
        solver = NewtonSolver(MemoryBlocks(X, y[:, None], s), features)
        solver._setup(SquaredHinge(), 4.0, None, 1e-6)
        (o,) = solver.outputs
        direction = -scale * o.gradient
        solver._line_search([o], direction[:, None])
        best = minimize(lambda t, d=direction: dense(t[0] * d)[0], [o.history["step"][0]])
        assert dense(o.theta)[0] <= best.fun * (1 + 1e-6)


def test_callback_stops_and_an_unfinished_fit_says_so():
    X, y, s = problem()
    features = features_of(X, np.arange(30), "rkhs", 0.0)
    seen = []
    found = solved(
        X, y, s, features, Huber(), 100.0, 0.0,
        on_iteration=lambda k, residual: seen.append((k, residual)) or k == 3,
    )  # fmt: skip
    assert [k for k, _ in seen] == [1, 2, 3] and found.iterations == 3 and not found.converged
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not solved(X, y, s, features, Huber(), 100.0, 0.0, max_iter=2).converged


@pytest.mark.parametrize("bias_penalty", [0.0, 2.0, np.inf])
def test_conjugate_gradients_lead_to_the_same_minimum(bias_penalty, monkeypatch):
    X, y, s = problem()
    Y = np.column_stack([y, np.where(X[:, 2] > 0.5, 1.0, -1.0)])
    features = features_of(X, np.arange(40), "rkhs", bias_penalty)
    loss = Logistic(1.0, margin=0.0)
    exact = solved(X, Y, s, features, loss, 30.0, bias_penalty, tol=1e-9)
    assert all("conjugate gradients" not in one["hessian"] for one in exact.history)
    monkeypatch.setattr(matrix, "_CG_FROM", 1)
    found = solved(X, Y, s, features, loss, 30.0, bias_penalty, tol=1e-9)
    for one in found.history:  # the first step makes the matrix that preconditions the others
        assert one["hessian"][0] == "rebuild" and one["hessian"].count("rebuild") <= 2
        assert "conjugate gradients" in one["hessian"]
    assert found.gap < 1e-8
    np.testing.assert_allclose(found.objective, exact.objective, rtol=1e-12)
    np.testing.assert_allclose(found.theta, exact.theta, atol=1e-5)
    monkeypatch.setattr(matrix, "_CG_STEPS", 0)  # never enough: a new matrix in every step
    np.testing.assert_allclose(
        solved(X, Y, s, features, loss, 30.0, bias_penalty, tol=1e-9).theta, exact.theta, atol=1e-9
    )
