"""Errors of all sizes of a nested basis against refitting without every row."""

from types import SimpleNamespace

import array_api_strict
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.metrics.pairwise import rbf_kernel

import leansvm
from leansvm.basis.growing import grow
from leansvm.kernels import Kernel
from leansvm.ridge import criteria, nested
from leansvm.ridge.bracket import ChosenC
from leansvm.ridge.criteria import left_out_errors
from leansvm.ridge.equations import model_at, normal_equations
from leansvm.ridge.nested import choose_size, start_nested
from leansvm.ridge.sums import add_up, first_shift
from leansvm.rows import MemoryBlocks

rng = np.random.default_rng(0)
M = 60
X = rng.normal(size=(M, 3))
Y = np.column_stack([np.sin(X[:, 0]) + 100, X[:, 1]])
WEIGHT = rng.uniform(0.5, 2.0, size=M)
CHOSEN = rng.permutation(M)[:16]
ROWS = np.concatenate([CHOSEN, CHOSEN[:2]])  # two of them twice
KERNEL = Kernel("rbf", gamma=0.4)
PENALTIES = {"free": 0.0, "penalised": 0.7, "absent": np.inf}
every_bias = pytest.mark.parametrize("penalty", PENALTIES.values(), ids=PENALTIES)
every_weight = pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])


def fit_of(penalty, weight, *, kept=True, rows=X, sizes=(6, 18), indices=None):
    blocks = MemoryBlocks(rows, Y, weight, tile_rows=17)
    budget = 2**30 if kept else 0
    fit = start_nested(blocks, KERNEL, blocks.take(ROWS), penalty, budget, indices)
    for size in sizes:
        fit.extend(size)
    return fit


def left_out_error(points, C, penalty, weight, counted=range(M)):
    """Mean squared error of rows left out, by solving without each of them."""
    s = np.ones(M) if weight is None else weight
    design = np.column_stack([rbf_kernel(X, points, gamma=0.4), np.ones(M)])
    ridge = np.zeros((len(points) + 1,) * 2)
    ridge[:-1, :-1] = rbf_kernel(points, gamma=0.4) / C
    if penalty == np.inf:
        design, ridge = design[:, :-1], ridge[:-1, :-1]
    else:
        ridge[-1, -1] = penalty / C
    total = 0.0
    for i in counted:
        w = np.where(np.arange(M) == i, 0.0, s)
        coef = np.linalg.solve(
            design.T @ (w[:, None] * design) + ridge, design.T @ (w[:, None] * Y)
        )
        total += s[i] * np.sum((Y[i] - design[i] @ coef) ** 2)
    return total / s[list(counted)].sum()


@every_bias
@every_weight
def test_rows_that_may_become_points_are_not_counted(penalty, weight):
    fit = fit_of(penalty, weight, indices=ROWS)
    points, others = X[ROWS[fit.features.kept]], np.setdiff1d(np.arange(M), ROWS)
    expected = [left_out_error(points[:k], 3.0, penalty, weight, others) for k in (6, 16)]
    assert_allclose(fit.errors_of_sizes(np.array([6, 16]), 3.0), expected, rtol=1e-8)
    assert_allclose(fit.best_C(np.array([0.1, 3.0])).curve[1], expected[-1], rtol=1e-8)


@every_bias
@every_weight
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "computed"])
def test_errors_of_every_size_are_those_of_refitting(penalty, weight, kept):
    fit = fit_of(penalty, weight, kept=kept)
    assert len(fit.features.kept) == 16  # copies are dropped
    sizes = np.array([4, 6, 10, 16])
    expected = [left_out_error(X[ROWS[fit.features.kept[:k]]], 3.0, penalty, weight) for k in sizes]
    assert_allclose(fit.errors_of_sizes(sizes, 3.0), expected, rtol=1e-8)
    assert_allclose(fit.best_C(np.array([0.1, 3.0])).curve[1], expected[-1], rtol=1e-8)


@every_bias
@every_weight
def test_sums_of_a_prefix_are_those_of_its_points(penalty, weight):
    fit = fit_of(penalty, weight)
    features, found = fit.cut(10)
    blocks = fit.blocks
    expected = add_up(blocks, features, first_shift(blocks, features, penalty == 0))
    a, b = (normal_equations(sums, features, penalty == 0) for sums in (found, expected))
    assert_allclose(a.matrix(), b.matrix(), rtol=1e-10, atol=1e-10)
    for name in ("c", "yy", "mean_phi", "mean_y"):
        assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-10, atol=1e-10)


def test_growing_in_steps_changes_nothing():
    everything = np.array([16])
    for penalty in PENALTIES.values():
        at_once = fit_of(penalty, WEIGHT, sizes=(18,))
        in_steps = fit_of(penalty, WEIGHT, sizes=(2, 5, 9, 18))
        # pivoting within a step changes the order, not the span
        expected = at_once.errors_of_sizes(everything, 2.0)
        assert_allclose(in_steps.errors_of_sizes(everything, 2.0), expected, rtol=1e-8)


@every_bias
def test_other_arrays_give_the_same_errors(penalty):
    strict = fit_of(penalty, WEIGHT, rows=array_api_strict.asarray(X))
    host = fit_of(penalty, WEIGHT)
    sizes = np.array([4, 16])
    assert_allclose(strict.errors_of_sizes(sizes, 3.0), host.errors_of_sizes(sizes, 3.0), rtol=1e-9)
    candidates = np.logspace(-3, 3, 7)
    strict, host = strict.best_C(candidates), host.best_C(candidates)
    assert_allclose(strict.curve, host.curve, rtol=1e-9)


