"""Line search and certificate of the squared-hinge problem, against brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from leansvm.dual._hinge import Hinge, Point


def random_case(seed, m=25, A=0.0, C=3.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 3))
    K = X @ X.T
    y = np.where(rng.random(m) < 0.5, 1.0, -1.0)
    hinge = Hinge(y, C * rng.uniform(0.5, 2.0, m), A)

    def point():
        beta, b = rng.normal(size=m), float(rng.normal())
        return Point(beta, 0.0 if np.isinf(A) else b, K @ beta + (0.0 if np.isinf(A) else b))

    return K, hinge, point(), point()


@given(st.integers(0, 500), st.sampled_from([0.0, 0.7, np.inf]), st.sampled_from([1e-3, 3.0, 1e6]))
@settings(max_examples=60, deadline=None)
def test_the_step_minimises_the_objective_on_the_line(seed, A, C):
    _, hinge, start, end = random_case(seed, A=A, C=C)
    if hinge.objective(start.towards(end, 1e-9)) >= hinge.objective(start):
        end = start.towards(end, -1.0)
    t = hinge.exact_step(start, end)

    def along(t):
        return hinge.objective(start.towards(end, t))

    best = minimize_scalar(along, bounds=(0, max(2 * t, 1e-6)), method="bounded")
    assert along(t) <= best.fun * (1 + 1e-10)
    assert along(t) <= along(t * (1 + 1e-4)) + 1e-12 * abs(along(t))
    assert along(t) <= along(t * (1 - 1e-4)) + 1e-12 * abs(along(t))


def test_a_step_up_the_hill_is_not_taken():
    _, hinge, start, end = random_case(1)
    if hinge.objective(start.towards(end, 1e-9)) < hinge.objective(start):
        end = start.towards(end, -1.0)
    assert hinge.exact_step(start, end) == 0.0


def test_a_part_of_the_rows_counts_alone():
    _, hinge, start, end = random_case(2)
    rows = np.arange(10)
    part = Hinge(hinge.y, np.where(np.arange(25) < 10, hinge.cost, 1e-300), 0.0)
    end = start.towards(end, -1.0)
    assert hinge.exact_step(start, end, rows) == pytest.approx(
        part.exact_step(start, end), rel=1e-9
    )


@given(st.integers(0, 500), st.sampled_from([0.0, 0.7, np.inf]))
@settings(max_examples=60, deadline=None)
def test_the_dual_is_below_the_primal(seed, A):
    K, hinge, start, end = random_case(seed, A=A)
    beta = hinge.feasible_dual(end.beta)
    assert np.all(hinge.y * beta >= 0)
    if A == 0:
        assert abs(beta.sum()) <= 1e-12 * np.abs(beta).sum()
    assert hinge.dual_objective(beta, K @ beta) <= hinge.objective(start) * (1 + 1e-12)
