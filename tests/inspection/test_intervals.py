"""Intervals and sets: equal to refitting without every row; coverage; what is refused."""

import pickle
from functools import partial

import numpy as np
import pytest
from sklearn import get_config
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics.pairwise import rbf_kernel

from leansvm import LSSVC, LSSVR
from leansvm.inspection import inspect_rows, novelty
from leansvm.model_selection import KFoldSums
from leansvm.ridge import jackknife, without_row
from leansvm.ridge.answers import METHODS
from tests.plain import PlainSparseLSSVC, PlainSparseLSSVR

ALPHA = 0.15
BIAS = [{}, {"bias_penalty": 2.0}, {"fit_intercept": False}]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(47, 3))
    Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]]) + 0.2 * rng.normal(size=(47, 2))
    return X, Y, rng.integers(1, 4, size=47).astype(float), rng.normal(size=(9, 3))


def machine(kind, X, **options):
    if kind == "all":
        return LSSVR(5.0, gamma=0.4, **options)
    return PlainSparseLSSVR(5.0, gamma=0.4, basis=X[: 8 if kind == "few" else 40].copy(), **options)


def weighted_kth(values, weight, k):
    """Return the k-th smallest, values repeated by their weights."""
    return np.sort(np.repeat(values, weight.astype(int), axis=0), axis=0)[k - 1]


def refitted_ends(model, X, Y, weight, X_new, groups, adaptive=False):
    """Fit without each group; return both ends from all predictions, rows x outputs x 2."""
    low, high = np.empty((len(X), *(len(X_new), Y.shape[1]))), None
    high, left_out = low.copy(), np.empty(Y.shape)
    for g in np.unique(groups):
        kept, out = groups != g, groups == g
        fitted = model.fit(X[kept], Y[kept], sample_weight=weight[kept])
        values, errors = fitted.predict(X_new), np.abs(Y[out] - fitted.predict(X[out]))
        left_out[out] = errors
        errors = np.broadcast_to(errors[:, None], (len(errors), *values.shape))
        if adaptive:
            here, there = (np.sqrt(1 + variances(fitted, rows)) for rows in (X[out], X_new))
            errors = errors * there[:, None] / here
        low[out], high[out] = values - errors, values + errors
    k = int(ALPHA * (weight.sum() + 1))
    tie = 1e-6 * np.sqrt(np.average(left_out**2, axis=0, weights=weight))
    ends = weighted_kth(low, weight, k) - tie, tie - weighted_kth(-high, weight, k)
    return np.stack(ends, axis=-1)


def variances(model, X):
    return jackknife.spreads_at(model._ask().left_out, X, 2**20)[1]


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("options", BIAS, ids=["free", "penalised", "none"])
@pytest.mark.parametrize("kind", ["few", "most", "all"])
def test_jackknife_is_refitting_without_every_row(rows, kind, options, adaptive):
    X, Y, weight, X_new = rows
    model = machine(kind, X, **options)
    expected = refitted_ends(model, X, Y, weight, X_new, np.arange(len(X)), adaptive)
    model.fit(X, Y, sample_weight=weight)
    found = model.predict_interval(X_new, ALPHA, adaptive=adaptive)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", ["few", "all"])
def test_cv_plus_is_refitting_without_every_fold(rows, kind):
    X, Y, weight, X_new = rows
    model = machine(kind, X).fit(X, Y, sample_weight=weight)
    found = model.predict_interval(X_new, ALPHA, method="cv+")
    folds = model._ask().fold_models.fold
    assert len(np.unique(folds)) == 5
    expected = refitted_ends(machine(kind, X), X, Y, weight, X_new, folds)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


def test_cv_plus_where_C_is_lost_in_rounding(rows):
    X, Y, _, X_new = rows
    line = np.array([0.3, 0.7, -0.2, 0.9, 0.1, -0.5])  # all rows lie on it, the basis does not
    options = {"kernel": "linear", "basis": np.eye(6), "fit_intercept": False}
    large, usual = (
        PlainSparseLSSVR(C, **options)
        .fit(X[:, :1] * line, Y)
        .predict_interval(X_new[:, :1] * line, method="cv+")
        for C in (1e20, 1e8)
    )
    np.testing.assert_allclose(large, usual, atol=1e-6)


