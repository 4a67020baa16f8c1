"""Algorithm 1 of fang2019 against its dense formulas."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from leansvm.low_rank import get_function
from leansvm.low_rank.ascent import (
    OBJECTIVES,
    gradients_of_block,
    hold_outputs,
    learn_by_steps,
    sweep,
)
from leansvm.low_rank.functions import LearnedFeatures, LearnedValues
from leansvm.low_rank.start import feature_units
from leansvm.low_rank.variable_projection import Ascent, LowRankProblem, Start
from leansvm.ridge.criteria import Criterion
from leansvm.rows import MemoryBlocks

NAMES = ["robust-rbf", "simplex", "rbf"]


def problem_of(blocks, C, bias_penalty=0.0):
    return LowRankProblem(blocks, get_function("robust-rbf"), Criterion(C), bias_penalty)


def solve(problem, basis):
    return problem.solve(basis, problem.criterion.C, None)


def learn(problem, basis, how, **options):
    """Run the paper's algorithm from a basis; an error or units do not matter to it."""
    start = Start(basis, problem.criterion.C, np.nan, basis.shapes[0])
    problem = replace(problem, **options)
    return learn_by_steps(problem, how, start, feature_units(problem.blocks))


def setting(seed=0, name="robust-rbf", n=50, d=3, m=4, outputs=1, weighted=False, tile=17, C=20.0):
    """A problem, a basis and the plain arrays behind them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    T = np.where(rng.random((n, outputs)) < 0.5, -1.0, 1.0)
    weight = rng.uniform(0.2, 3.0, size=n) if weighted else None
    basis = LearnedFeatures(
        get_function(name), X[:m].copy() + 0.01, rng.uniform(0.05, 0.3, size=(m, d))
    )
    problem = problem_of(MemoryBlocks(X, T, weight, tile_rows=tile), C)
    return problem, basis, X, T, np.ones(n) if weight is None else weight


def dense_dual(Phi, t, C, weight):
    """Solve (6) = (20), the system of N + 1 equations; returns a, b."""
    n = len(t)
    system = np.zeros((n + 1, n + 1))
    system[0, 1:] = system[1:, 0] = t
    system[1:, 1:] = np.outer(t, t) * (Phi @ Phi.T) + np.diag(1.0 / (C * weight))
    solution = np.linalg.solve(system, np.concatenate([[0.0], np.ones(n)]))
    return solution[1:], solution[0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("C", [1e-2, 20.0, 1e4])
def test_closed_form_is_the_dense_system(name, weighted, C):
    problem, basis, X, T, weight = setting(1, name, weighted=weighted, C=C)
    fitted = solve(problem, basis)
    Phi, t = basis.transform(X), T[:, 0]
    a, b = dense_dual(Phi, t, C, weight)
    # (21) is (22): theta_j = sum_n a_n t_n phi_j(x_n)
    assert_allclose(fitted.theta[:, 0], Phi.T @ (a * t), rtol=1e-9, atol=1e-9)
    assert_allclose(fitted.b, b, rtol=1e-9, atol=1e-9)
    new = np.random.default_rng(5).normal(size=(20, X.shape[1]))
    by_kernel = basis.transform(new) @ Phi.T @ (a * t) + b
    by_functions = basis.transform(new) @ fitted.theta[:, 0] + fitted.b
    assert_allclose(by_functions, by_kernel, rtol=1e-9, atol=1e-9)


def test_closed_form_is_equation_ten_with_its_q_corrected():
    problem, basis, X, T, _ = setting(2)
    Phi, t, C, n = basis.transform(X), T[:, 0], problem.criterion.C, len(X)
    P = np.zeros((n + 1, n + 1))
    P[0, 0], P[0, 1:], P[1:, 0] = -1.0 / C, t, t
    P[1:, 1:] = C * (n * np.eye(n) - np.outer(t, t))
    P /= n
    q = np.concatenate([[t.sum()], C * (n * np.ones(n) - t * t.sum())]) / n
    F = np.vstack([np.zeros(basis.size), t[:, None] * Phi])
    solution = q - P @ F @ np.linalg.solve(np.eye(basis.size) + F.T @ P @ F, F.T @ q)
    fitted = solve(problem, basis)
    assert_allclose(fitted.b[0], solution[0], rtol=1e-9)
    assert_allclose(fitted.theta[:, 0], Phi.T @ (solution[1:] * t), rtol=1e-9)


def held(problem, basis, X, T, weight):
    """v and b of the closed form, and the paper's objective at any parameters with both held."""
    fitted = solve(problem, basis)
    v = fitted.C * weight[:, None] * (T - basis.transform(X) @ fitted.theta - fitted.b)

    def value(objective, centers, shapes):
        Phi = basis.function.values(X, centers, shapes)
        y = Phi @ (Phi.T @ v) + fitted.b
        return float(np.sum(weight[:, None] * OBJECTIVES[objective][0](y, T)))

    return fitted, value


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(("outputs", "weighted"), [(1, False), (3, True)])
def test_gradients_by_finite_differences(name, objective, outputs, weighted):
    problem, basis, X, T, weight = setting(3, name, outputs=outputs, weighted=weighted)
    fitted, value = held(problem, basis, X, T, weight)
    _, sigma = problem.blocks.sum(hold_outputs, fitted, objective, True)
    found = problem.blocks.sum(gradients_of_block, fitted, objective, slice(0, basis.size), sigma)
    h = 1e-6
    for which, gradient in enumerate(found):
        expected = np.empty_like(gradient)
        for j, i in np.ndindex(gradient.shape):
            step = np.zeros_like(gradient)
            step[j, i] = h
            up, down = (
                value(
                    objective,
                    basis.centers + s * step * (which == 0),
                    basis.shapes + s * step * (which == 1),
                )
                for s in (1, -1)
            )
            expected[j, i] = (up - down) / (2 * h)
        assert_allclose(gradient, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    name=st.sampled_from(NAMES),
    objective=st.sampled_from(sorted(OBJECTIVES)),
    sequential=st.booleans(),
    rate=st.sampled_from([0.01, 0.5, 5.0]),
)
def test_backtracking_never_lowers_the_objective(seed, name, objective, sequential, rate):
    problem, basis, X, T, weight = setting(seed, name)
    fitted, value = held(problem, basis, X, T, weight)
    how = Ascent(objective, rate, sequential=sequential, backtracking=True)
    moved, before = sweep(problem, fitted, how, (np.full(1, rate), np.full(1, rate)))
    assert_allclose(before, value(objective, basis.centers, basis.shapes), rtol=1e-9, atol=1e-9)
    after = value(objective, moved.centers, moved.shapes)
    assert after >= before - 1e-9 * max(1.0, abs(before))


