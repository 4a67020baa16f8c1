"""basis_path: every prefix is the model fitted on those rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn import get_config
from sklearn.metrics.pairwise import rbf_kernel

from leansvm.model_selection import basis_path
from leansvm.ridge.equations import models_of_C, normal_equations
from tests.plain import PlainSparseLSSVC, PlainSparseLSSVR

rng = np.random.default_rng(6)
M = 60
X = rng.normal(size=(M, 3))
Z = rng.normal(size=(40, 3))
TWO = np.where(X[:, 0] + 0.5 * rng.normal(size=M) > 0, "yes", "no")
TWO_Z = np.where(Z[:, 0] > 0, "yes", "no")
THREE = np.digitize(X[:, 0] + 0.3 * rng.normal(size=M), [-0.5, 0.5])
THREE_Z = np.digitize(Z[:, 0], [-0.5, 0.5])
TARGET = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.normal(size=M)
TARGET_Z = np.sin(2 * Z[:, 0]) + Z[:, 1] ** 2
TARGETS = np.column_stack([TARGET, X[:, 2] - 30])
TARGETS_Z = np.column_stack([TARGET_Z, Z[:, 2] - 30])
WEIGHT = rng.uniform(0.3, 2.0, size=M)
CASES = {
    "two": (PlainSparseLSSVC, TWO, TWO_Z),
    "three": (PlainSparseLSSVC, THREE, THREE_Z),
    "one target": (PlainSparseLSSVR, TARGET, TARGET_Z),
    "two targets": (PlainSparseLSSVR, TARGETS, TARGETS_Z),
}
BIASES = {"free": {}, "penalised": {"bias_penalty": 0.3}, "absent": {"fit_intercept": False}}
NESTED = ["random", "pivoted-cholesky", "random-pivoted-cholesky", "backfitting", "csi"]


def check_path(estimator, y, y_Z, weight, sizes=(1, 4, 9), **parameters):
    model = estimator(gamma=0.5, n_basis=9, random_state=0, **parameters)
    path = basis_path(model, X, y, sample_weight=weight, X_score=Z, y_score=y_Z)
    assert not hasattr(model, "support_")  # cloned, not fitted
    assert_array_equal(path.sizes, np.arange(1, 10))
    for name in ("objective", "gcv", "loo", "score", "support"):
        assert len(getattr(path, name)) == 9, name
    assert path.n_rows == M
    fitted = estimator(gamma=0.5, n_basis=9, random_state=0, **parameters)
    fitted.fit(X, y, sample_weight=weight)
    assert fitted.C_ == path.C
    assert_array_equal(np.sort(path.support), np.sort(fitted.support_))
    others = {k: v for k, v in parameters.items() if k not in ("C", "basis")}
    for k in sizes:
        prefix = estimator(path.C, gamma=0.5, basis=path.support[:k], **others)
        prefix.fit(X, y, sample_weight=weight)
        assert_allclose(path.objective[k - 1], prefix.objective_, rtol=1e-8)
        assert_allclose(path.gcv[k - 1], gcv_of(prefix), rtol=1e-7)
        assert_allclose(path.score[k - 1], prefix.score(Z, y_Z), rtol=1e-8)
        assert_allclose(path.loo[k - 1], leave_one_out(prefix, path, k, y, weight), rtol=1e-6)


def gcv_of(model):
    """Generalised cross-validation of a fitted model, from its sums."""
    free = model._bias_penalty() == 0
    equations = normal_equations(model._sums, model._features, free)
    return models_of_C(equations, np.array([model.C_])).gcv(equations)[0]


def leave_one_out(model, path, k, y, weight):
    """Mean squared error of the rows left out, by refitting without each of them."""
    targets = np.asarray(y).reshape(M, -1)
    if isinstance(model, PlainSparseLSSVC):
        targets = np.where(targets == model.classes_, 1.0, -1.0)
        targets = targets[:, 1:] if len(model.classes_) == 2 else targets
    by_class = model.class_weight if isinstance(model, PlainSparseLSSVC) else None
    s = np.ones(M) if weight is None else weight
    if by_class:
        s = s * np.array([by_class.get(label, 1.0) for label in np.asarray(y)])
    K = rbf_kernel(X, X[path.support[:k]], gamma=0.5)
    design, ridge = np.column_stack([K, np.ones(M)]), np.zeros((k + 1, k + 1))
    ridge[:k, :k] = K[path.support[:k]] / path.C
    ridge[k, k] = model.bias_penalty / path.C
    if not model.fit_intercept:
        design, ridge = K, ridge[:k, :k]
    total = 0.0
    for i in range(M):
        rest = np.where(np.arange(M) == i, 0.0, s)[:, None] * design
        beta = np.linalg.solve(rest.T @ design + ridge, rest.T @ targets)
        total += s[i] * np.sum((targets[i] - design[i] @ beta) ** 2)
    return total / s.sum()


@pytest.mark.parametrize(("estimator", "y", "y_Z"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("bias", BIASES.values(), ids=BIASES)
def test_every_prefix_is_a_fitted_model(estimator, y, y_Z, bias):
    for weight in (None, WEIGHT):
        check_path(estimator, y, y_Z, weight, C=2.0, basis="pivoted-cholesky", **bias)


@pytest.mark.parametrize("basis", NESTED)
def test_every_nested_selector(basis):
    check_path(PlainSparseLSSVC, TWO, TWO_Z, WEIGHT, C=1.0, basis=basis)


@pytest.mark.parametrize("C", ["gcv", "loo"])
def test_the_chosen_C_is_that_of_the_whole_basis(C):
    check_path(PlainSparseLSSVR, TARGET, TARGET_Z, WEIGHT, C=C, basis="pivoted-cholesky")


def test_given_rows_are_a_path_in_their_order():
    rows = np.array([33, 2, 50, 7])
    path = basis_path(PlainSparseLSSVR(1.0, basis=rows), X, TARGET)
    assert_array_equal(path.support, rows)
    assert path.score is None
    assert (np.diff(path.objective) <= 0).all()


def test_given_points_are_refused():
    with pytest.raises(ValueError, match="basis: a path needs rows of X as basis"):
        basis_path(PlainSparseLSSVR(1.0, basis=X[:4]), X, TARGET)


@pytest.mark.parametrize("basis", ["entropy", "medoids"])
def test_selectors_that_are_not_nested_are_refused(basis):
    with pytest.raises(ValueError, match="nested"):
        basis_path(PlainSparseLSSVC(1.0, basis=basis, n_basis=5), X, TWO)


def test_class_weights():
    weights = {"no": 4.0, "yes": 1.0}
    check_path(PlainSparseLSSVC, TWO, TWO_Z, WEIGHT, C=1.0, basis="csi", class_weight=weights)


def test_dependent_points_are_skipped():
    rows = np.array([4, 5, 4 + 30, 6])
    twice = X.copy()
    twice[34] = twice[4]
    path = basis_path(PlainSparseLSSVR(1.0, gamma=0.5, basis=rows), twice, TARGET)
    assert_array_equal(path.support, [4, 5, 6])
    assert_array_equal(path.sizes, [1, 2, 3])
    linear = PlainSparseLSSVR(1.0, "linear", basis="random", n_basis=20, random_state=0)
    assert_array_equal(basis_path(linear, X, TARGET).sizes, [1, 2, 3])


def test_a_numerically_dependent_basis_ends_at_the_fitted_model():
    for seed in range(10):
        model = PlainSparseLSSVR(1e6, gamma=1e-3, n_basis=50, random_state=seed)
        path = basis_path(model, X, TARGET)
        assert_allclose(path.objective[-1], model.fit(X, TARGET).objective_, rtol=1e-6)
        assert (np.diff(path.objective) <= 1e-9 * path.objective[0]).all()


def test_sparse_and_precomputed_rows():
    holes = np.where(np.abs(X) < 0.5, 0.0, X)
    model = PlainSparseLSSVC(1.0, gamma=0.5, basis="pivoted-cholesky", n_basis=6)
    scored = {"X_score": Z, "y_score": THREE_Z}
    dense = basis_path(model, holes, THREE, **scored)
    csr = sparse.csr_array(holes)
    other = basis_path(model, csr, THREE, X_score=sparse.csr_array(Z), y_score=THREE_Z)
    K, at = rbf_kernel(holes, gamma=0.5), rbf_kernel(Z, holes, gamma=0.5)
    model.set_params(kernel="precomputed")
    third = basis_path(model, K, THREE, X_score=at, y_score=THREE_Z)
    for path in (other, third):
        assert_array_equal(path.support, dense.support)
        for name in ("objective", "gcv", "loo", "score"):
            assert_allclose(getattr(path, name), getattr(dense, name), rtol=1e-7)


def test_weights_are_copies():
    copies = np.random.default_rng(0).integers(1, 4, size=M)
    again = np.repeat(np.arange(M), copies)
    first = np.searchsorted(again, np.array([3, 40, 11, 20]))
    a = basis_path(PlainSparseLSSVR(1.0, basis=[3, 40, 11, 20]), X, TARGET, sample_weight=copies)
    b = basis_path(PlainSparseLSSVR(1.0, basis=first), X[again], TARGET[again])
    assert_allclose(a.objective, b.objective, rtol=1e-9)
    assert_allclose(a.gcv, b.gcv, rtol=1e-9)
    assert_allclose(a.loo, b.loo, rtol=1e-9)


def test_paths_keep_to_the_budget():
    seen = set()

    def kernel(A, B):
        seen.add(get_config()["working_memory"])
        return rbf_kernel(A, B)

    basis_path(PlainSparseLSSVR(1.0, kernel, n_basis=9, cache_size=40.0), X, TARGET)
    assert seen == {10.0}  # tiles take a quarter