@pytest.mark.parametrize("kind", ["few", "all"])
def test_cv_plus_refuses_a_single_fold(rows, kind):
    X, Y, _, X_new = rows
    fold = machine("all", X).fit(X, Y)._ask().fold_models.fold
    one = fold == np.bincount(fold).argmax()
    model = machine(kind, X[one]).fit(X[one], Y[one])
    with pytest.raises(ValueError, match=r"All rows fall into one fold.*jackknife\+"):
        model.predict_interval(X_new, 0.5, method="cv+")


def test_cv_plus_keeps_the_groups_of_C_together(rows):
    X, Y, _, X_new = rows
    groups = np.arange(len(X)) % 7
    model = PlainSparseLSSVR(KFoldSums(None, groups), gamma=0.4, basis=X[:8].copy()).fit(X, Y)
    model.predict_interval(X_new, method="cv+")
    folds = model._ask().fold_models.fold
    assert len(np.unique(folds)) == 7
    assert all(len(np.unique(folds[groups == g])) == 1 for g in range(7))


def test_cv_plus_knows_the_groups_of_copies(rows):
    X, Y, _, X_new = rows
    copies = np.arange(90) % 45
    groups = np.arange(90) // 15  # those of a row are in two groups
    model = PlainSparseLSSVR(KFoldSums(None, groups), gamma=0.4, random_state=0)
    model.fit(X[copies], Y[copies])  # n_basis="auto" compares sizes by distinct rows
    found = model.predict_interval(X_new, method="cv+")
    np.testing.assert_array_equal(model._ask().fold_models.fold, groups)
    model.keep_rows(X[copies], Y[copies])
    np.testing.assert_array_equal(model.predict_interval(X_new, method="cv+"), found)


def test_normal_interval_is_the_formula(rows):
    X, Y, weight, X_new = rows
    model = PlainSparseLSSVR(5.0, gamma=0.4, basis=X[:8].copy()).fit(
        X, Y[:, 0], sample_weight=weight
    )
    Z, Z_new = (
        np.column_stack([rbf_kernel(A, X[:8], gamma=0.4), np.ones(len(A))]) for A in (X, X_new)
    )
    ridge = np.zeros((9, 9))
    ridge[:8, :8] = rbf_kernel(X[:8], gamma=0.4) / 5.0
    A = np.linalg.inv(Z.T @ (weight[:, None] * Z) + ridge)
    errors = Y[:, 0] - model.predict(X)
    free = weight.sum() - np.trace(A @ Z.T @ (weight[:, None] * Z))
    sigma = np.sqrt(weight @ errors**2 / free)
    k, K = Z_new[:, :8], rbf_kernel(X[:8], gamma=0.4)
    unreached = 1 - np.einsum("ij,ji->i", k, np.linalg.solve(K, k.T))
    variance = np.einsum("ij,jk,ik->i", Z_new, A, Z_new) + 5.0 * unreached
    margin = 1.959963985 * sigma * np.sqrt(1 + variance)
    found = model.predict_interval(X_new, 0.05, method="normal")
    np.testing.assert_allclose(np.diff(found)[:, 0], 2 * margin, rtol=1e-7)
    np.testing.assert_allclose(found.mean(axis=1), model.predict(X_new), rtol=1e-10)


def test_a_basis_of_all_rows_has_the_intervals_of_the_exact_machine(rows):
    X, Y, weight, X_new = rows
    exact = LSSVR(5.0, gamma=0.4).fit(X, Y, sample_weight=weight)
    small = PlainSparseLSSVR(5.0, gamma=0.4, basis="all").fit(X, Y, sample_weight=weight)
    for options in ({}, {"adaptive": True}, {"method": "cv+"}, {"method": "normal"}):
        expected = exact.predict_interval(X_new, ALPHA, **options)
        found = small.predict_interval(X_new, ALPHA, **options)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def test_weights_count_as_copies(rows):
    X, Y, weight, X_new = rows
    copies = np.repeat(np.arange(len(X)), weight.astype(int))
    model = machine("few", X)
    once = model.fit(X, Y, sample_weight=weight).predict_interval(X_new, ALPHA)
    again = model.fit(X[copies], Y[copies]).predict_interval(X_new, ALPHA)
    np.testing.assert_allclose(once, again, rtol=1e-9)


