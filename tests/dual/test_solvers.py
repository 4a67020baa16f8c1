"""The table of solvers: every name solves, and what a solver cannot do is refused in one place."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from leansvm.dual import DualProblem, solvers
from leansvm.dual.active_set import ActiveSet
from leansvm.dual.cholesky import solve_cholesky
from leansvm.dual.solvers import SOLVERS, explain_failure, solve_dual
from leansvm.kernels import Kernel
from leansvm.rows import Block, class_numbers, row_hashes

rng = np.random.default_rng(0)
M = 80
X = rng.normal(size=(M, 3))
Y = np.where(np.column_stack([X[:, 0] * X[:, 1], X[:, 2]]) > 0, 1.0, -1.0)
WEIGHT = rng.uniform(0.5, 2.0, M)
EVERY = [(family, name) for family in SOLVERS for name in SOLVERS[family]]


def problem(A=0.0, kernel="rbf", Y=Y):
    return DualProblem(
        X, Kernel(kernel, gamma=0.7), Y, WEIGHT, A, 10**9, lambda name: nullcontext()
    )


def run(family, name, task=None, C=2.0, **options):
    options = {"criterion": "loo", "left_out": False, "tol": 1e-8, "max_iter": 5000, **options}
    return solve_dual(family, name, problem() if task is None else task, C, **options)


def test_names_are_what_estimators_take():
    assert set(SOLVERS["hinge"]) == {"auto", "active-set", "newton", "smo"}
    assert set(SOLVERS["lssvm"]) == {
        *("auto", "cholesky", "cg", "smo", "sumt", "substitution", "penalty-flow")
    }


@pytest.mark.parametrize("family, name", EVERY)
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_every_solver_of_a_family_gives_the_same_solution(family, name, kernel):
    reference = run(family, "cholesky" if family == "lssvm" else "active-set", problem(0.0, kernel))
    task = problem(0.0, kernel)
    found = run(family, name, task)
    assert found.converged and found.advice == ""
    assert found.C == 2.0 and found.bytes > 0 == task.bytes
    K = task.kernel.block(X, X)
    assert_allclose(K @ found.coef + found.b, K @ reference.coef + reference.b, atol=1e-5)
    assert found.objective == pytest.approx(reference.objective, rel=1e-6)
    assert 0 <= found.gap <= 1e-6 * found.objective
    if family == "hinge":
        assert set(found.details) == {"violation", "rows_kept_out", "factor"}
        assert found.residual == found.details["violation"]
        assert (found.weights is None) == (kernel == "rbf")
        if found.weights is not None:
            assert_allclose(found.weights, found.coef.T @ X, atol=1e-9)


def test_substitution_is_smo_by_another_name():
    one, other = run("lssvm", "smo"), run("lssvm", "substitution")
    assert (one.solver, other.solver) == ("smo", "substitution")
    assert_array_equal(one.coef, other.coef)


@pytest.mark.parametrize("name", ["auto", "cholesky"])
def test_lssvm_chooses_C_and_leaves_rows_out(name):
    candidates = np.array([0.1, 1.0, 10.0])
    found = run("lssvm", name, C=candidates)
    assert found.solver == "eigen" and found.C in candidates
    assert candidates[np.argmin(found.curve)] == found.C and found.error == found.curve.min()
    exact = solve_cholesky(problem(), found.C, left_out=True)
    assert_allclose(found.left_out, exact.left_out, rtol=1e-6)
    assert found.objective == pytest.approx(exact.objective)
    single = run("lssvm", name, C=found.C, left_out=True)
    assert single.solver == "cholesky" and single.curve is None
    assert_allclose(single.left_out, exact.left_out, rtol=1e-6)


@pytest.mark.parametrize("name", ["auto", "active-set"])
def test_hinge_chooses_C_leaves_rows_out_and_bounds_the_support(name):
    candidates = np.array([10.0, 0.1, 1.0])
    found = run("hinge", name, C=candidates)
    assert candidates[np.argmin(found.curve)] == found.C and found.error == found.curve.min()
    slack = np.maximum(Y * found.left_out, 0.0)
    assert found.error == pytest.approx(np.sum(WEIGHT @ slack**2) / WEIGHT.sum())
    bounded = run("hinge", name, problem(Y=Y[:, :1]), max_support=5)
    assert np.count_nonzero(bounded.coef) <= 5 and not bounded.converged
    assert bounded.details["rows_kept_out"] > 0
    assert "max_support=5 is not enough" in bounded.advice


NO_CHOICE = [pair for pair in EVERY if "left_out" not in SOLVERS[pair[0]][pair[1]].takes]


@pytest.mark.parametrize("family, name", NO_CHOICE)
def test_what_needs_a_factor_is_refused(family, name):
    text = {"lssvm": "needs a factorisation of the kernel matrix", "hinge": "is for one C"}
    with pytest.raises(ValueError, match=text[family]):
        run(family, name, C=np.array([1.0, 2.0]))


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("family, name", NO_CHOICE)
def test_solvers_without_left_out_residuals_leave_out_folds(family, name, shared, monkeypatch):
    """Every row is in one of five folds; its residual is that of a fit without the fold."""
    monkeypatch.setattr("leansvm.dual.left_out._MOST_ROWS", 0)  # as if there were many rows
    whole, other = problem(), {"lssvm": "cholesky", "hinge": "active-set"}[family]
    if not shared:  # no room for a kernel matrix beside what the solver needs
        whole = replace(whole, budget=run(family, name).bytes + 2 * 8 * M * M - 1)
    kernels, values = [], solvers.values_between
    monkeypatch.setattr(
        solvers,
        "values_between",
        lambda p, *rows: kernels.append(p.kernel.name) or values(p, *rows),
    )
    left_out = run(family, name, whole, left_out=True, tol=1e-9).left_out
    assert np.isfinite(left_out).all()
    assert set(kernels) == {"precomputed" if shared else "rbf"}
    fold = np.empty(len(Y), int)
    keys = row_hashes(Block(0, len(Y), whole.X, whole.Y, None))
    fold[np.lexsort([keys, class_numbers(whole.Y)])] = np.arange(len(Y)) % 5
    rest, out = np.flatnonzero(fold != 2), np.flatnonzero(fold == 2)
    part = replace(problem(), X=whole.X[rest], Y=whole.Y[rest], weight=whole.weight[rest])
    found = run(family, other, part, tol=1e-9)
    values = whole.kernel.block(whole.X[out], whole.X[rest]) @ found.coef + found.b
    assert_allclose(left_out[out], whole.Y[out] - values, atol=1e-4)


@pytest.mark.parametrize("name", ["newton", "smo"])
def test_solvers_without_a_bound_of_the_support_say_so(name):
    with pytest.raises(ValueError, match=f"solver='{name}' is for one C.*max_support"):
        run("hinge", name, max_support=9)


@pytest.mark.parametrize("name", ["sumt", "substitution", "penalty-flow"])
@pytest.mark.parametrize("A", [1.0, np.inf])
def test_solvers_of_the_free_bias_say_so(name, A):
    with pytest.raises(ValueError, match=r"free bias.*bias_penalty=0"):
        run("lssvm", name, problem(A))


def test_solvers_of_the_host_refuse_rows_elsewhere():
    xp = pytest.importorskip("array_api_strict")
    task = replace(problem(), X=xp.asarray(X))
    with pytest.raises(ValueError, match="solver='smo' needs rows in the memory of the host"):
        run("lssvm", "smo", task)
    assert run("lssvm", "cg", task).converged


@pytest.mark.parametrize("family, name", EVERY)
def test_a_kernel_that_is_not_positive_definite_is_named(family, name):
    task = replace(problem(), X=-np.eye(M), kernel=Kernel("precomputed"))
    with pytest.raises(ValueError, match=r"kernel='precomputed'.*not positive definite"):
        run(family, name, task, C=1e3)


def test_a_failed_factorisation_is_explained():
    with (
        pytest.raises(ValueError, match=r"kernel='rbf'.*\(row 3\)"),
        explain_failure(Kernel("rbf")),
    ):
        raise np.linalg.LinAlgError("row 3")


@pytest.mark.parametrize("family, name", EVERY)
def test_too_few_iterations_bring_advice(family, name):
    found = run(family, name, problem(kernel="linear"), C=1e5, tol=1e-14, max_iter=1)
    assert found.converged == (found.solver == "cholesky")
    assert found.advice == "" if found.converged else "(tol=1e-14)" in found.advice


def test_an_active_set_goes_on_from_one_C_to_the_next_and_to_more_rows():
    task = replace(problem(), X=X[:60], Y=Y[:60], weight=WEIGHT[:60])
    solver = ActiveSet(task, keep=True)
    solver.solve(1.0, tol=1e-10, max_iter=100)
    solver.extend(X[60:], Y[60:], WEIGHT[60:])
    found = solver.solve(2.0, tol=1e-10, max_iter=100)
    assert_allclose(found.coef, run("hinge", "active-set", tol=1e-10).coef, atol=1e-8)
    given = replace(problem(), X=X @ X.T, kernel=Kernel("precomputed"))
    with pytest.raises(ValueError, match="rows cannot be added"):
        ActiveSet(given).extend(X, Y, WEIGHT)
