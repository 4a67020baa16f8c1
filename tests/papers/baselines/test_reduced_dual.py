"""RRD-LSSVM: the LS-SVM on random rows."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_iris, make_moons

from leansvm import LSSVC
from leansvm.papers.baselines import RandomReducedDualLSSVC


def test_is_the_dense_model_on_the_drawn_rows():
    X, y = load_iris(return_X_y=True)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(X))
    model = RandomReducedDualLSSVC(10.0, gamma=0.4, n_basis=40, random_state=0)
    model.fit(X, y, sample_weight=weight)
    B = model.support_
    assert len(np.unique(B)) == 40
    dense = LSSVC(10.0, gamma=0.4).fit(X[B], y[B], sample_weight=weight[B])
    assert_allclose(model.dual_coef_, dense.dual_coef_, atol=1e-10)
    assert_allclose(model.intercept_, dense.intercept_)
    assert_allclose(model.decision_function(X), dense.decision_function(X), atol=1e-10)
    assert_allclose(model.objective_, dense.objective_)


def test_objective_is_a_lower_bound_that_rises_with_the_rows():
    X, y = make_moons(200, noise=0.3, random_state=0)
    dense = LSSVC(5.0, gamma=1.0).fit(X, y)
    objectives = []
    for n_basis in (20, 80, 199, 200):
        model = RandomReducedDualLSSVC(5.0, gamma=1.0, n_basis=n_basis, random_state=1).fit(X, y)
        objectives.append(model.objective_)
    assert np.all(np.diff(objectives) > 0)
    assert_allclose(objectives[-1], dense.objective_)


def test_drawing_is_nested_and_depends_on_the_seed():
    X, y = make_moons(300, noise=0.3, random_state=0)
    draw = lambda n, seed: (  # noqa: E731
        RandomReducedDualLSSVC(n_basis=n, random_state=seed).fit(X, y).support_
    )
    assert_array_equal(draw(100, 0)[:30], draw(30, 0))
    assert not np.array_equal(draw(100, 0), draw(100, 1))
    assert len(draw(0.2, 0)) == 60


def test_gamma_comes_from_all_rows():
    X, y = make_moons(300, noise=0.3, random_state=0)
    assert_allclose(
        RandomReducedDualLSSVC(n_basis=10, random_state=0).fit(X, y).gamma_, 1 / (2 * X.var())
    )
