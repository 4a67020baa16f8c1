"""SparseLSSVC and SparseLSSVR in exact terms: extended precision, GCV, leave-one-out, weights.

The first reference is the objective on the same basis minimised in 50 decimal digits.
"""

from decimal import Decimal, localcontext
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel

from leansvm import LSSVC, LSSVR
from leansvm.basis import PivotedCholesky
from leansvm.estimators import machine
from tests.plain import PlainSparseLSSVC, PlainSparseLSSVR

rng = np.random.default_rng(5)
M = 30
PLAIN = rng.normal(size=(M, 3))
SIGNS = np.where(PLAIN[:, 0] + 0.7 * rng.normal(size=M) > 0, 1, -1)
COPIED = np.arange(M) // 2
DATA = {
    "plain": PLAIN,
    "rows twice, labels not": PLAIN[COPIED],
    "constant columns": np.column_stack([PLAIN, np.full(M, 7.0), np.zeros(M)]),
}
KERNELS = {"rbf": 0.5, "smooth rbf": 1e-3, "smoother rbf": 1e-6, "linear": None}
BASES = {"all": np.arange(M), "some": np.array([5, 4, 0, 1, 9, 17, 20, 29, 28, 12])}
BIASES = {"free": {}, "penalised": {"bias_penalty": 0.3}, "absent": {"fit_intercept": False}}
every_bias = pytest.mark.parametrize("bias", BIASES.values(), ids=BIASES)
EVERY_C = [1e-6, 1e-2, 1.0, 1e3, 1e7]


def exact(values):
    return np.vectorize(Decimal, otypes=[object])(np.asarray(values, dtype=float))


def digits(function):
    """Run a function in 50 decimal digits."""

    def wrapped(*args):
        with localcontext() as context:
            context.prec = 50
            return function(*args)

    return wrapped


@cache
@digits
def exact_kernel(data, kernel):
    X = exact(DATA[data])
    if kernel == "linear":
        return X @ X.T
    distance = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    gamma = Decimal(KERNELS[kernel])
    return np.vectorize(lambda t: (-gamma * t).exp(), otypes=[object])(distance)


def exact_solve(A, c):
    """Return A^-1 c by elimination; A is positive definite."""
    A, c = A.copy(), c.copy()
    for i in range(len(c)):
        for j in range(i + 1, len(c)):
            ratio = A[j, i] / A[i, i]
            A[j, i:] = A[j, i:] - ratio * A[i, i:]
            c[j] -= ratio * c[i]
    for i in reversed(range(len(c))):
        c[i] = (c[i] - (A[i, i + 1 :] @ c[i + 1 :] if i + 1 < len(c) else 0)) / A[i, i]
    return c


@cache
@digits
def exact_minimum(data, kernel, basis, bias, C):
    """C/2 (y'y - c'(I/C + Phi'Phi)^-1 c), centred for a free bias."""
    K, B, y = exact_kernel(data, kernel), BASES[basis], exact(SIGNS)
    # a factor of K_BB in the order of its pivots, extended to all rows: Phi = K_MB L^-T
    order = np.concatenate([B, np.setdiff1d(np.arange(M), B)])
    permuted = K[np.ix_(order, order)]
    small = permuted[: len(B), : len(B)]
    d, columns = small.diagonal().copy(), []
    while d.max() > Decimal("1e-40"):
        t = int(np.argmax(d))
        column = permuted[:, t] - sum((p * p[t] for p in columns), exact(np.zeros(M)))
        columns.append(column / d[t].sqrt())
        d = d - columns[-1][: len(B)] ** 2
        d[t] = Decimal(0)
    Phi, y = np.array(columns).T, y[order]
    if bias == "penalised":
        Phi = np.column_stack([Phi, exact(np.ones(M)) / Decimal("0.3").sqrt()])
    if bias == "free":
        Phi, y = Phi - Phi.sum(axis=0) / M, y - y.sum() / M
    A = Phi.T @ Phi
    for i in range(len(A)):
        A[i, i] += 1 / Decimal(C)
    c = Phi.T @ y
    return Decimal(C) / 2 * (y @ y - c @ exact_solve(A, c))