def test_the_lean_size_is_nearly_as_good_as_the_best():
    blocks = MemoryBlocks(X, Y, tile_rows=17)
    fit = start_nested(blocks, KERNEL, X[ROWS], 0.0, 2**30)
    size, compared, _ = choose_size(fit, np.logspace(-3, 3, 9))
    errors = compared["errors"]
    assert size in compared["sizes"]
    chosen = errors[compared["sizes"] == size][0]
    assert chosen <= 1.005 * errors.min()
    assert np.all(errors[compared["sizes"] < size] > 1.005 * errors.min())


def test_the_best_of_the_sizes_is_taken_where_a_smaller_one_was_better():
    class Dropping:  # half of the points after the first sixty depend on others
        rows, features = np.empty((120, 1)), SimpleNamespace(size=0)
        indices = None

        def extend(self, size):
            self.features.size = 60 if size == 60 else 90

        def best_C(self, candidates, near):
            return ChosenC(self.features.size / 60, 1.0)

        def errors_of_sizes(self, sizes, C, known):
            return np.array([{45: 1.4, 64: 1.1, 90: 1.5}[int(size)] for size in sizes])

    assert choose_size(Dropping(), np.array([1.0, 10.0]))[0] == 64


@every_bias
@every_weight
def test_rows_that_judge_give_the_errors_of_refitting_without_each_of_them(
    monkeypatch, penalty, weight
):
    monkeypatch.setattr(nested, "_ROWS_ALL_LEFT_OUT", 10)
    monkeypatch.setattr(criteria, "_EVALUATION_ROWS", 25)
    monkeypatch.setattr(criteria, "ENOUGH", 10)
    fit = fit_of(penalty, weight, indices=ROWS)
    drawn = fit.evaluation.drawn
    assert fit.evaluation.outside and len(drawn.rows) <= 25
    assert not np.isin(drawn.rows, ROWS).any()
    points, expected = X[ROWS[fit.features.kept]], []
    for k in (6, 16):
        alone = [left_out_error(points[:k], 3.0, penalty, weight, [i]) for i in drawn.rows]
        expected.append(drawn.weight @ alone / drawn.weight.sum())
    assert_allclose(fit.errors_of_sizes(np.array([6, 16]), 3.0), expected, rtol=1e-8)
    found = fit.best_C(np.array([3.0]), 3.0)
    assert_allclose(found.error, expected[-1], rtol=1e-8)
    again = fit.errors_of_sizes(np.array([6, 16]), 3.0, found)  # by the factor that is known
    assert_allclose(again, expected, rtol=1e-8)
    features, sums = fit.cut(6, keep=False)
    equations = normal_equations(sums, features, penalty == 0)
    cut = left_out_errors(fit.evaluation.blocks, equations, model_at(equations, 3.0))
    assert_allclose(cut, expected[:1], rtol=1e-8)
    fit = fit_of(penalty, weight, indices=ROWS)
    fit.errors_of_sizes(np.array([6, 16]), 3.0)
    assert np.isfinite(fit.error_of_difference(0, 1))


def test_automatic_size_is_lean_where_little_is_to_learn_and_large_where_much_is():
    rows = np.random.default_rng(1).normal(size=(2500, 2))  # too many to try all as points
    easy, hard = rows[:, 0] + rows[:, 1], np.sin(6 * rows[:, 0]) * np.cos(6 * rows[:, 1])
    options = {"kernel": "rbf", "gamma": 1.0, "random_state": 0}
    small = leansvm.SparseLSSVR(**options).fit(rows, easy + 0.5 * rng.normal(size=2500))
    large = leansvm.SparseLSSVR(**{**options, "gamma": 10.0}).fit(rows, hard)
    assert small.n_support_ < 300 < 400 < large.n_support_


@pytest.mark.parametrize(
    ("errors", "size"),
    [
        ({50: 1.0, 100: 0.5, 200: 0.499, 400: 0.1}, 100),
        ({50: 1.0, 100: 0.5, 200: np.nan, 400: 0.1}, 100),
        ({50: np.nan, 100: np.nan}, 50),
        ({50: np.inf, 100: 1.0, 200: 0.5, 400: 0.1}, 400),
    ],
)
def test_growth_ends_where_the_error_hardly_falls_or_is_no_number(errors, size):
    def solve(size):
        found = SimpleNamespace(error=errors[size])
        return SimpleNamespace(features=SimpleNamespace(size=size), solution=found)

    assert grow(solve, 50, 400).features.size == size


@pytest.mark.parametrize(("seed", "noise"), [(1, 1.0), (2, 0.3), (2, 1.0)])
def test_few_rows_are_all_points_where_rows_outside_of_a_lean_basis_say_so(seed, noise):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(500, 6))
    y = np.abs(X).sum(axis=1) + np.sin(3 * X[:, 0]) * X[:, 1] + noise * rng.normal(size=500)
    given = {"kernel": "laplacian", "gamma": "scale", "random_state": 0}
    lean = leansvm.SparseLSSVR(**given).fit(X, y)
    every = leansvm.SparseLSSVR(n_basis=499, **given).fit(X, y)
    outside = np.setdiff1d(np.arange(500), lean.support_)
    if not len(outside):
        return
    errors = [np.square(model.loo_residuals_[outside]).mean() for model in (lean, every)]
    assert errors[0] <= 1.02 * errors[1]
