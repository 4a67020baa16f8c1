"""Decision values without the row: against models fitted again without it."""

import numpy as np
import pytest

from leansvm import ReducedSVR
from leansvm.basis.features import whiten
from leansvm.kernels import Kernel
from leansvm.losses import Huber, Logistic, Squared, SquaredHinge, SymmetricHuber
from leansvm.newton import left_out
from leansvm.newton.left_out import leave_out, left_out_mistakes, left_out_residuals_of
from leansvm.newton.matrix import factored
from leansvm.newton.solver import NewtonSolver
from leansvm.rows import MemoryBlocks

KERNEL = Kernel("rbf", gamma=0.5)
BIASES = [0.0, 2.0, np.inf]
EVERY_LOSS = {
    "squared": Squared(),
    "squared_hinge": SquaredHinge(),
    "huber": Huber(1.0),
    "sharp huber": Huber(1e-4),
    "logistic": Logistic(1.0),
    "sharp logistic": Logistic(1e4),
}


@pytest.fixture
def one_step_alone(monkeypatch):
    """As for many rows: no further steps."""
    monkeypatch.setattr(left_out, "_FEW_NUMBERS", 0)


def problem(m=60, outputs=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 3))
    noise = 0.3 * rng.normal(size=(m, outputs))
    Y = np.where(X[:, :1] * X[:, 1:2] + noise > 0, 1.0, -1.0)
    return X, Y, rng.uniform(0.5, 2.0, m)


def solver_of(X, Y, s, points, bias_penalty, **options):
    constant = 1.0 if np.isfinite(bias_penalty) else None
    features = whiten(KERNEL, X[:points], X[:points], constant=constant)
    penalty = bias_penalty if np.isfinite(bias_penalty) else 0.0
    blocks = MemoryBlocks(X, Y, s, tile_rows=17)
    options = {"n_outputs": Y.shape[1], "tol": 1e-10, **options}
    return NewtonSolver(blocks, features, bias_penalty=penalty, **options), features


def values_without(X, Y, s, features, points, bias_penalty, loss, C, rows, start=None, **options):
    """Decision values of rows from models that were fitted without them, from zero or a start."""
    found = []
    for i in rows:
        rest = np.delete(np.arange(len(X)), i)
        solver, _ = solver_of(X, Y, s, points, bias_penalty, **options)
        solver.blocks = MemoryBlocks(X[rest], Y[rest], s[rest])
        if start is None:
            solver.solve(loss, C)
        else:
            solver.minimise(loss, C, start, 1e-6)
        found.append((features.transform(X[[i]]) @ solver.theta)[0])
    return np.array(found)


@pytest.mark.parametrize("points", [8, 60])  # a factor of H; Woodbury's identity
@pytest.mark.parametrize("bias_penalty", BIASES)
@pytest.mark.parametrize("few_rows", [False, True])  # further steps may not spoil the exact one
def test_the_squared_loss_is_exact(points, bias_penalty, few_rows, monkeypatch):
    monkeypatch.setattr(left_out, "_FEW_NUMBERS", 2**20 if few_rows else 0)
    X, Y, s = problem(outputs=2)
    solver, features = solver_of(X, Y, s, points, bias_penalty)
    solver.solve(Squared(), 10.0)
    error = leave_out(solver)
    values = Y - left_out_residuals_of(solver)
    rows = [0, 7, 39]
    exact = values_without(X, Y, s, features, points, bias_penalty, Squared(), 10.0, rows)
    np.testing.assert_allclose(values[rows], exact, rtol=1e-6, atol=1e-8)
    loss = s @ Squared().value(1 - Y * values).sum(axis=1) / s.sum()
    assert error == pytest.approx(loss, rel=1e-9)


@pytest.mark.parametrize("bias_penalty", BIASES)
def test_both_ways_to_leverages_agree(bias_penalty, one_step_alone):
    X, Y, s = problem(m=80)
    both = []
    for woodbury in (True, False):
        solver, _ = solver_of(X, Y, s, 50, bias_penalty)
        solver.solve(Huber(0.1), 5.0)
        plan = solver.plan
        solver.plan = lambda o, p=plan, w=woodbury: p(o, woodbury=w)
        leave_out(solver)
        both.append(left_out_residuals_of(solver))
    np.testing.assert_allclose(both[0], both[1], rtol=1e-6, atol=1e-8)


def test_rows_beyond_the_margin_do_not_move(one_step_alone):
    X, Y, s = problem(m=100)
    solver, features = solver_of(X, Y, s, 20, 0.0)
    solver.solve(SquaredHinge(), 10.0)
    leave_out(solver)
    values, fitted = Y - left_out_residuals_of(solver), features.transform(X) @ solver.theta
    far = Y * fitted > 1
    assert 10 < far.sum() < 100
    np.testing.assert_array_equal(values[far] == pytest.approx(fitted[far], rel=1e-12), True)
    assert np.all(np.abs(values - fitted)[~far] > 0)


@pytest.mark.parametrize("loss", [SquaredHinge(), Huber(1.0), Logistic(1.0)], ids=lambda x: x.name)
@pytest.mark.parametrize("C", [0.1, 10.0])
def test_other_losses_are_left_out_to_first_order(loss, C, one_step_alone):
    X, Y, _ = problem(m=120)
    s = np.ones(120)
    solver, features = solver_of(X, Y, s, 15, 0.0)
    solver.solve(loss, C)
    leave_out(solver)
    values, fitted = Y - left_out_residuals_of(solver), features.transform(X) @ solver.theta
    rows = range(0, 120, 4)
    exact = values_without(X, Y, s, features, 15, 0.0, loss, C, rows)
    moved, wrong = np.abs(fitted[rows] - exact), np.abs(values[rows] - exact)
    assert wrong.mean() < 0.25 * moved.mean()
    assert np.mean((values[rows] > 0) == (exact > 0)) >= 0.96