@digits
def exact_objective(model, data, kernel, C, bias):
    K, B = exact_kernel(data, kernel), model.support_
    alpha, b = exact(model.dual_coef_[0]), Decimal(float(model.intercept_[0]))
    residual = exact(SIGNS) - K[:, B] @ alpha - b
    penalty = Decimal("0.3") * b * b if bias == "penalised" else 0
    return (alpha @ K[np.ix_(B, B)] @ alpha + penalty + Decimal(C) * residual @ residual) / 2


def kernel_parameters(kernel):
    gamma = KERNELS[kernel]
    return {"kernel": "linear"} if gamma is None else {"kernel": "rbf", "gamma": gamma}


def check_against_digits(data, kernel, reference, bias, C, **parameters):
    model = PlainSparseLSSVC(C, **kernel_parameters(kernel), **BIASES[bias], **parameters)
    model.fit(DATA[data], SIGNS)
    minimum = exact_minimum(data, kernel, reference, bias, float(np.ravel(C)[0]))
    reached = exact_objective(model, data, kernel, model.C_, bias)
    assert float((reached - minimum) / minimum) <= 1e-6, model.C_
    assert_allclose(model.objective_, float(minimum), rtol=1e-6)
    far = np.vstack([DATA[data], 1e3 * DATA[data], np.zeros_like(DATA[data][:1])])
    assert np.isfinite(model.decision_function(far)).all()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("data", DATA)
def test_objective_against_fifty_digits(data, kernel):
    for basis, rows in BASES.items():
        for C in EVERY_C:
            check_against_digits(data, kernel, basis, "free", C, basis=rows)
            check_against_digits(data, kernel, basis, "free", [C], basis=rows)


@pytest.mark.parametrize("bias", ["penalised", "absent"])
@pytest.mark.parametrize("kernel", ["rbf", "smooth rbf"])
def test_objective_against_fifty_digits_by_bias(kernel, bias):
    data = "rows twice, labels not"
    for C in EVERY_C:
        check_against_digits(data, kernel, "some", bias, C, basis=BASES["some"])
        check_against_digits(data, kernel, "some", bias, [C], basis=BASES["some"])


@pytest.mark.parametrize("selector", ["pivoted-cholesky", "random-pivoted-cholesky", "csi"])
def test_selectors_that_run_out_of_rank_reach_the_full_minimum(selector):
    # Their own factor of K_BB is used: it must span what float64 can tell apart.
    options = {"basis": selector, "n_basis": M, "random_state": 0}
    for kernel in ("smooth rbf", "smoother rbf", "linear"):
        for C in (1.0, 1e3, 1e7):
            check_against_digits("rows twice, labels not", kernel, "all", "free", C, **options)


# ---------------------------------------------------------------------------- Theorem 2.2


@every_bias
def test_all_rows_as_basis_give_the_dense_model(bias):
    for C in (1e-3, 1.0, 1e4):
        check_full_basis(C, bias)


def check_full_basis(C, bias):
    rng = np.random.default_rng(1)
    X, Z = rng.normal(size=(80, 3)), rng.normal(size=(20, 3))
    three = np.digitize(X[:, 0] + 0.3 * rng.normal(size=80), [-0.5, 0.5])
    weight = rng.uniform(0.2, 3, size=80)
    for y in (three, three == 1):
        sparse = PlainSparseLSSVC(C, gamma=0.5, basis="all", **bias).fit(X, y, sample_weight=weight)
        dense = LSSVC(C, gamma=0.5, **bias).fit(X, y, sample_weight=weight)
        assert_allclose(sparse.decision_function(Z), dense.decision_function(Z), atol=1e-8)
        assert_allclose(sparse.objective_, dense.objective_, rtol=1e-8)
    target = np.column_stack([np.sin(X[:, 0]), X[:, 1] ** 2])
    sparse = PlainSparseLSSVR(C, gamma=0.5, basis="all", **bias).fit(
        X, target, sample_weight=weight
    )
    dense = LSSVR(C, gamma=0.5, **bias).fit(X, target, sample_weight=weight)
    assert_allclose(sparse.predict(Z), dense.predict(Z), atol=1e-8)


