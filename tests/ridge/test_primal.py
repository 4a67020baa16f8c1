"""The primal solver's parts: whitening, sums over blocks, GCV, leave-one-out, prefixes."""

from dataclasses import replace

import array_api_strict
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.metrics.pairwise import rbf_kernel

from leansvm.basis import PivotedCholesky, RandomBasis
from leansvm.basis import features as maps
from leansvm.basis.choose import choose
from leansvm.kernels import Kernel
from leansvm.model_selection import paths
from leansvm.model_selection.paths import models_of_turned_sizes, rotation_in_order
from leansvm.ridge import criteria, primal
from leansvm.ridge.criteria import Criterion
from leansvm.ridge.equations import (
    NormalEquations,
    models_of_C,
    models_of_sizes,
    normal_equations,
    theta_at,
)
from leansvm.ridge.primal import SparseProblem
from leansvm.ridge.sums import add_up, first_shift
from leansvm.rows import MemoryBlocks

rng = np.random.default_rng(8)
N = 45
X = rng.normal(size=(N, 3))
Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] + 5])
WEIGHT = rng.uniform(0.5, 2.0, size=N)
KERNEL = Kernel("rbf", gamma=0.5)
ROWS = np.array([40, 3, 17, 8, 22, 1])
PENALTIES = {"free": 0.0, "penalised": 0.4, "absent": np.inf}
every_bias = pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)


def whitened(points=X[ROWS], penalty=np.inf, **options):
    constant = 1 / np.sqrt(penalty) if 0 < penalty < np.inf else None
    return maps.whiten(KERNEL, points, points, constant=constant, **options)


def equations_of(basis, penalty, weight=WEIGHT, tile_rows=None):
    blocks = MemoryBlocks(X, Y, weight, tile_rows=tile_rows or N)
    sums = add_up(blocks, basis, first_shift(blocks, basis, penalty == 0))
    return blocks, normal_equations(sums, basis, penalty == 0)


def smoother(points, C, penalty, s=WEIGHT):
    """Targets to fitted values, from the weighted problem in alpha and b."""
    r = len(points)
    design = np.column_stack([rbf_kernel(X, points, gamma=0.5), np.ones(N)])
    ridge = np.zeros((r + 1, r + 1))
    ridge[:r, :r] = rbf_kernel(points, gamma=0.5) / C
    ridge[r, r] = 0.0 if penalty == np.inf else penalty / C
    if penalty == np.inf:
        design, ridge = design[:, :r], ridge[:r, :r]
    inverse = np.linalg.solve(design.T @ (s[:, None] * design) + ridge, design.T * s)
    return design @ inverse, inverse, ridge


# ---------------------------------------------------------------------------- whitening


def test_whitening_drops_dependent_points():
    twice = X[np.r_[ROWS, ROWS[:3]]]
    basis = whitened(twice)
    assert_allclose(basis.L @ basis.L.T, rbf_kernel(twice[basis.kept], gamma=0.5), atol=1e-12)
    assert_array_equal(basis.points, twice[basis.kept])
    assert basis.size == basis.width == len(ROWS)
    rotation, kept = rotation_in_order(basis, twice)
    assert_array_equal(kept, np.arange(len(ROWS)))
    lower = basis.transform(twice[: len(ROWS)]) @ rotation
    assert_allclose(lower, np.tril(lower), atol=1e-12)  # row k lies in the first k + 1 columns
    K = rbf_kernel(X, X[ROWS], gamma=0.5)
    expected = K @ np.linalg.solve(rbf_kernel(X[ROWS], gamma=0.5), K.T)
    for Phi in (basis.transform(X), basis.transform(X) @ rotation):
        assert_allclose(Phi @ Phi.T, expected, atol=1e-10)
    assert_allclose(maps.inverse_transpose(basis.L) @ basis.L.T, np.eye(len(ROWS)), atol=1e-10)


def test_whitening_of_nothing():
    basis = maps.whiten(Kernel("linear"), np.zeros((4, 3)), np.zeros((4, 3)))
    assert basis.size == 0
    assert basis.transform(X).shape == (N, 0)
    assert rotation_in_order(basis, np.zeros((4, 3)))[0].shape == (0, 0)


def test_whitening_of_a_nearly_dependent_kernel():
    basis = maps.whiten(Kernel("rbf", gamma=1e-6), X, X)
    rotation, kept = rotation_in_order(basis, X)
    assert 3 < basis.size < N
    assert len(kept) == rotation.shape[1] <= basis.size
    assert np.isfinite(basis.L).all()
    for Phi in (basis.transform(X), basis.transform(X) @ rotation):
        assert_allclose(Phi @ Phi.T, rbf_kernel(X, gamma=1e-6), atol=1e-12)


