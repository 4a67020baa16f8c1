"""The squared-hinge SVM on working sets, and its parts, against dense solves and other solvers."""

from contextlib import nullcontext

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from leansvm.dual import DualProblem, _hinge, solvers, working_sets
from leansvm.dual._hinge import (
    Hinge,
    Point,
    changed_gram,
    gram_of,
    low_rank_inverse,
    solve_by_cg,
    solve_by_factor,
    times,
)
from leansvm.dual.active_set import ActiveSet, solve_newton
from leansvm.dual.kernel_matrix import KernelMatrix, StoredMatrix
from leansvm.dual.working_sets import Nystrom, WorkingSets
from leansvm.kernels import Kernel

KERNEL = Kernel("rbf", gamma=0.3)
M = 420
TOL = 1e-8


def rows(m=M, seed=0, noise=1.0):
    """Rows, targets of three classes against the rest, and weights."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 3))
    label = np.digitize(X[:, 0] + 0.5 * X[:, 1] ** 2 + noise * rng.normal(size=m), [0.0, 1.0])
    Y = np.where(label[:, None] == np.arange(3), 1.0, -1.0)
    return X, Y, rng.uniform(0.3, 3.0, size=m)


def problem(A=0.0, budget=10**9, kernel=KERNEL, **options):
    X, Y, weight = rows(**options)
    return DualProblem(X, kernel, Y, weight, A, budget, lambda name: nullcontext())


def bordered(K, hinge, S):
    """Solve the equations of S and the bias as one dense system."""
    k, A = len(S), hinge.bias_penalty
    system = np.ones((k + 1, k + 1))
    system[:k, :k] = K[np.ix_(S, S)] + np.diag(1 / hinge.cost[S])
    system[k, k] = -A
    if np.isinf(A):
        system[k], system[:, k], system[k, k] = 0.0, 0.0, 1.0
    return np.linalg.solve(system, np.append(hinge.y[S], 0.0))


# ---------------------------------------------------------------------------- the parts


@pytest.mark.parametrize("A", [0.0, 1e-6, 3.0, np.inf])
@pytest.mark.parametrize("cost", [0.1, 30.0])
def test_conjugate_gradients_solve_the_equations_of_a_support(A, cost):
    X, Y, weight = rows(150)
    K = KERNEL.block(X, X)
    hinge = Hinge(Y[:, 1].copy(), cost * weight, A)
    S = np.flatnonzero(np.arange(150) % 3 > 0)
    Z = Nystrom(KernelMatrix(X, KERNEL), 64, A).Z[:, :20]
    cheap = low_rank_inverse(Z, gram_of(Z, hinge.cost, S), S, hinge.cost)
    beta = np.zeros(150)
    beta[S] = np.random.default_rng(1).normal(size=len(S))
    start = Point(beta, 0.7 if np.inf > A else 0.0, K @ beta + (0.7 if np.inf > A else 0.0))
    found, steps, done = solve_by_cg(K, hinge, S, start, cheap, tol=1e-11, most=200)
    expected = bordered(K, hinge, S)
    assert done and steps > 2
    assert_allclose(found.beta[S], expected[:-1], atol=1e-8 * np.abs(expected).max())
    assert_allclose(found.b, expected[-1], atol=1e-8)
    assert not np.any(np.delete(found.beta, S))
    assert_allclose(found.f, K @ found.beta + found.b, atol=1e-9)
    factored = solve_by_factor(K, hinge, S)
    assert_allclose(factored.beta[S], expected[:-1], atol=1e-9 * np.abs(expected).max())
    assert_allclose(factored.f, K @ factored.beta + expected[-1], atol=1e-9)


def test_few_steps_do_not_claim_to_be_enough():
    X, Y, weight = rows(150)
    K, S = KERNEL.block(X, X), np.arange(150)
    hinge = Hinge(Y[:, 0].copy(), 100 * weight, 0.0)
    cheap = low_rank_inverse(np.zeros((150, 1)), np.zeros((1, 1)), S, hinge.cost)
    start = Point(np.zeros(150), 0.0, np.zeros(150))
    _, steps, done = solve_by_cg(K, hinge, S, start, cheap, tol=1e-10, most=3)
    assert steps == 3 and not done


def test_an_indefinite_matrix_is_noticed():
    hinge = Hinge(np.ones(3), np.full(3, 10.0), np.inf)
    cheap = low_rank_inverse(np.zeros((3, 1)), np.zeros((1, 1)), np.arange(3), hinge.cost)
    start = Point(np.zeros(3), 0.0, np.zeros(3))
    with pytest.raises(np.linalg.LinAlgError):
        solve_by_cg(-np.eye(3), hinge, np.arange(3), start, cheap, tol=1e-8, most=9)


def test_the_cheap_system_is_that_of_low_rank():
    rng = np.random.default_rng(3)
    Z, cost, S = rng.normal(size=(30, 4)), rng.uniform(0.5, 2, 30), np.arange(5, 25)
    cheap, r = low_rank_inverse(Z, gram_of(Z, cost, S), S, cost), rng.normal(size=20)
    dense = Z[S] @ Z[S].T + np.diag(1 / cost[S])
    assert_allclose(cheap(r), np.linalg.solve(dense, r))


def test_a_gram_matrix_follows_the_rows():
    rng = np.random.default_rng(4)
    Z, cost = rng.normal(size=(40, 5)), rng.uniform(0.5, 2, 40)
    was, now = np.arange(40) < 30, (np.arange(40) > 2) & (np.arange(40) < 33)
    gram = changed_gram(gram_of(Z, cost, np.flatnonzero(was)), Z, cost, was, now)
    assert_allclose(gram, (Z[now] * cost[now, None]).T @ Z[now])


def test_features_of_all_rows_are_the_kernel_and_their_start_is_the_solution(monkeypatch):
    X, Y, weight = rows(100)
    low_rank = Nystrom(KernelMatrix(X, KERNEL), 100, 0.0)
    Z = low_rank.Z[:, :-1]
    assert_allclose(Z @ Z.T, KERNEL.block(X, X), atol=1e-6)
    monkeypatch.setattr(working_sets, "_STEPS", 30)
    monkeypatch.setattr(working_sets, "_SETTLED", 0.0)
    E, grams, counted = low_rank.start(np.ascontiguousarray(Y.T), 2.0 * weight)
    exact = solve_newton(problem(m=100), 2.0, tol=1e-10, max_iter=50)
    f = KERNEL.block(X, X) @ exact.coef + exact.b
    assert_allclose(E.T, 1 - Y * f, atol=1e-5)
    for e, gram, was in zip(E, grams, counted, strict=True):
        assert_array_equal(was, e > 0)
        assert_allclose(gram, gram_of(low_rank.Z, 2.0 * weight, np.flatnonzero(was)), atol=1e-8)


@pytest.mark.parametrize("threads", [2, 16])
def test_products_of_any_size(threads, monkeypatch):
    monkeypatch.setattr(_hinge, "blas_threads", lambda: threads)
    A = np.random.default_rng(5).normal(size=(1600, 1600))
    A += A.T
    for n in (1, 499, 500, 1499, 1500):
        K, v = A[:n, :n], np.arange(1.0 * n)
        assert_allclose(times(K, v), K @ v, atol=1e-9 * n, err_msg=f"n = {n}")


# ---------------------------------------------------------------------------- the whole


@pytest.mark.parametrize("A", [0.0, 2.0, np.inf])
@pytest.mark.parametrize("C", [1e-3, 0.1, 1.0, 10.0])
def test_the_solution_is_that_of_newton(A, C):
    found = WorkingSets(problem(A)).solve(C, tol=TOL, max_iter=100)
    exact = solve_newton(problem(A), C, tol=1e-10, max_iter=100)
    assert found is not None and found.converged and found.residual <= TOL
    assert_allclose(found.coef, exact.coef, atol=1e-7 * np.abs(exact.coef).max())
    assert_allclose(found.b, exact.b, atol=1e-7)
    assert found.objective == pytest.approx(exact.objective, rel=1e-10)
    assert 0 <= found.gap <= 1e-9 * found.objective


@pytest.mark.parametrize("few", [0, 10**6])
def test_a_poor_start_makes_the_sets_grow_to_the_same_solution(monkeypatch, few):
    monkeypatch.setattr(working_sets, "_FEWEST", 3)
    monkeypatch.setattr(working_sets, "_MOST", 3)
    monkeypatch.setattr(
        working_sets, "_FACTORED_SUPPORT", few
    )  # by conjugate gradients, or by factors
    monkeypatch.setattr(working_sets, "_MOST_CG", 10_000)
    sizes = []
    plain = WorkingSets._plan

    def watch(fit, outputs):
        sizes.append([len(output.rows) for output in outputs])
        return plain(fit, outputs)

    monkeypatch.setattr(WorkingSets, "_plan", watch)
    found = WorkingSets(problem(noise=0.1)).solve(10.0, tol=TOL, max_iter=100)
    exact = solve_newton(problem(noise=0.1), 10.0, tol=1e-10, max_iter=100)
    assert_allclose(found.coef, exact.coef, atol=1e-6 * np.abs(exact.coef).max())
    assert np.any(np.array(sizes[-1]) > sizes[0]) and np.min(sizes[-1]) < M


@pytest.mark.parametrize("C, shared", [(0.01, True), (300.0, False)])
def test_classes_share_one_matrix_where_their_sets_are_large(monkeypatch, C, shared):
    matrices, plain = [], WorkingSets._products

    def watch(fit, B, todo):
        matrices.append(type(fit.matrix))
        return plain(fit, B, todo)

    monkeypatch.setattr(WorkingSets, "_products", watch)
    found = WorkingSets(problem(noise=0.05)).solve(C, tol=TOL, max_iter=100)
    exact = solve_newton(problem(noise=0.05), C, tol=1e-10, max_iter=100)
    assert set(matrices) == {StoredMatrix if shared else KernelMatrix}
    assert_allclose(found.coef, exact.coef, atol=1e-6 * np.abs(exact.coef).max())


def test_matrices_that_cannot_be_kept_are_made_again(monkeypatch):
    made, values, plan = [], WorkingSets._values, WorkingSets._plan

    def watch(fit, output):
        made.append(output.K is None)
        return values(fit, output)

    monkeypatch.setattr(WorkingSets, "_values", watch)
    expected = WorkingSets(problem()).solve(1.0, tol=TOL, max_iter=100)
    assert not all(made)  # the second round goes on with the first one's
    made.clear()
    monkeypatch.setattr(WorkingSets, "_plan", lambda fit, outputs: plan(fit, outputs) and False)
    found = WorkingSets(problem()).solve(1.0, tol=TOL, max_iter=100)
    assert all(made)
    assert_allclose(found.coef, expected.coef, atol=1e-8)


def test_what_does_not_fit_is_left_to_others():
    assert WorkingSets(problem(budget=50_000)).solve(1.0, tol=TOL, max_iter=100) is None
    assert WorkingSets(problem(budget=1_600_000)).solve(1.0, tol=TOL, max_iter=100) is None


def test_a_large_C_is_left_to_the_active_set(monkeypatch):
    monkeypatch.setattr(working_sets, "_FACTORED_SUPPORT", 10)
    monkeypatch.setattr(working_sets, "_FEWEST", 5)
    monkeypatch.setattr(working_sets, "_MOST", 5)
    assert WorkingSets(problem()).solve(1e5, tol=TOL, max_iter=500) is None
    found = solvers.solve_hinge(problem(m=120), 1e5, tol=TOL, max_iter=500)
    assert found.solver == "active-set" and found.converged


def test_too_few_steps_are_said():
    found = WorkingSets(problem()).solve(1.0, tol=TOL, max_iter=1)
    assert found is not None and not found.converged and found.iterations == 1
    assert "max_iter" in found.advice and found.residual > TOL


def test_classes_side_by_side_give_the_same(monkeypatch):
    one_by_one = WorkingSets(problem()).solve(1.0, tol=TOL, max_iter=100)
    monkeypatch.setattr(working_sets, "_IN_THREADS", 10)
    assert_array_equal(
        WorkingSets(problem()).solve(1.0, tol=TOL, max_iter=100).coef, one_by_one.coef
    )


@pytest.mark.parametrize("A", [0.0, 2.0, np.inf])
def test_left_out_residuals_are_those_of_the_active_set(A):
    found = WorkingSets(problem(A)).solve(1.0, tol=TOL, max_iter=100, left_out=np.inf)
    other = ActiveSet(problem(A)).solve(1.0, tol=1e-12, max_iter=100, left_out=True)
    assert found.left_out is not None and other.left_out is not None
    assert_allclose(found.left_out, other.left_out, atol=1e-6)


@pytest.mark.parametrize("C", [0.01, 1.0, 10.0])
def test_the_error_rate_of_left_out_rows_is_that_of_refitting(C):
    X, Y, weight = rows(100)
    y = Y[:, :1]
    whole = DualProblem(X, KERNEL, y, weight, 0.0, 10**9, lambda name: nullcontext())
    found = solvers.solve_hinge(whole, C, tol=TOL, max_iter=200, left_out=True)
    refitted = np.empty(100)
    for i in range(100):
        keep = np.arange(100) != i
        part = DualProblem(
            X[keep], KERNEL, y[keep], weight[keep], 0.0, 10**9, lambda name: nullcontext()
        )
        model = solvers.solve_hinge(part, C, tol=TOL, max_iter=200)
        refitted[i] = (KERNEL.block(X[i : i + 1], X[keep]) @ model.coef + model.b)[0, 0]
    wrong = y[:, 0] * (y - found.left_out)[:, 0] < 0
    assert abs(np.mean(wrong) - np.mean(y[:, 0] * refitted < 0)) <= 0.02
    assert np.median(np.abs((y - found.left_out)[:, 0] - refitted)) < 1e-6  # the support stays


def test_several_C_share_the_low_rank_and_the_best_is_taken(monkeypatch):
    values = np.array([10.0, 0.01, 1.0])
    made, plain = [], Nystrom.__init__

    def watch(low_rank, *args):
        made.append(1)
        plain(low_rank, *args)

    monkeypatch.setattr(Nystrom, "__init__", watch)
    best = solvers.solve_hinge(problem(), values, tol=TOL, max_iter=100)
    assert len(made) == 1 and best.solver == "working-set"
    other = solvers.solve_active_set(problem(), values, tol=TOL, max_iter=100)
    assert best.C == other.C == values[np.argmin(best.curve)]
    assert_allclose(best.curve, other.curve, rtol=1e-6)


@pytest.mark.parametrize("solve", [solvers.solve_active_set, solvers.solve_hinge])
@pytest.mark.parametrize(
    ("losses", "first", "last"),  # the C that is taken where 1 comes first, and where 8 does
    [
        ([0.5, 0.5 - 1e-8, 0.5 - 2e-8, 0.6], 1.0, 4.0),  # three differ by rounding
        ([0.6, 0.5, 0.5 - 1e-8, 0.5 - 2e-8], 2.0, 8.0),
        ([0.5, 0.5 - 4e-7, 0.5 - 8e-7, 0.6], 2.0, 4.0),  # two do
        ([np.nan, 0.4, np.nan, 0.3], 8.0, 8.0),
        ([np.nan, np.nan, np.nan, np.nan], 1.0, 8.0),
    ],
)
def test_rounding_does_not_choose_C(monkeypatch, losses, first, last, solve):
    values = np.array([1.0, 2.0, 4.0, 8.0])
    by_C = dict(zip(values.tolist(), losses, strict=True))
    monkeypatch.setattr(solvers, "left_out_loss", lambda problem, solution: by_C[solution.C])
    for given, C in ((values, first), (values[::-1], last)):
        best = solve(problem(), given, tol=1e-4, max_iter=100)
        assert best.C == C and best.error == pytest.approx(by_C[C], nan_ok=True)
        assert_array_equal(best.curve, [by_C[value] for value in given])


def test_where_working_sets_give_up_the_active_set_goes_on(monkeypatch):
    plain = WorkingSets.solve

    def small_only(sets, C, **options):
        return plain(sets, C, **options) if C < 1 else None

    monkeypatch.setattr(WorkingSets, "solve", small_only)
    values = np.array([0.1, 1.0, 5.0])
    best = solvers.solve_hinge(problem(), values, tol=TOL, max_iter=100)
    other = solvers.solve_active_set(problem(), values, tol=TOL, max_iter=100)
    assert_allclose(best.curve, other.curve, rtol=1e-6)


def test_a_precomputed_matrix_gives_the_same():
    plain = problem()
    expected = WorkingSets(plain).solve(1.0, tol=TOL, max_iter=100)
    K = KERNEL.block(plain.X, plain.X)
    given = DualProblem(
        K,
        Kernel("precomputed"),
        plain.Y,
        plain.weight,
        0.0,
        10**9,
        lambda name: nullcontext(),
    )
    found = WorkingSets(given).solve(1.0, tol=TOL, max_iter=100)
    assert_allclose(found.coef, expected.coef, atol=1e-8)


def test_zero_rows_of_a_product_need_no_kernel_values():
    X, Y, _ = rows(60)
    V = np.where(np.arange(60)[:, None] % 2, Y, 0.0)
    matrix = KernelMatrix(X, KERNEL)
    assert_allclose(matrix.product(V), KERNEL.block(X, X) @ V)
    assert_allclose(matrix.product(V[:, 0]), KERNEL.block(X, X) @ V[:, 0])