def test_linear_kernel_needs_as_many_points_as_features():
    rng = np.random.default_rng(2)
    X = rng.normal(loc=[0.5, -0.2], size=(200, 2))
    y = X[:, 0] + X[:, 1] + 0.3 * rng.normal(size=200) > 0.3
    dense = LSSVC(1.0, "linear").fit(X, y)
    for basis in ("pivoted-cholesky", PivotedCholesky(), "random", "all"):
        model = PlainSparseLSSVC(1.0, "linear", basis=basis, n_basis=20, random_state=0).fit(X, y)
        assert model.n_support_ == 2
        assert model.support_vectors_.shape == (2, 2)
        assert_allclose(model.decision_function(X), dense.decision_function(X), atol=1e-8)


# ---------------------------------------------------------------------------- GCV and leave-one-out

N = 34
X = rng.normal(size=(N, 3))
Z = rng.normal(size=(15, 3))
THREE = np.digitize(X[:, 0] + 0.5 * rng.normal(size=N), [-0.5, 0.5])
TWO = (X[:, 1] + 0.5 * rng.normal(size=N) > 0).astype(int)
TARGETS = np.column_stack([np.sin(2 * X[:, 0]) + X[:, 1] ** 2, 10 * rng.normal(size=N) - 30])
WEIGHT = rng.uniform(0.5, 3.0, size=N)
COPIES = rng.integers(1, 4, size=N)
POINTS = X[3:33:3]
CANDIDATES = np.array([1e-3, 0.3, 2.0, 1e3])


def one_vs_rest(labels):
    Y = np.where(np.asarray(labels)[:, None] == np.unique(labels), 1.0, -1.0)
    return Y[:, 1:] if Y.shape[1] == 2 else Y


def smoother(s, C, gamma, bias):
    """The matrix that maps targets to fitted values, from the weighted ridge problem itself."""
    K, B = rbf_kernel(X, POINTS, gamma=gamma), rbf_kernel(POINTS, gamma=gamma)
    r = len(POINTS)
    design, penalty = np.column_stack([K, np.ones(N)]), np.zeros((r + 1, r + 1))
    penalty[:r, :r] = B / C
    penalty[r, r] = bias.get("bias_penalty", 0.0) / C
    if not bias.get("fit_intercept", True):
        design, penalty = K, B / C
    return design @ np.linalg.solve(design.T @ (s[:, None] * design) + penalty, design.T * s)


@every_bias
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_gcv_is_that_of_the_hat_matrix(weight, bias, monkeypatch):
    s = np.ones(N) if weight is None else weight
    monkeypatch.setattr(machine.Machine, "_candidates", np.array(CANDIDATES))
    model = PlainSparseLSSVR("gcv", gamma=0.4, basis=POINTS, **bias)
    model.fit(X, TARGETS, sample_weight=weight)
    for C, value in zip(CANDIDATES, model.cv_curve_, strict=True):
        H = smoother(s, C, 0.4, bias)
        rss = s @ ((TARGETS - H @ TARGETS) ** 2).sum(axis=1)
        assert_allclose(value, s.sum() * rss / (s.sum() - np.trace(H)) ** 2, rtol=1e-7)
    assert_allclose(model.C_, CANDIDATES[np.argmin(model.cv_curve_)])


def test_gcv_of_a_classifier_counts_without_class_weights(monkeypatch):
    monkeypatch.setattr(machine.Machine, "_candidates", np.array(CANDIDATES))
    model = PlainSparseLSSVC("gcv", gamma=0.4, basis=POINTS, class_weight={0: 4.0, 2: 0.5})
    model.fit(X, THREE, sample_weight=WEIGHT)
    s = WEIGHT * np.array([4.0, 1.0, 0.5])[THREE]
    for C, value in zip(CANDIDATES, model.cv_curve_, strict=True):
        H, Y = smoother(s, C, 0.4, {}), one_vs_rest(THREE)
        rss, n = s @ ((Y - H @ Y) ** 2).sum(axis=1), WEIGHT.sum()
        assert_allclose(value, n * rss / (n - np.trace(H)) ** 2, rtol=1e-7)