@pytest.mark.parametrize("loss", EVERY_LOSS.values(), ids=EVERY_LOSS)
@pytest.mark.parametrize(("C", "bias_penalty"), [(1.0, 0.0), (100.0, np.inf)])
def test_few_rows_are_left_out_by_further_steps(loss, C, bias_penalty):
    X, Y, s = problem(m=120)
    solver, features = solver_of(X, Y, s, 40, bias_penalty)
    solver.solve(loss, C)
    leave_out(solver)
    values, fitted = Y - left_out_residuals_of(solver), features.transform(X) @ solver.theta
    rows = range(0, 120, 16)
    exact = values_without(X, Y, s, features, 40, bias_penalty, loss, C, rows, tol=1e-6)
    moved, wrong = np.abs(fitted[rows] - exact), np.abs(values[rows] - exact)
    sharp = loss.max_curvature > 1
    assert wrong.mean() < (0.1 if sharp else 2e-3) * moved.mean()


@pytest.mark.slow  # hundreds of fits
@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("loss", EVERY_LOSS.values(), ids=EVERY_LOSS)
@pytest.mark.parametrize("noise", [0.0, 0.6])
def test_error_rates_are_those_of_refitting(loss, C, noise):
    rng = np.random.default_rng(0)
    X, s = rng.normal(size=(300, 3)), np.ones(300)
    Y = np.where(X[:, :1] * X[:, 1:2] + noise * rng.normal(size=(300, 1)) > 0, 1.0, -1.0)
    solver, features = solver_of(X, Y, s, 60, 0.0, tol=1e-6)
    solver.solve(loss, C)
    leave_out(solver)
    values = Y - left_out_residuals_of(solver)
    moving = np.flatnonzero(loss.derivative(1 - Y * (features.transform(X) @ solver.theta)))
    exact = values.copy()
    exact[moving] = values_without(
        X, Y, s, features, 60, 0.0, loss, C, moving, start=solver.theta, tol=1e-6
    )
    assert abs(np.mean(values * Y <= 0) - np.mean(exact * Y <= 0)) <= 0.01


def test_regression_with_outliers():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(90, 1))
    Y = np.sin(2 * X) + 0.1 * rng.normal(size=(90, 1))
    Y[::15] += 5.0
    s = np.ones(90)
    solver, features = solver_of(X, Y, s, 15, 0.0, margin=False)
    solver.solve(SymmetricHuber(0.3), 10.0)
    leave_out(solver)
    rows = range(0, 90, 5)
    values = (Y - left_out_residuals_of(solver))[rows]
    exact = values_without(
        X, Y, s, features, 15, 0.0, SymmetricHuber(0.3), 10.0, rows, margin=False
    )
    assert np.abs(values - exact).max() < 0.02


@pytest.mark.parametrize("classes", [2, 3])
def test_mistakes_near_the_boundary_count_in_part(one_step_alone, classes):
    X, Y, s = problem(m=80)
    labels = np.digitize(X[:, 0], [0.0, 0.7][: classes - 1])
    if classes > 2:
        Y = np.where(labels[:, None] == np.arange(3), 1.0, -1.0)
    solver, _ = solver_of(X, Y, s, 10, 0.0)
    solver.solve(SquaredHinge(), 10.0)
    leave_out(solver)
    share = left_out_mistakes(solver)
    values = Y - left_out_residuals_of(solver)
    total = 0.0
    for row, y, weight in zip(values, Y, s, strict=True):
        margin = 2 * row[0] * y[0] if classes == 2 else row[y > 0][0] - row[y < 0].max()
        total += weight * np.interp(margin, [-0.5, 0.5], [1.0, 0.0])
    assert share == pytest.approx(total / s.sum(), rel=1e-9)
    assert 0.0 < share < 1.0


def test_basis_rows_do_not_count_in_the_loss(one_step_alone):
    X, Y, s = problem(m=100)
    solver, _ = solver_of(X, Y, s, 20, 0.0)
    solver.solve(SquaredHinge(), 10.0)
    every, others = leave_out(solver), leave_out(solver, np.arange(20))
    values = Y - left_out_residuals_of(solver)
    losses = SquaredHinge().value(1 - Y * values)[:, 0]
    assert every == pytest.approx(s @ losses / s.sum(), rel=1e-9)
    assert others == pytest.approx(s[20:] @ losses[20:] / s[20:].sum(), rel=1e-9)


def test_left_out_residuals_are_published():
    X, _, _ = problem(m=150)
    model = ReducedSVR(n_basis=20, random_state=0).fit(X, X[:, 0] ** 2)
    assert model.loo_residuals_.shape == (150,)
    assert np.std(model.loo_residuals_) > np.std(X[:, 0] ** 2 - model.predict(X))


def test_a_bias_without_points_and_without_curved_rows():
    # nothing has a ridge here, and no residual is in the curved zone of the loss
    assert np.all(np.diag(factored(np.zeros((2, 2)), np.zeros(2))) > 0)
    y = 1e3 * np.random.default_rng(0).normal(size=12)
    model = ReducedSVR(kernel="linear", gamma="scale", C="loo", loss="huber", delta=1e-8)
    found = model.fit(np.zeros((12, 2)), y)
    assert np.isfinite(found.loo_residuals_).all()