def test_rows_of_a_small_basis_are_not_counted(rows):
    X, Y, _, X_new = rows
    basis = np.arange(0, 24, 3)
    model = PlainSparseLSSVR(5.0, gamma=0.4, basis=basis).fit(X, Y)
    asked = model._ask()
    found = asked.left_out
    outside = np.setdiff1d(np.arange(len(X)), basis)
    np.testing.assert_array_equal(found.rows[asked.counted(found.rows)], outside)
    # k-th largest of |r_i| - S_i r_i over the rows outside
    r = found.residual[outside, 0]
    shares = found.shares(found.place(X_new), found.chosen(outside))
    above = np.sort(np.abs(r) - shares * r, axis=1)[:, -int(ALPHA * (len(outside) + 1))]
    above += 1e-6 * np.sqrt(np.mean(r**2))  # ties are inside
    ends = model.predict_interval(X_new, ALPHA)[:, 0, 1]
    np.testing.assert_allclose(ends, model.predict(X_new)[:, 0] + above, rtol=1e-10)
    most = PlainSparseLSSVR(5.0, gamma=0.4, basis=np.arange(30)).fit(X, Y)._ask()
    assert len(most.counted(most.left_out.rows)) == len(X)  # too few outside
    copies = PlainSparseLSSVR(5.0, gamma=0.4, basis=np.array([47])).fit(
        np.r_[X, X[:1]], np.r_[Y, Y[:1]]
    )
    counted = copies._ask().counted(copies._ask().left_out.rows)
    assert len(counted) == len(X) - 1 and 0 not in counted  # row 47 is a copy of row 0


@pytest.mark.parametrize("method", ["jackknife+", "cv+"])
def test_weights_count_as_copies_of_basis_rows(rows, method):
    X, Y, weight, X_new = rows
    copies = np.concatenate([np.arange(len(X)), np.repeat(np.arange(len(X)), weight.astype(int))])
    model = PlainSparseLSSVR(5.0, gamma=0.4, basis=np.arange(8))
    once = model.fit(X, Y, sample_weight=weight + 1).predict_interval(X_new, ALPHA, method)
    again = model.fit(X[copies], Y[copies]).predict_interval(X_new, ALPHA, method)
    np.testing.assert_allclose(once, again, rtol=1e-9)


@pytest.mark.parametrize("adaptive", [False, True])
def test_rows_that_cannot_matter_change_nothing(rows, adaptive, monkeypatch):
    X, Y, weight, X_new = rows
    model = machine("few", X).fit(X, Y, sample_weight=weight)
    fast = model.predict_interval(X_new, ALPHA, adaptive=adaptive)
    seen = []
    monkeypatch.setattr(
        jackknife, "_may_matter", lambda least, *_: seen.append(1) or np.arange(len(least))
    )
    np.testing.assert_array_equal(model.predict_interval(X_new, ALPHA, adaptive=adaptive), fast)
    assert seen


def test_small_tiles_and_rows_that_are_not_kept_give_the_same(rows, monkeypatch):
    X, Y, _, X_new = rows
    model = machine("few", X).fit(X, Y)
    expected = model.predict_interval(X_new, ALPHA)
    monkeypatch.setattr(without_row, "_KEEP_BYTES", 0)
    monkeypatch.setattr(jackknife, "_GROUP", 2)
    monkeypatch.setattr(jackknife, "_TILE_BYTES", 1)
    model = machine("few", X).fit(X, Y)
    np.testing.assert_allclose(model.predict_interval(X_new, ALPHA), expected, rtol=1e-12)


def test_adaptive_intervals_are_wider_far_from_the_rows():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 1))
    y = X[:, 0] ** 2 + rng.normal(size=200)
    model = PlainSparseLSSVR(1e3, "poly", gamma=1.0, degree=2, coef0=1.0, basis=X[:6].copy()).fit(
        X, y
    )
    width = np.diff(model.predict_interval([[0.0], [6.0]], adaptive=True))[:, 0]
    assert width[1] > 1.3 * width[0]


@pytest.mark.parametrize("n_basis", [60, 500])
def test_coverage(n_basis):
    rng = np.random.default_rng(2)
    X = rng.uniform(-2, 2, size=(2600, 2))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=2600)
    model = PlainSparseLSSVR("loo", n_basis=n_basis, random_state=0).fit(X[:600], y[:600])
    for options in ({}, {"adaptive": True}, {"method": "cv+"}, {"method": "normal"}):
        low, high = model.predict_interval(X[600:], 0.1, **options).T
        inside = np.mean((low <= y[600:]) & (y[600:] <= high))
        # the best there is has 0.90 +- 0.014 (600 training rows)
        assert 0.87 < inside < 0.93, options


