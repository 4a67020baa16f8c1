"""Leave-one-out error and its gradient against refits and finite differences."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from threadpoolctl import threadpool_limits

from leansvm.kernels import Kernel
from leansvm.learning import objective as scale_gradient
from leansvm.learning.objective import LooObjective
from leansvm.learning.parts import ScaledMixture
from leansvm.learning.search import ScaleProgress, ScaleSearch, Stage

KERNELS = ["rbf", "matern12", "matern32", "matern52", "laplacian", "linear"]
MIXTURES = [("rbf", "matern32", "laplacian"), ("matern12", "linear"), ("matern52",) * 2]
every_kernel = pytest.mark.parametrize("kernel", [*KERNELS, *MIXTURES], ids=str)
every_bias = pytest.mark.parametrize("bias_penalty", [0.0, 0.7, np.inf])
both_outputs = pytest.mark.parametrize("n_outputs", [1, 3])
both_weights = pytest.mark.parametrize("weighted", [False, True], ids=["ones", "weights"])


class Problem(NamedTuple):
    """The arguments of an objective."""

    kernels: Any
    X: Any
    Z: Any
    Y: Any
    weight: Any
    bias_penalty: float = 0.0


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr(scale_gradient, "TILE_VALUES", 200)


def make(kernel, bias_penalty=0.0, n_outputs=1, weighted=True, m=60, r=15, d=4):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(m, d))
    columns = [np.sin(2 * X[:, 0]) + X[:, 1], X[:, 2] ** 2, X[:, 0] * X[:, 1] + 1]
    Y = np.stack(columns[:n_outputs], axis=1) + 0.1 * rng.normal(size=(m, n_outputs))
    weight = rng.uniform(0.3, 3.0, m) if weighted else np.ones(m)
    kernels = (kernel,) if isinstance(kernel, str) else kernel
    gamma = np.exp(rng.normal(size=(len(kernels), d)) * 0.5 - 1)
    return Problem(kernels, X, X[:r], Y, weight, bias_penalty), gamma, 0.13


def mixture(problem, gamma, X):
    """Equal weights of kernels as they are known elsewhere; linear is that of scaled rows."""
    blocks = []
    for name, scales in zip(problem.kernels, gamma, strict=True):
        kernel = Kernel("linear") if name == "linear" else Kernel(name, gamma=scales)
        root = np.sqrt(scales) if name == "linear" else 1.0
        blocks.append(kernel.block(X * root, problem.Z * root))
    return np.mean(blocks, axis=0)


def refit(problem, gamma, lam, rows):
    """Coefficients and bias of the weighted ridge problem on some rows, by dense algebra."""
    K, W = mixture(problem, gamma, problem.X[rows]), mixture(problem, gamma, problem.Z)
    np.fill_diagonal(W, W.diagonal() + 1e-10 * W.diagonal().mean())
    penalty = lam * W
    if problem.bias_penalty < np.inf:
        K = np.column_stack([K, np.ones(len(K))])
        penalty = np.pad(penalty, (0, 1))
        penalty[-1, -1] = lam * problem.bias_penalty
    S = problem.weight[rows][:, None]
    coef = np.linalg.solve(K.T @ (S * K) + penalty, K.T @ (S * problem.Y[rows]))
    r = len(problem.Z)
    return coef[:r], coef[r] if len(coef) > r else np.zeros(coef.shape[1])


def predicted(problem, gamma, model, X):
    return mixture(problem, gamma, X) @ model[0] + model[1]


def left_out_error(problem, gamma, lam):
    m, total = len(problem.X), 0.0
    for i in range(m):
        model = refit(problem, gamma, lam, np.delete(np.arange(m), i))
        error = problem.Y[i] - predicted(problem, gamma, model, problem.X[i : i + 1])[0]
        total += problem.weight[i] * float(error @ error)
    return total / (problem.weight.sum() * problem.Y.shape[1])


@every_kernel
@every_bias
@both_outputs
@both_weights
def test_value_is_that_of_refits_without_each_row(kernel, bias_penalty, n_outputs, weighted):
    problem, gamma, lam = make(kernel, bias_penalty, n_outputs, weighted)
    expected = left_out_error(problem, gamma, lam)
    assert LooObjective(*problem)(gamma, lam).value == pytest.approx(expected, rel=1e-8)


@every_bias
@both_weights
@pytest.mark.parametrize("kernel", ["matern32", MIXTURES[0]], ids=str)
def test_leverages_give_the_predictions_of_refits_without_each_row(kernel, bias_penalty, weighted):
    problem, gamma, lam = make(kernel, bias_penalty, n_outputs=2, weighted=weighted)
    values, leverage = LooObjective(*problem).predictions(problem.X, gamma, lam)
    without = 1.0 - problem.weight * leverage
    found = problem.Y - (problem.Y - values) / without[:, None]
    for i in range(0, len(problem.X), 7):
        model = refit(problem, gamma, lam, np.delete(np.arange(len(problem.X)), i))
        expected = predicted(problem, gamma, model, problem.X[i : i + 1])[0]
        assert_allclose(found[i], expected, rtol=1e-7, atol=1e-7)


@every_kernel
@every_bias
@both_outputs
@both_weights
def test_gradient_is_that_of_finite_differences(kernel, bias_penalty, n_outputs, weighted):
    problem, gamma, lam = make(kernel, bias_penalty, n_outputs, weighted)
    objective, step = LooObjective(*problem), 1e-5
    omega = np.linspace(-0.5, 0.7, len(gamma))
    start = np.concatenate([np.log(gamma).ravel(), omega, [np.log(lam)]])

    def value(place):
        log_gamma, omega = np.split(place[:-1], [gamma.size])
        return objective(np.exp(log_gamma).reshape(gamma.shape), np.exp(place[-1]), omega).value

    moves = step * np.eye(len(start))
    expected = [(value(start + move) - value(start - move)) / (2 * step) for move in moves]
    found = objective(gamma, lam, omega)
    derivatives = [*found.log_gamma.ravel(), *found.omega, found.log_lam]
    assert_allclose(derivatives, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    if len(gamma) == 1:
        assert found.omega == 0  # its weight stays 1


@every_bias
@both_outputs
@pytest.mark.parametrize("kernel", ["matern32", MIXTURES[0]], ids=str)
def test_predictions_are_those_of_a_refit(kernel, bias_penalty, n_outputs):
    problem, gamma, lam = make(kernel, bias_penalty, n_outputs)
    X = np.random.default_rng(1).normal(size=(37, 4))
    model = refit(problem, gamma, lam, np.arange(len(problem.X)))
    expected = predicted(problem, gamma, model, X)
    found = LooObjective(*problem).predictions(X, gamma, lam)[0]
    assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kernel", ["rbf", "matern12", "matern32", "matern52", "laplacian"])
def test_values_of_far_points_are_those_of_the_kernel(kernel):
    X = np.array([[0.0], [1.0], [9.0], [30.0], [1e3]])
    values, ((_, slopes),) = ScaledMixture([kernel], X, np, np.ones((1, 1))).block(X)
    expected = Kernel(kernel, gamma=1.0).block(X, X)
    assert_allclose(values, expected, rtol=1e-9, atol=1e-30)
    assert (slopes <= 0).all()


@every_kernel
def test_tiles_and_threads_change_nothing(kernel, monkeypatch):
    problem, gamma, lam = make(kernel)
    found = {}
    for values in (100, 10**6):
        monkeypatch.setattr(scale_gradient, "TILE_VALUES", values)
        for threads in (1, 2):
            found[values, threads] = LooObjective(*problem, threads=threads)(gamma, lam)
    assert_allclose(found[100, 1].log_gamma, found[100, 2].log_gamma, rtol=0, atol=0)
    for other in found.values():
        assert_allclose(other.log_gamma, found[100, 1].log_gamma, rtol=1e-7, atol=1e-9)
        assert other.value == pytest.approx(found[100, 1].value, rel=1e-12)


@every_kernel
def test_a_feature_of_scale_0_is_no_feature(kernel):
    problem, gamma, lam = make(kernel)
    gamma[:, 1] = 0.0
    kept = [0, 2, 3]
    fewer = Problem(
        problem.kernels,
        problem.X[:, kept].copy(),
        problem.Z[:, kept].copy(),
        problem.Y,
        problem.weight,
    )
    found, expected = (
        LooObjective(*problem)(gamma, lam),
        LooObjective(*fewer)(gamma[:, kept], lam),
    )
    assert found.value == pytest.approx(expected.value, rel=1e-7)
    assert (found.log_gamma[:, 1] == 0).all()
    assert_allclose(found.log_gamma[:, kept], expected.log_gamma, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("kernel", [*KERNELS[:-1], MIXTURES[0]], ids=str)
def test_equal_points_and_far_rows(kernel):
    problem, gamma, lam = make(kernel)
    X = problem.X.copy()
    X[1], X[20] = X[0], 1e6
    problem = Problem(problem.kernels, X, X[:15], problem.Y, problem.weight)
    found = LooObjective(*problem)(gamma, lam)
    assert found.value == pytest.approx(left_out_error(problem, gamma, lam), rel=1e-4)
    assert np.isfinite(found.log_gamma).all()


def test_what_is_not_finite_is_an_error():
    problem, gamma, lam = make("rbf")
    with pytest.raises(np.linalg.LinAlgError):
        LooObjective(*problem)(gamma, -1e9)
    with pytest.raises(np.linalg.LinAlgError):
        LooObjective(*problem)(gamma * np.nan, lam)


@every_kernel
@every_bias
@pytest.mark.parametrize("library", ["torch", "array_api_strict"])
def test_rows_on_a_device_have_the_gradient_of_the_host(kernel, bias_penalty, library):
    xp = pytest.importorskip(library)
    problem, gamma, lam = make(kernel, bias_penalty, n_outputs=2)
    gamma[0, 1] = 0.0
    there = problem._replace(X=xp.asarray(problem.X), Z=xp.asarray(problem.Z))
    found, expected = LooObjective(*there)(gamma, lam), LooObjective(*problem)(gamma, lam)
    assert found.value == pytest.approx(expected.value, rel=1e-9)
    for a, b in zip(found[1:], expected[1:], strict=True):
        assert_allclose(a, b, rtol=1e-6, atol=1e-7 * np.abs(expected.log_gamma).max())
    rows = problem.X[:5]
    predicted = LooObjective(*problem).predictions(rows, gamma, lam)
    found = LooObjective(*there).predictions(xp.asarray(rows), gamma, lam)
    for a, b in zip(found, predicted, strict=True):
        assert_allclose(a, b)


@pytest.mark.parametrize("kernel", ["matern32", MIXTURES[0]], ids=str)
def test_single_precision_is_close_to_double(kernel):
    problem, gamma, lam = make(kernel, m=300, r=40)
    found = LooObjective(*problem._replace(X=problem.X.astype(np.float32)))(gamma, lam)
    expected = LooObjective(*problem)(gamma, lam)
    assert found.value == pytest.approx(expected.value, rel=1e-3)
    assert_allclose(found.log_gamma, expected.log_gamma, rtol=1e-2, atol=1e-3 * expected.value)


def test_an_objective_can_be_used_again():
    problem, gamma, lam = make("matern32", 0.7)
    objective = LooObjective(*problem)
    first = objective(gamma, lam)
    predicted = objective.predictions(problem.X[:5], gamma, lam)[0]
    objective(2 * gamma, 5 * lam)
    again = objective(gamma, lam)
    assert again.value == first.value
    assert_array_equal(again.log_gamma, first.log_gamma)
    assert_array_equal(objective.predictions(problem.X[:5], gamma, lam)[0], predicted)


@pytest.mark.parametrize("kernel", ["matern32", "laplacian", MIXTURES[0]], ids=str)
def test_memory_stays_within_what_was_announced(kernel, monkeypatch):
    import tracemalloc

    monkeypatch.undo()
    problem, gamma, lam = make(kernel, m=3000, r=150, d=10)
    with threadpool_limits(1, user_api="blas"):
        LooObjective(*problem)(gamma, lam)  # compiled code is loaded
        tracemalloc.start()
        try:
            LooObjective(*problem)(gamma, lam)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    sample = SimpleNamespace(X=problem.X, Y=problem.Y, weight=problem.weight)
    stage = Stage(3000, 150, 0)
    search = ScaleSearch(sample, 0.0, int(peak), ScaleProgress(None), stage, False)
    with pytest.raises(MemoryError):  # less than what was announced
        search.objective(problem.kernels, stage)
