"""basis_path: every prefix is the model fitted on those rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn import get_config
from sklearn.metrics.pairwise import rbf_kernel

from leansvm.model_selection import basis_path, gamma_path
from leansvm.ridge import gammas
from leansvm.ridge.factor import decompose
from leansvm.ridge.sums import normal_equations
from tests.loops import case
from tests.plain import SparseLSSVC, SparseLSSVR

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
    "two": (SparseLSSVC, TWO, TWO_Z),
    "three": (SparseLSSVC, THREE, THREE_Z),
    "one target": (SparseLSSVR, TARGET, TARGET_Z),
    "two targets": (SparseLSSVR, TARGETS, TARGETS_Z),
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
    return decompose(equations).gcv(np.array([model.C_]))[0]


def leave_one_out(model, path, k, y, weight):
    """Mean squared error of the rows left out, by refitting without each of them."""
    targets = np.asarray(y).reshape(M, -1)
    if isinstance(model, SparseLSSVC):
        targets = np.where(targets == model.classes_, 1.0, -1.0)
        targets = targets[:, 1:] if len(model.classes_) == 2 else targets
    by_class = model.class_weight if isinstance(model, SparseLSSVC) else None
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
    check_path(SparseLSSVC, TWO, TWO_Z, WEIGHT, C=1.0, basis=basis)


@pytest.mark.parametrize("C", ["gcv", "loo"])
def test_the_chosen_C_is_that_of_the_whole_basis(C):
    check_path(SparseLSSVR, TARGET, TARGET_Z, WEIGHT, C=C, basis="pivoted-cholesky")


def test_given_rows_are_a_path_in_their_order():
    rows = np.array([33, 2, 50, 7])
    path = basis_path(SparseLSSVR(1.0, basis=rows), X, TARGET)
    assert_array_equal(path.support, rows)
    assert path.score is None
    assert (np.diff(path.objective) <= 0).all()


def test_given_points_are_refused():
    with pytest.raises(ValueError, match="basis: a path needs rows of X as basis"):
        basis_path(SparseLSSVR(1.0, basis=X[:4]), X, TARGET)


@pytest.mark.parametrize("basis", ["entropy", "medoids"])
def test_selectors_that_are_not_nested_are_refused(basis):
    with pytest.raises(ValueError, match="nested"):
        basis_path(SparseLSSVC(1.0, basis=basis, n_basis=5), X, TWO)


def test_class_weights():
    weights = {"no": 4.0, "yes": 1.0}
    check_path(SparseLSSVC, TWO, TWO_Z, WEIGHT, C=1.0, basis="csi", class_weight=weights)


def test_dependent_points_are_skipped():
    rows = np.array([4, 5, 4 + 30, 6])
    twice = X.copy()
    twice[34] = twice[4]
    path = basis_path(SparseLSSVR(1.0, gamma=0.5, basis=rows), twice, TARGET)
    assert_array_equal(path.support, [4, 5, 6])
    assert_array_equal(path.sizes, [1, 2, 3])
    linear = SparseLSSVR(1.0, "linear", basis="random", n_basis=20, random_state=0)
    assert_array_equal(basis_path(linear, X, TARGET).sizes, [1, 2, 3])


def test_a_numerically_dependent_basis_ends_at_the_fitted_model():
    for seed in range(10):
        model = SparseLSSVR(1e6, gamma=1e-3, n_basis=50, random_state=seed)
        path = basis_path(model, X, TARGET)
        assert_allclose(path.objective[-1], model.fit(X, TARGET).objective_, rtol=1e-6)
        assert (np.diff(path.objective) <= 1e-9 * path.objective[0]).all()


def test_sparse_and_precomputed_rows():
    holes = np.where(np.abs(X) < 0.5, 0.0, X)
    model = SparseLSSVC(1.0, gamma=0.5, basis="pivoted-cholesky", n_basis=6)
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
    a = basis_path(SparseLSSVR(1.0, basis=[3, 40, 11, 20]), X, TARGET, sample_weight=copies)
    b = basis_path(SparseLSSVR(1.0, basis=first), X[again], TARGET[again])
    assert_allclose(a.objective, b.objective, rtol=1e-9)
    assert_allclose(a.gcv, b.gcv, rtol=1e-9)
    assert_allclose(a.loo, b.loo, rtol=1e-9)


# ---------------------------------------------------------------------------- gamma_path

GAMMAS = [1e-3, 0.1, 1.0, 30.0]


@pytest.mark.parametrize("problem", CASES)
@pytest.mark.parametrize("bias", BIASES)
def test_gamma_path_is_the_fit_at_every_gamma(problem, bias):
    for rows in ("dense", "csr", "float32"):
        with case(rows=rows):
            check_gamma_path(problem, bias, rows)


def check_gamma_path(problem, bias, rows):
    estimator, y, _ = CASES[problem]
    data = {"dense": X, "csr": sparse.csr_matrix(X), "float32": X.astype(np.float32)}[rows]
    model = estimator(n_basis=15, random_state=0, **BIASES[bias])
    path = gamma_path(model, data, y, gammas=GAMMAS, sample_weight=WEIGHT)
    assert not hasattr(model, "support_")  # cloned, not fitted
    points = model.fit(data, y, sample_weight=WEIGHT).support_
    for k, gamma in enumerate(GAMMAS):
        single = estimator(gamma=gamma, basis=points, **BIASES[bias])
        single.fit(data, y, sample_weight=WEIGHT)
        assert_allclose(
            path.gcv[k], single.cv_curve_.min(), rtol=1e-4 if rows == "float32" else 1e-6
        )
        assert_allclose(path.C[k], single.C_)
    best = int(np.argmin(path.gcv))
    assert (path.best_gamma, path.best_C) == (GAMMAS[best], path.C[best])


def test_gamma_path_of_other_kernels_duplicates_and_a_single_C():
    twice = np.vstack([X, X])
    for kernel in ("laplacian", "poly"):
        model = SparseLSSVR(3.0, kernel=kernel, basis=np.arange(0, 2 * M, 4))
        path = gamma_path(model, twice, np.tile(TARGET, 2), gammas=[0.2, 2.0])
        for k, gamma in enumerate(path.gammas):
            single = model.set_params(C=3.0, gamma=gamma).fit(twice, np.tile(TARGET, 2))
            assert_allclose(path.gcv[k], gcv_of(single), rtol=1e-6)
        assert_allclose(path.C, 3.0)
    duplicated = SparseLSSVR(basis=[3, 3 + M, 5, 7])
    path = gamma_path(duplicated, twice, np.tile(TARGET, 2), gammas=[0.2, 1e12])
    assert np.all(np.isfinite(path.gcv))


def test_gamma_path_of_a_kernel_that_is_chosen():
    model = SparseLSSVC("gcv", kernel="auto", gamma="scale", n_basis=8, random_state=0)
    assert np.all(np.isfinite(gamma_path(model, X, TWO, gammas=[0.2, 2.0]).gcv))


def test_gamma_path_says_what_is_wrong():
    for kernel in ("linear", "cosine", "precomputed", np.dot):
        with pytest.raises(ValueError, match=r"has no gamma to search: set kernel to one of rbf"):
            gamma_path(SparseLSSVC(kernel=kernel, gamma="scale"), X, TWO)
    with pytest.raises(ValueError, match="gammas must be"):
        gamma_path(SparseLSSVC(), X, TWO, gammas=[-1.0])


def test_paths_keep_to_the_budget(monkeypatch):
    seen, together, add_up = set(), [], gammas.add_up_together

    def kernel(A, B):
        seen.add(get_config()["working_memory"])
        return rbf_kernel(A, B)

    basis_path(SparseLSSVR(1.0, kernel, n_basis=9, cache_size=40.0), X, TARGET)
    assert seen == {10.0}  # tiles take a quarter

    def watched(blocks, points, bases, shifts):
        together.append((len(bases), get_config()["working_memory"]))
        return add_up(blocks, points, bases, shifts)

    monkeypatch.setattr(gammas, "add_up_together", watched)
    gamma_path(SparseLSSVR(1.0, basis="all", cache_size=1.0), X, TARGET)
    assert together == [(4, 1.0), (4, 1.0), (1, 1.0)]  # an eighth of it: four matrices of 60 x 60