LEFT_OUT = np.arange(0, N, 4)


def refit_without(model, y, s, values):
    """Left-out predictions by refitting on the same basis, at the C that was chosen."""
    result = []
    for i in LEFT_OUT:
        rest = np.arange(N) != i
        left = clone(model).set_params(C=model.C_, gamma=model.gamma_)
        left.fit(X[rest], y[rest], sample_weight=None if s is None else s[rest])
        result.append(getattr(left, values)(X[i : i + 1])[0])
    return np.array(result)


@every_bias
@pytest.mark.parametrize("y", [TWO, THREE], ids=["two", "three"])
def test_leave_one_out_is_refitting_classifier(y, bias):
    for weight in (None, WEIGHT):
        check_leave_one_out(y, weight, bias)


def check_leave_one_out(y, weight, bias):
    model = PlainSparseLSSVC("loo", basis=POINTS, **bias).fit(X, y, sample_weight=weight)
    Y = one_vs_rest(y)
    values = refit_without(model, y, weight, "decision_function")
    residuals = model.loo_residuals_.reshape(Y.shape)
    assert model.loo_residuals_.ndim == (1 if y is TWO else 2)
    assert_allclose(residuals[LEFT_OUT], Y[LEFT_OUT] - values.reshape(-1, Y.shape[1]), atol=1e-8)
    s = np.ones(N) if weight is None else weight
    press = s @ (residuals**2).sum(axis=1) / s.sum()
    assert_allclose(model.cv_curve_.min(), press, rtol=1e-7)


@every_bias
def test_leave_one_out_is_refitting_regressor(bias):
    for y, weight in ((TARGETS, WEIGHT), (TARGETS[:, 0], None)):
        model = PlainSparseLSSVR("loo", basis=POINTS, **bias).fit(X, y, sample_weight=weight)
        expected = y[LEFT_OUT] - refit_without(model, y, weight, "predict")
        assert_allclose(model.loo_residuals_[LEFT_OUT], expected, rtol=1e-8, atol=1e-7)


def test_leave_one_out_of_the_full_basis_is_that_of_the_dense_model():
    sparse = PlainSparseLSSVR("loo", gamma=2.0, basis="all").fit(X, TARGETS)
    dense = LSSVR("loo", gamma=2.0).fit(X, TARGETS)
    assert_allclose(sparse.cv_curve_, dense.cv_curve_, rtol=1e-5)
    assert_allclose(sparse.C_, dense.C_)


def test_leave_one_out_in_many_small_blocks(monkeypatch):
    from leansvm.ridge import primal

    kept = PlainSparseLSSVC("loo", basis=POINTS).fit(X, THREE)
    monkeypatch.setattr(primal, "_KEEP_LOO_BYTES", 0)
    again = PlainSparseLSSVC("loo", basis=POINTS).fit(X, THREE)
    assert_allclose(again.loo_residuals_, kept.loo_residuals_, rtol=1e-12)
    assert_allclose(again.cv_curve_, kept.cv_curve_, rtol=1e-12)


# ---------------------------------------------------------------------------- weights


def assert_same_model(a, b, rtol=1e-8):
    assert_allclose(a.gamma_, b.gamma_, rtol=1e-12)
    assert_allclose(a.C_, b.C_, rtol=1e-12)
    values = "decision_function" if hasattr(a, "decision_function") else "predict"
    assert_allclose(getattr(a, values)(Z), getattr(b, values)(Z), rtol=rtol, atol=rtol)
    assert_allclose(a.intercept_, b.intercept_, rtol=rtol, atol=rtol)
    assert_allclose(a.objective_, b.objective_, rtol=rtol)
    assert hasattr(a, "cv_curve_") == hasattr(b, "cv_curve_")
    if hasattr(a, "cv_curve_"):
        assert_allclose(a.cv_curve_, b.cv_curve_, rtol=1e-6)
    if hasattr(a, "predict_proba"):
        assert_allclose(a.predict_proba(Z), b.predict_proba(Z), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("C", ["gcv", "loo", [0.1, 1.0, 30.0], 2.0], ids=str)
@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 2.0}], ids=str)
def test_weight_k_equals_k_copies_classifier(C, class_weight):
    calibrate = class_weight != {0: 2.0}
    model = PlainSparseLSSVC(C, basis=POINTS, class_weight=class_weight, calibrate=calibrate)
    for y in (TWO, THREE):
        weighted = clone(model).fit(X, y, sample_weight=COPIES)
        repeated = clone(model).fit(np.repeat(X, COPIES, axis=0), np.repeat(y, COPIES))
        assert_same_model(weighted, repeated)
        if C == "loo":
            expected = np.repeat(weighted.loo_residuals_, COPIES, axis=0)
            assert_allclose(repeated.loo_residuals_, expected, atol=1e-8)