def test_the_fixed_step_does_lower_it_sometimes():
    lowered = 0
    for seed in range(20):
        problem, basis, X, T, weight = setting(seed, "simplex")
        fitted, value = held(problem, basis, X, T, weight)
        lengths = np.full(1, 2.0), np.full(1, 2.0)
        moved, before = sweep(problem, fitted, Ascent("abs", 2.0), lengths)
        lowered += value("abs", moved.centers, moved.shapes) < before
    assert lowered > 0


def plain_algorithm(X, t, centers, shapes, function, C, rate, rounds, objective, sequential):
    """Algorithm 1 with N x N matrices, as printed."""
    centers, shapes = centers.copy(), shapes.copy()
    pull = OBJECTIVES[objective][1]
    for _ in range(rounds):
        Phi = function.values(X, centers, shapes)
        a, b = dense_dual(Phi, t, C, np.ones(len(t)))
        v = a * t
        old = Phi.copy()
        for j in range(len(centers)):
            current = Phi if sequential else old
            q = pull(current @ (current.T @ v) + b, t)
            K_by = np.outer(q, v) + np.outer(v, q)  # q' dK v = sum of dphi phi' entries
            weights = (K_by @ old[:, j] if not sequential else K_by @ Phi[:, j])[:, None]
            one = slice(j, j + 1)
            by_center, by_shape = function.gradients(
                X, centers[one], shapes[one], current[:, one], weights
            )
            centers[j] += rate * by_center[0] / np.linalg.norm(by_center)
            shapes[j] = np.maximum(0.0, shapes[j] + rate * by_shape[0] / np.linalg.norm(by_shape))
            Phi[:, one] = function.values(X, centers[one], shapes[one])
    return centers, shapes


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("sequential", [False, True])
@pytest.mark.parametrize("tile", [50, 7])
def test_steps_are_those_of_the_printed_algorithm(objective, sequential, tile):
    problem, basis, X, T, _ = setting(4, tile=tile)
    how = Ascent(objective, 0.01, sequential=sequential)
    path = learn(problem, basis, how, max_iter=5)
    centers, shapes = plain_algorithm(
        X,
        T[:, 0],
        basis.centers,
        basis.shapes,
        basis.function,
        problem.criterion.C,
        0.01,
        5,
        objective,
        sequential,
    )
    assert path.n_iter == path.best_iter == 5
    assert_allclose(path.basis.centers, centers, rtol=1e-7, atol=1e-9)
    assert_allclose(path.basis.shapes, shapes, rtol=1e-7, atol=1e-9)