@pytest.mark.parametrize("options", [{}, {"adaptive": True}, {"method": "cv+"}])
@pytest.mark.parametrize("kind", ["few", "all"])
def test_ties_are_inside(kind, options):
    """Few targets are not 0.3: f is nearly constant, and 0.3 is the lower end, to rounding."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(1300, 3)), (rng.random(300) < 0.05) + 0.3
    for C in (1e-8, 1e-12):
        model = machine(kind, X).set_params(C=C).fit(X[:300], y)
        low, high = model.predict_interval(X[300:], **options).T
        assert (low <= 0.3).all() and (high >= 0.3).all()


def test_a_precomputed_kernel_has_the_same_intervals(rows):
    X, Y, _, X_new = rows
    K, K_new = rbf_kernel(X, gamma=0.4), rbf_kernel(X_new, X, gamma=0.4)
    for here, there in [
        (LSSVR(5.0, gamma=0.4), LSSVR(5.0, "precomputed")),
        (
            PlainSparseLSSVR(5.0, gamma=0.4, basis=np.arange(8)),
            PlainSparseLSSVR(5.0, "precomputed", basis=np.arange(8)),
        ),
    ]:
        expected = here.fit(X, Y).predict_interval(X_new, ALPHA)
        found = there.fit(K, Y).predict_interval(K_new, ALPHA)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    with pytest.raises(ValueError, match="precomputed"):
        LSSVR(5.0, "precomputed").fit(K, Y).predict_interval(K_new, method="normal")


# ---------------------------------------------------------------------------- sets


def refitted_sets(model, X, y, X_new, alpha):
    """Fit without each row; count rows whose margin beats that of each class."""
    classes = np.unique(y)
    counts = np.zeros((len(X_new), len(classes)))
    for i in range(len(X)):
        kept = np.arange(len(X)) != i
        fitted = model.fit(X[kept], y[kept])
        own = margins(fitted, X[i : i + 1])[0, np.searchsorted(classes, y[i])]
        counts += own > margins(fitted, X_new)
    return counts < (1 - alpha) * (len(X) + 1)


def margins(model, X):
    values = model.decision_function(X)
    values = np.column_stack([-values, values]) if values.ndim == 1 else values
    others = [np.delete(values, k, axis=1).max(axis=1) for k in range(values.shape[1])]
    return values - np.column_stack(others)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("kind", ["few", "all"])
def test_sets_are_refitting_without_every_row(kind, n_classes):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 2))
    y = np.array(["a", "b", "c"])[
        (X[:, 0] + 0.8 * rng.normal(size=60) > 0) * 1 + (n_classes == 3) * (X[:, 1] > 0.5)
    ]
    model = (
        LSSVC(2.0, gamma=0.5)
        if kind == "all"
        else PlainSparseLSSVC(2.0, gamma=0.5, basis=X[:7].copy())
    )
    X_new = rng.normal(size=(40, 2))
    expected = refitted_sets(model, X, y, X_new, 0.2)
    found = model.fit(X, y).predict_set(X_new, 0.2, by_class=False)
    np.testing.assert_array_equal(found, expected)
    sizes = found.sum(axis=1)
    assert len(np.unique(sizes)) > 1


def test_coverage_of_sets():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(2500, 2))
    y = np.digitize(X[:, 0] + 0.5 * rng.normal(size=2500), [-0.5, 0.5])
    model = PlainSparseLSSVC(n_basis=40, random_state=0).fit(X[:500], y[:500])
    sets = model.predict_set(X[500:], 0.1)
    assert 0.86 < sets[np.arange(2000), y[500:]].mean() < 0.94


# ---------------------------------------------------------------------------- rows


def test_models_without_their_rows_ask_for_them(rows):
    X, Y, _, X_new = rows
    model = machine("few", X).set_params(keep_state=True).fit(X, Y)
    expected = model.predict_interval(X_new)
    copy = pickle.loads(pickle.dumps(model))
    assert len(pickle.dumps(model)) < 20_000
    with pytest.raises(ValueError, match="keep_rows"):
        copy.predict_interval(X_new)
    normal = copy.predict_interval(X_new, method="normal")  # from sums
    np.testing.assert_array_equal(normal, model.predict_interval(X_new, method="normal"))
    for other in ((X, Y[::-1]), (X[1:], Y[1:])):
        with pytest.raises(ValueError, match="not the rows"):
            copy.keep_rows(*other)
    with pytest.raises(ValueError, match="keep_rows"):  # nothing of them stayed
        copy.predict_interval(X_new)
    np.testing.assert_array_equal(copy.keep_rows(X, Y).predict_interval(X_new), expected)


def test_rows_in_float32_are_those_of_their_own_model():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(2000, 5)).astype(np.float32)
    y = rbf_kernel(X.astype(float), X[:200].astype(float), gamma=10.0) @ rng.normal(size=200)
    model = PlainSparseLSSVR(1e7, gamma=10.0, basis=np.arange(200)).fit(X, y)  # fits to rounding
    assert np.isfinite(model.predict_interval(X[:5])).all()
    with pytest.raises(ValueError, match="not the rows"):
        model.keep_rows(X, y + 0.01 * rng.normal(size=2000))


def test_a_model_that_is_not_fitted_says_so(rows):
    X = rows[0]
    for kind in ("few", "all"):
        with pytest.raises(NotFittedError):
            machine(kind, X).predict_interval(X)
    with pytest.raises(NotFittedError):
        LSSVC().predict_set(X)


def test_batches_need_all_their_rows_again(rows):
    X, Y, _, X_new = rows
    model = machine("few", X).partial_fit(X[:30], Y[:30]).partial_fit(X[30:], Y[30:])
    with pytest.raises(ValueError, match="keep_rows"):
        model.predict_interval(X_new)
    expected = machine("few", X).fit(X, Y).predict_interval(X_new)
    np.testing.assert_allclose(model.keep_rows(X, Y).predict_interval(X_new), expected, rtol=1e-8)


def test_points_of_a_state_are_no_rows_even_if_there_are_as_many(rows):
    X, Y, _, X_new = rows
    model = PlainSparseLSSVR(5.0, gamma=0.4, basis=X.copy()).fit(X, Y)
    expected = model.predict_interval(X_new)
    model.fit_from_state(model.state())
    with pytest.raises(ValueError, match=r"does not know its training rows: .* or a state"):
        model.predict_interval(X_new)
    np.testing.assert_allclose(model.keep_rows(X, Y).predict_interval(X_new), expected, rtol=1e-8)


def test_rows_changed_after_the_fit_are_noticed(rows):
    X, Y, _, X_new = rows
    X = X.copy()
    model = machine("all", X).fit(X, Y)
    X *= 2
    with pytest.raises(ValueError, match="changed"):
        model.predict_interval(X_new)


def test_a_later_fit_forgets_earlier_answers(rows):
    X, Y, _, X_new = rows
    model = machine("few", X).fit(X, Y)
    first = model.predict_interval(X_new)
    assert np.abs(model.fit(X, 2 * Y).predict_interval(X_new) - 2 * first).max() < 1e-10


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": 0.01}, "99 training rows"),
        ({"method": "bootstrap"}, "method must be one of"),
        ({"method": "cv+", "adaptive": True}, "adaptive"),
    ],
)
def test_refusals(rows, options, text):
    X, Y, _, X_new = rows
    with pytest.raises(ValueError, match=text):
        machine("few", X).fit(X, Y).predict_interval(X_new, **options)


def test_memory_is_checked_before(rows):
    X, Y, _, X_new = rows
    model = LSSVR(5.0, cache_size=1.0).fit(X, Y)
    model.set_params(cache_size=0.01)
    with pytest.raises(MemoryError, match="cache_size"):
        model.predict_interval(X_new)


def test_folds_beyond_the_budget_are_refused():
    X = np.random.default_rng(0).normal(size=(400, 3))
    model = PlainSparseLSSVR(1.0, gamma=1.0, basis=np.arange(300), cache_size=20).fit(X, X[:, 0])
    with pytest.raises(MemoryError, match="cache_size"):
        model.predict_interval(X[:5], method="cv+")
    model.set_params(cache_size=100)
    model.keep_rows(X, X[:, 0]).predict_interval(X[:5], method="cv+")


def test_tiles_keep_to_the_budget(rows):
    X, Y, _, X_new = rows
    seen = set()

    def kernel(A, B):
        seen.add(get_config()["working_memory"])
        return rbf_kernel(A, B, gamma=0.4)

    options = {"basis": X[:8].copy(), "cache_size": 40.0}
    model = PlainSparseLSSVR(5.0, kernel, **options).fit(X, Y)
    classes = PlainSparseLSSVC(5.0, kernel, **options).fit(X, Y[:, 0] > 0)
    for ask in (
        *(partial(model.predict_interval, X_new, method=method) for method in METHODS),
        partial(classes.predict_set, X_new),
        partial(clone(model).fit(X, Y).keep_rows, X, Y),  # others know these rows already
        partial(inspect_rows, clone(model).fit(X, Y), X, Y),
        partial(novelty, classes, X_new),
    ):
        seen.clear()
        ask()
        assert seen == {10.0}, ask  # a quarter of it