@every_bias
def test_weight_k_equals_k_copies_regressor(bias):
    again = np.repeat(np.arange(N), COPIES)
    for C in ("gcv", "loo", 2.0):
        model = PlainSparseLSSVR(C, basis=POINTS, **bias)
        weighted = clone(model).fit(X, TARGETS, sample_weight=COPIES)
        assert_same_model(weighted, clone(model).fit(X[again], TARGETS[again]))


@pytest.mark.parametrize("C", ["gcv", "loo", 2.0])
def test_rows_of_no_weight_change_nothing(C):
    weight = np.where(np.arange(N) % 5 == 0, 0.0, WEIGHT)
    used = weight > 0
    for model, y in (
        (PlainSparseLSSVC(C, basis=POINTS), THREE),
        (PlainSparseLSSVR(C, basis=POINTS), TARGETS),
    ):
        weighted = clone(model).fit(X, y, sample_weight=weight)
        dropped = clone(model).fit(X[used], y[used], sample_weight=weight[used])
        assert_same_model(weighted, dropped)


def test_targets_of_no_weight_may_be_anything():
    weight, y = np.ones(N), TARGETS[:, 0].copy()
    weight[3] = 0.0
    usual = PlainSparseLSSVR(2.0, basis=POINTS).fit(X, y, sample_weight=weight)
    y[3] = 1e30
    assert_same_model(PlainSparseLSSVR(2.0, basis=POINTS).fit(X, y, sample_weight=weight), usual)


@pytest.mark.parametrize("scale", [1e-3, 1e6])
def test_scaled_weights_are_a_scaled_C(scale):
    for options in ({"basis": POINTS}, {"n_basis": 8, "random_state": 0}, {"random_state": 0}):
        plain = PlainSparseLSSVC(2.0, **options).fit(X, TWO)
        scaled = PlainSparseLSSVC(2.0 / scale, **options).fit(
            X, TWO, sample_weight=np.full(N, scale)
        )
        assert_allclose(scaled.decision_function(Z), plain.decision_function(Z), atol=1e-8)


def test_a_target_far_from_zero():
    near = PlainSparseLSSVR(10.0, basis=POINTS).fit(X, TARGETS[:, 0])
    far = PlainSparseLSSVR(10.0, basis=POINTS).fit(X, TARGETS[:, 0] + 1e7)
    assert_allclose(far.predict(Z) - 1e7, near.predict(Z), atol=1e-6)
    assert_allclose(far.objective_, near.objective_, rtol=1e-6)


@pytest.mark.parametrize("n_basis", [500, 600, 700])  # primal, dual, dual with few rows outside
def test_leave_one_out_counts_the_rows_outside_of_the_basis_where_they_are_enough(n_basis):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1100, 2))
    y = np.sin(3 * X[:, 0]) + 0.3 * rng.normal(size=1100)
    model = PlainSparseLSSVR("loo", kernel="rbf", gamma=2.0, n_basis=n_basis, random_state=0).fit(
        X, y
    )
    squares = model.loo_residuals_**2
    outside = np.delete(squares, model.support_)
    expected = outside if len(outside) >= 500 else squares
    assert_allclose(np.nanmin(model.cv_curve_), expected.mean(), rtol=1e-6)