def test_best_iterate_has_the_least_left_out_error_and_state_is_cleared():
    problem, basis, X, T, weight = setting(6, n=40)
    path = learn(problem, basis, Ascent("abs", 0.05), max_iter=15, keep_best=True)
    assert path.best_iter == int(np.argmin(path.loo)) and len(path.loo) == 16
    fitted = solve(problem, path.basis)
    Phi = path.basis.transform(X)
    left_out = []
    for i in range(len(X)):
        others = np.arange(len(X)) != i
        a, b = dense_dual(Phi[others], T[others, 0], fitted.C, weight[others])
        left_out.append(T[i, 0] - Phi[i] @ Phi[others].T @ (a * T[others, 0]) - b)
    assert_allclose(problem.left_out_error(fitted), np.mean(np.square(left_out)), rtol=1e-9)
    assert_allclose(min(path.loo), problem.left_out_error(fitted), rtol=1e-9)
    assert all(set(block.state) <= {LearnedValues} for block in problem.blocks._blocks)


def test_left_out_error_takes_a_weight_for_copies():
    _, basis, X, T, _ = setting(7, n=30)
    copies = np.random.default_rng(0).integers(1, 4, size=30)
    by_weight = problem_of(MemoryBlocks(X, T, copies.astype(float)), 5.0)
    repeated = problem_of(
        MemoryBlocks(np.repeat(X, copies, axis=0), np.repeat(T, copies, axis=0)), 5.0
    )
    errors = [each.left_out_error(solve(each, basis)) for each in (by_weight, repeated)]
    assert_allclose(errors[0], errors[1], rtol=1e-10)


def test_a_zero_gradient_leaves_the_unit_where_it_is():
    problem, basis, *_ = setting(8, "simplex")
    far = replace(basis, centers=basis.centers + 100.0)  # no row within reach
    path = learn(problem, far, Ascent("abs", 0.1), max_iter=2)
    assert_allclose(path.basis.centers, far.centers)
    assert_allclose(path.basis.shapes, far.shapes)


@pytest.mark.parametrize("bias_penalty", [0.0, 0.5, np.inf])
def test_every_kind_of_bias_solves_its_objective(bias_penalty):
    problem, basis, X, T, weight = setting(9, weighted=True)
    column = 1 / np.sqrt(bias_penalty) if 0 < bias_penalty < np.inf else None
    basis = LearnedFeatures(basis.function, basis.centers, basis.shapes, column)
    fitted = solve(problem_of(problem.blocks, 3.0, bias_penalty), basis)
    theta, b = basis.coefficients(fitted.theta), fitted.b
    Phi = basis.function.values(X, basis.centers, basis.shapes)
    e = weight[:, None] * (T - Phi @ theta - b)
    assert_allclose(theta, 3.0 * Phi.T @ e, atol=1e-9)
    if bias_penalty == np.inf:
        assert_allclose(b, 0.0)
    else:
        assert_allclose(bias_penalty * b, 3.0 * e.sum(axis=0), atol=1e-8)