def test_penalised_bias_is_a_column():
    basis = whitened(penalty=4.0)
    assert basis.width == basis.size + 1
    assert_array_equal(basis.transform(X)[:, -1], 0.5)
    assert whitened(penalty=0.0).width == whitened(penalty=np.inf).width == len(ROWS)


# ---------------------------------------------------------------------------- sums


def assert_same_equations(a, b):
    assert_allclose(a.matrix(), b.matrix(), rtol=1e-10, atol=1e-10)
    for name in ("n", "count", "c", "yy", "mean_phi", "mean_y"):
        assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-10, atol=1e-10)


@every_bias
def test_blocks_add_up(penalty):
    basis = whitened(penalty=penalty)
    _, whole = equations_of(basis, penalty)
    for tile_rows in (1, 15):
        blocks, cut = equations_of(basis, penalty, tile_rows=tile_rows)
        assert len(blocks) == N // tile_rows
        assert_same_equations(cut, whole)


def test_sums_of_batches_add_up_whatever_the_shift():
    basis = whitened(penalty=0.0)
    whole = equations_of(basis, 0.0)[1]
    shift = first_shift(MemoryBlocks(X, Y), basis, True, 2)
    parts = [MemoryBlocks(X[a:b], Y[a:b], WEIGHT[a:b]) for a, b in ((0, 2), (2, 30), (30, N))]
    sums = [add_up(part, basis, shift) for part in parts]
    again = normal_equations(sums[0] + sums[1] + sums[2], basis, True)
    assert_same_equations(again, whole)


# ---------------------------------------------------------------------------- solutions


@every_bias
def test_solution_objective_gcv_and_leave_one_out(penalty):
    basis = whitened(penalty=penalty)
    blocks, equations = equations_of(basis, penalty, tile_rows=10)
    points, candidates = basis.points, np.array([1e-3, 1.0, 1e4])
    models = models_of_C(equations, candidates)
    curve = models.gcv(equations)
    shift = np.linspace(-0.5, 0.5, basis.width + 2) * (penalty == 0)  # any will do
    given = (blocks, replace(equations, shift=shift), models)
    every = criteria.left_out_errors(*given, keep=True)
    outside = criteria.left_out_errors(*given, basis_rows=ROWS)
    left_out = np.concatenate(
        [b.kept(criteria.LeftOutResiduals).residuals for b in blocks._blocks], axis=1
    ).transpose(1, 2, 0)
    for k, C in enumerate(candidates):
        H, inverse, ridge = smoother(points, C, penalty)
        solution = inverse @ Y
        theta = theta_at(equations, C)
        assert_allclose(models.theta(k), theta, rtol=1e-6, atol=1e-8)
        assert_allclose(basis.coefficients(theta), solution[: len(points)], rtol=1e-6, atol=1e-7)
        b = solution[-1] if penalty < np.inf else np.zeros(2)
        found = equations.solution(theta, C)
        assert_allclose(found.b, b, atol=1e-7)
        assert found.residual < 1e-8
        residual = Y - H @ Y
        rss = WEIGHT @ residual**2
        objective = 0.5 * C * (rss.sum() + np.sum(solution * (ridge @ solution)))
        assert_allclose(found.objective, objective, rtol=1e-8)
        n = WEIGHT.sum()
        assert_allclose(curve[k], n * rss.sum() / (n - np.trace(H)) ** 2, rtol=1e-7)
        for i in (0, 7, 44):
            s = np.where(np.arange(N) == i, 0.0, WEIGHT)
            H_i, _, _ = smoother(points, C, penalty, s)
            assert_allclose(left_out[i, k], Y[i] - (H_i @ Y)[i], rtol=1e-6, atol=1e-8)
        squares = np.sum(left_out[:, k] ** 2, axis=1)
        assert_allclose(every[k], np.average(squares, weights=WEIGHT), rtol=1e-10)
        others = np.setdiff1d(np.arange(N), ROWS)
        expected = np.average(squares[others], weights=WEIGHT[others])
        assert_allclose(outside[k], expected, rtol=1e-10)


@pytest.mark.parametrize("size", [5, 40], ids=["spectrum", "dual"])
def test_a_tiny_penalty_of_the_bias_is_solved_like_a_free_one(size):
    basis = whitened(X[:size], 1e-12)
    blocks = MemoryBlocks(X, Y, WEIGHT)
    sums = add_up(blocks, basis, first_shift(blocks, basis, False))
    by = criteria.Criterion(np.array([1.0, 10.0]), "loo", True)
    found = primal.solve_sums(blocks, basis, sums, False, by)
    fitted = basis.transform(X)[:, :-1] @ (basis.L.T @ found.coef) + found.b
    expected = smoother(X[:size], found.C, 0.0)[0] @ Y
    assert_allclose(fitted, expected, atol=1e-7)


def test_gcv_without_room_is_infinite_and_silent():
    basis = whitened(penalty=0.0)
    _, equations = equations_of(basis, 0.0, weight=np.full(N, 0.05))
    with np.errstate(divide="raise", invalid="raise", over="raise"):
        curve = models_of_C(equations, np.array([1e-6, 1e7])).gcv(equations)
    assert np.isfinite(curve[0])
    assert curve[1] == np.inf


@pytest.mark.parametrize("penalty", [0.0, np.inf], ids=["free", "absent"])
def test_every_prefix(penalty):
    basis, C = whitened(penalty=penalty), 3.0
    blocks, equations = equations_of(basis, penalty, tile_rows=10)
    rotation = rotation_in_order(basis, X[ROWS])[0]
    models = models_of_turned_sizes(equations, C, rotation)
    loo, gcv = criteria.left_out_errors(blocks, equations, models), models.gcv(equations)
    decisions = paths.decisions(models, basis.transform(X), equations)
    assert decisions.shape == (N, len(ROWS), 2)
    objectives = 0.5 * C * (equations.yy.sum() - np.sum(models.z**2, axis=1) @ models.weights)
    for k in range(1, len(ROWS) + 1):
        H, inverse, ridge = smoother(X[ROWS[:k]], C, penalty)
        solution, n = inverse @ Y, WEIGHT.sum()
        residual = Y - H @ Y
        assert_allclose(decisions[:, k - 1], H @ Y, atol=1e-9)
        rss = np.sum(WEIGHT @ residual**2)
        objective = 0.5 * C * (rss + np.sum(solution * (ridge @ solution)))
        assert_allclose(objectives[k - 1], objective, rtol=1e-9)
        assert_allclose(gcv[k - 1], n * rss / (n - np.trace(H)) ** 2, rtol=1e-9)
        left_out = residual / (1 - H.diagonal())[:, None]
        assert_allclose(loo[k - 1], np.sum(WEIGHT @ left_out**2) / n, rtol=1e-9)


# ---------------------------------------------------------------------------- where the rows are


@pytest.mark.parametrize("selector", [RandomBasis(), PivotedCholesky()], ids=["random", "pivoted"])
@pytest.mark.parametrize("kind", ["array api", "array api float32", "csr"])
def test_other_arrays_give_the_same_model(selector, kind):
    for weight in (None, WEIGHT):
        check_other_arrays(selector, weight, kind)


def check_other_arrays(selector, weight, kind):
    rows, tolerance = {
        "array api": (array_api_strict.asarray(X), 1e-9),
        "array api float32": (array_api_strict.asarray(X.astype(np.float32)), 1e-3),
        "csr": (sparse.csr_array(X), 1e-9),
    }[kind]
    results = []
    for here in (X, rows):
        blocks = MemoryBlocks(here, Y, weight, tile_rows=17)
        options = {"select_on": "auto", "budget": 2**30, "random_state": 0}
        criterion = Criterion(np.array([0.1, 1.0, 10.0]), "loo", left_out=True)
        problem = SparseProblem(blocks, KERNEL, 0.0, criterion, None, 2**30)
        summed = problem.sum_size(lambda k: choose(blocks, KERNEL, selector, k, **options), 8)  # noqa: B023
        found = problem.solve(summed)
        results.append((summed.basis.indices[np.sort(found.features.kept)], found))
    (support, a), (other, b) = results
    assert_array_equal(support, other)
    assert a.C == b.C
    assert_allclose(b.left_out, a.left_out, atol=tolerance)
    assert_allclose(b.curve, a.curve, rtol=tolerance)
    assert_allclose(b.objective, a.objective, rtol=tolerance)


def test_a_matrix_elsewhere_that_is_singular_is_solved_there():
    M, c = np.array([[4.0, 2.0], [2.0, 1.0]]), np.array([[2.0], [1.0]])
    some = maps.KernelFeatures(Kernel("linear"), np.eye(2)), np.zeros(3)
    here = NormalEquations(*some, 9.0, 9.0, M, c, np.ones(1), np.zeros(2), np.zeros(1), True)
    there = replace(here, gram=pytest.importorskip("torch").asarray(M))
    for equations in (here, there):
        assert_allclose(theta_at(equations, 1e20), [[0.4], [0.2]], rtol=1e-12)


@every_bias
def test_prefixes_without_degrees_of_freedom_have_no_gcv(penalty):
    weight = np.full(N, 5.0 / N)  # five samples
    _, equations = equations_of(whitened(penalty=penalty), penalty, weight)
    scores = models_of_sizes(equations, 1e12).gcv(equations)
    assert np.isinf(scores[-1]) and np.isfinite(scores[0])
    whole = models_of_C(equations, np.array([1e12])).gcv(equations)
    assert np.isinf(whole[0])
