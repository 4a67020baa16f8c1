"""States: merged and subtracted sums give the models of fits on these rows."""

import re
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel

import leansvm
from leansvm.model_selection import KFoldSums, cross_val_from_sums
from leansvm.persistence import FitState, StateError
from leansvm.ridge.state import FORMAT
from tests.plain import PlainSparseLSSVC, PlainSparseLSSVR

rng = np.random.default_rng(11)
M, GAMMA, C = 160, 0.4, 20.0
X = rng.normal(size=(M, 3))
Z = rng.normal(size=(30, 3))
TWO = np.where(X[:, 0] + 0.5 * rng.normal(size=M) > 0, "yes", "no")
THREE = np.digitize(X[:, 0] + 0.3 * rng.normal(size=M), [-0.5, 0.5])
TARGET = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 40
TARGETS = np.column_stack([TARGET, 100 * X[:, 2] - 30])
WEIGHT = rng.uniform(0.3, 2.0, size=M)
POINTS = rng.normal(size=(15, 3))
CASES = {
    "two": (PlainSparseLSSVC, TWO),
    "three": (PlainSparseLSSVC, THREE),
    "one target": (PlainSparseLSSVR, TARGET),
    "two targets": (PlainSparseLSSVR, TARGETS),
}
BIASES = {"free": {}, "penalised": {"bias_penalty": 0.3}, "absent": {"fit_intercept": False}}
SITES = np.array_split(np.arange(M), 4)
OPTIONS = {"gamma": GAMMA, "basis": POINTS}


def values(model):
    return model.decision_function(Z) if hasattr(model, "classes_") else model.predict(Z)


def directly(model, y, weight, rows):
    """Solve the normal equations in the kernel functions of the points, without our solvers."""
    Y = np.asarray(y).reshape(M, -1)
    if hasattr(model, "classes_"):
        Y = np.where(model.classes_ == Y, 1.0, -1.0)
        Y = Y[:, 1:] if len(model.classes_) == 2 else Y
    Y, s = Y[rows].astype(float), weight[rows, None]
    K, at = rbf_kernel(X[rows], POINTS, gamma=GAMMA), rbf_kernel(Z, POINTS, gamma=GAMMA)
    ridge = np.zeros((len(POINTS) + 1, len(POINTS) + 1))
    ridge[:-1, :-1] = rbf_kernel(POINTS, gamma=GAMMA) / C
    ridge[-1, -1] = model.bias_penalty / C
    K, at = (np.column_stack([part, np.ones(len(part))]) for part in (K, at))
    if not model.fit_intercept:
        K, at, ridge = K[:, :-1], at[:, :-1], ridge[:-1, :-1]
    found = at @ np.linalg.solve(K.T @ (s * K) + ridge, K.T @ (s * Y))
    return found[:, 0] if found.shape[1] == 1 else found


def state_of(model, y, rows, weight=WEIGHT):
    return model.state(X[rows], y[rows], weight[rows])


@pytest.mark.parametrize(("estimator", "y"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("bias", BIASES.values(), ids=BIASES)
def test_merged_and_reduced_states_are_fits(estimator, y, bias):
    pooled = estimator(C, **OPTIONS, **bias).fit(X, y, sample_weight=WEIGHT)
    plan = pooled.state().empty()
    assert (plan.n_rows, plan.weight, plan.n_folds) == (0, 0.0, 5)
    site = estimator(C, **bias).fit_from_state(plan)
    merged = sum(state_of(site, y, rows) for rows in SITES)
    model = estimator(C, **bias).fit_from_state(merged)
    assert_allclose(values(model), values(pooled), rtol=1e-10, atol=1e-10)
    assert_allclose(values(model), directly(model, y, WEIGHT, np.arange(M)), rtol=1e-8)
    assert_allclose(model.objective_, pooled.objective_, rtol=1e-10)
    assert_array_equal(model.support_, -np.ones(len(POINTS)))
    assert_array_equal(model.support_vectors_, pooled.support_vectors_)
    assert model.fit_report_["rows"] == merged.n_rows == M
    # forget the third site
    rest = np.concatenate([SITES[0], SITES[1], SITES[3]])
    left = estimator(C, **bias).fit_from_state(merged - state_of(site, y, SITES[2]))
    assert_allclose(values(left), directly(left, y, WEIGHT, rest), rtol=1e-8)
    assert left.n_rows_seen_ == len(rest)


@pytest.mark.parametrize("C", ["kfold", "gcv", "loo", [0.1, 1.0, 10.0]], ids=str)
def test_C_is_chosen_as_by_a_fit(C):
    pooled = PlainSparseLSSVR(C="kfold" if C == "loo" else C, **OPTIONS)
    pooled.set_params(C="kfold").fit(X, TARGETS, sample_weight=WEIGHT)
    site = PlainSparseLSSVR(1.0).fit_from_state(pooled.state().empty())
    merged = sum(state_of(site, TARGETS, rows) for rows in SITES)
    model = PlainSparseLSSVR(C).fit_from_state(merged)
    if isinstance(C, list):
        errors = cross_val_from_sums(pooled, C=C)
        assert_allclose(model.cv_curve_, errors.mean, rtol=1e-10)
    elif C == "gcv":
        pooled.set_params(C="gcv").fit(X, TARGETS, sample_weight=WEIGHT)
    if not isinstance(C, list):
        assert_allclose(model.cv_curve_, pooled.cv_curve_, rtol=1e-8)
        assert model.C_ == pooled.C_
    assert model.fit_report_.get("criterion") == (None if C == "gcv" else "kfold")


def test_forgetting_keeps_folds_exact():
    model = PlainSparseLSSVC("kfold", **OPTIONS).fit(X, THREE, sample_weight=WEIGHT)
    gone, rest = np.arange(40), np.arange(40, M)
    left = (
        clone(model)
        .set_params(C="kfold")
        .fit_from_state(model.state() - model.state(X[gone], THREE[gone], WEIGHT[gone]))
    )
    again = PlainSparseLSSVC("kfold", **OPTIONS).fit(
        X[rest], THREE[rest], sample_weight=WEIGHT[rest]
    )
    assert_allclose(left.cv_curve_, again.cv_curve_, rtol=1e-8)
    assert_allclose(values(left), values(again), rtol=1e-8)


def test_sites_with_fits_of_their_own_merge_although_their_sums_are_centred_elsewhere():
    far = TARGET + np.where(np.arange(M) < 80, 0.0, 1e4)
    parts = [np.arange(80), np.arange(80, M)]
    states = [PlainSparseLSSVR(C, **OPTIONS).fit(X[rows], far[rows]).state() for rows in parts]
    assert not np.allclose(states[0].sums.shift, states[1].sums.shift)
    pooled = PlainSparseLSSVR(C, **OPTIONS).fit(X, far)
    for order in (states, states[::-1]):
        model = PlainSparseLSSVR(C).fit_from_state(sum(order))
        assert_allclose(model.predict(Z), pooled.predict(Z), rtol=1e-9)
    folds = [PlainSparseLSSVR("kfold", **OPTIONS).fit(X[rows], far[rows]).state() for rows in parts]
    merged = PlainSparseLSSVR("kfold").fit_from_state(folds[0] + folds[1])
    whole = PlainSparseLSSVR("kfold", **OPTIONS).fit(X, far)
    assert_allclose(merged.cv_curve_, whole.cv_curve_, rtol=1e-8)


def test_a_model_of_a_state_goes_on_with_batches():
    plan = PlainSparseLSSVR("kfold", **OPTIONS).fit(X[:30], TARGETS[:30]).state()
    model = PlainSparseLSSVR("kfold").fit_from_state(plan.empty())
    assert_array_equal(model.predict(Z), np.zeros((len(Z), 2)))
    for rows in SITES:
        model.partial_fit(X[rows], TARGETS[rows])
    whole = PlainSparseLSSVR("kfold", **OPTIONS).fit(X, TARGETS)
    assert_allclose(values(model), values(whole), rtol=1e-9)
    with pytest.raises(ValueError, match="bias_penalty"):
        model.set_params(bias_penalty=2.0).partial_fit(X, TARGETS)


def test_the_model_of_its_own_state_is_the_same():
    for options in ({}, {"kernel": "laplacian"}, {"kernel": "poly", "coef0": 1.0, "degree": 2}):
        model = PlainSparseLSSVC(C, n_basis=12, random_state=0, **options).fit(X, THREE)
        again = PlainSparseLSSVC(C, **options).fit_from_state(model.state())
        assert_allclose(values(again), values(model), rtol=1e-12)
        assert_array_equal(again.support_, model.support_)
        assert_array_equal(again.support_vectors_, model.support_vectors_)
        assert_allclose(again.dual_coef_, model.dual_coef_, rtol=1e-9)
        assert again.gamma_ == model.gamma_


def test_dropped_points_stay_dropped():
    rows = np.array([4, 5, 34, 6])
    twice = X.copy()
    twice[34] = twice[4]
    model = PlainSparseLSSVR(C, gamma=GAMMA, basis=rows).fit(twice, TARGET)
    again = PlainSparseLSSVR(C).fit_from_state(model.state())
    assert_array_equal(again.support_, [4, 5, 6])
    assert_allclose(values(again), values(model), rtol=1e-12)
    assert again.fit_report_["dropped"] == 1


def test_learned_scales_and_names_travel_with_a_state(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X * [1, 1, 1e3], columns=["a", "b", "c"])
    frame.iloc[0, 0] = 1e4  # a heavy tail, which is clipped
    model = leansvm.SparseLSSVR("kfold", "matern32", n_basis=20, random_state=0).fit(frame, TARGET)
    assert model.clip_ is not None
    model.state().save(tmp_path / "state")
    again = leansvm.SparseLSSVR("kfold", "matern32").fit_from_state(
        FitState.load(tmp_path / "state")
    )
    assert_allclose(again.predict(frame), model.predict(frame), rtol=1e-10)
    assert_array_equal(again.feature_names_in_, ["a", "b", "c"])
    assert (again.kernel_, again.n_features_in_) == (model.kernel_, 3)
    with pytest.raises(ValueError, match="feature names"):
        again.state(frame.rename(columns={"a": "z"}), TARGET)


# ---------------------------------------------------------------------------- forgetting


def test_a_basis_point_cannot_be_forgotten():
    model = PlainSparseLSSVR(C, gamma=GAMMA, n_basis=10, random_state=0).fit(X, TARGET)
    mine = model.support_[3]
    with pytest.raises(StateError, match=r"1 of the 10 basis points .* cannot forget its basis"):
        model.state() - model.state(X[[mine, 1]], TARGET[[mine, 1]])
    other = np.setdiff1d(np.arange(M), model.support_)[:5]
    rest = np.setdiff1d(np.arange(M), other)
    left = PlainSparseLSSVR(C).fit_from_state(model.state() - model.state(X[other], TARGET[other]))
    again = PlainSparseLSSVR(C, gamma=GAMMA, basis=model.support_vectors_).fit(
        X[rest], TARGET[rest]
    )
    assert_allclose(values(left), values(again), rtol=1e-8)
    # a site cannot be taken back whose rows became the basis
    with pytest.raises(StateError, match="10 of the 10 basis points"):
        (model.state() + model.state(Z, Z[:, 0])) - model.state()


def test_a_state_that_hides_basis_points_is_not_subtracted():
    model = PlainSparseLSSVR(C, gamma=GAMMA, basis=np.arange(10)).fit(X, TARGET)
    other = PlainSparseLSSVR(C, gamma=GAMMA, basis=X[:10]).fit(X[:30], TARGET[:30])
    with pytest.raises(StateError, match="known whether they are basis points"):
        model.state() - other.state()
    folds = PlainSparseLSSVR("kfold", gamma=GAMMA, basis=X[:10]).fit(X, TARGET)
    with pytest.raises(StateError, match="the rows to forget has none"):
        folds.state() - other.state()
    left = PlainSparseLSSVR(C).fit_from_state(folds.state().without_folds() - other.state())
    again = PlainSparseLSSVR(C, gamma=GAMMA, basis=X[:10]).fit(X[30:], TARGET[30:])
    assert_allclose(values(left), values(again), rtol=1e-8)


def test_rows_equal_to_public_points_can_be_forgotten():
    model = PlainSparseLSSVR(C, gamma=GAMMA, basis=X[:10].copy()).fit(X, TARGET)  # given: public
    left = PlainSparseLSSVR(C).fit_from_state(model.state() - model.state(X[:4], TARGET[:4]))
    again = PlainSparseLSSVR(C, gamma=GAMMA, basis=X[:10]).fit(X[4:], TARGET[4:])
    assert_allclose(values(left), values(again), rtol=1e-8)
    chosen = PlainSparseLSSVR(C, gamma=GAMMA, basis=np.arange(10)).fit(X, TARGET)
    site = PlainSparseLSSVR(C).fit_from_state(chosen.state().empty())
    both = site.state(X, TARGET) - site.state(X[:4], TARGET[:4])
    assert_allclose(values(PlainSparseLSSVR(C).fit_from_state(both)), values(again), rtol=1e-8)


def test_rows_of_float32_and_sparse_rows_find_their_point():
    for rows in (X.astype(np.float32), sparse.csr_array(np.where(abs(X) < 0.5, 0.0, X))):
        model = PlainSparseLSSVR(C, gamma=GAMMA, n_basis=10, random_state=0).fit(rows, TARGET)
        with pytest.raises(StateError, match="1 of the 10"):
            model.state() - model.state(rows[[model.support_[0]]], TARGET[model.support_[:1]])
        other = np.setdiff1d(np.arange(M), model.support_)[:5]
        left = model.state() - model.state(rows[other], TARGET[other])
        assert left.n_rows == M - 5


@pytest.mark.parametrize("folds", ["kfold", C])
def test_rows_that_were_never_added_make_the_sums_indefinite(folds):
    model = PlainSparseLSSVR(folds, **OPTIONS).fit(X, TARGET)
    strange = {
        "another target": (X[:1], TARGET[:1] + 1e3, None),
        "another weight": (X[:3], TARGET[:3], np.full(3, 50.0)),
        "rows of elsewhere": (Z, Z[:, 0] - 200, None),
    }
    for rows in strange.values():
        with pytest.raises(StateError, match="indefinite"):
            model.state() - model.state(*rows)
    with pytest.raises(StateError, match="nothing would be left"):
        model.state() - model.state(X, TARGET)


def test_one_row_after_the_other_is_forgotten_until_few_are_left():
    model = PlainSparseLSSVR("kfold", **OPTIONS).fit(X, TARGET)
    state = model.state()
    for start in range(0, 140, 20):
        state = state - model.state(X[start : start + 20], TARGET[start : start + 20])
    left = PlainSparseLSSVR(C).fit_from_state(state)
    again = PlainSparseLSSVR(C, **OPTIONS).fit(X[140:], TARGET[140:])
    assert_allclose(values(left), values(again), rtol=1e-8)
    errors = cross_val_from_sums(state, C=[C])  # folds that lost all their rows have none
    whole = cross_val_from_sums(
        PlainSparseLSSVR("kfold", **OPTIONS).fit(X[140:], TARGET[140:]), C=[C]
    )
    assert_array_equal(errors.weight > 0, whole.weight > 0)
    assert_allclose(errors.mean, whole.mean, rtol=1e-7)


# ---------------------------------------------------------------------------- strangers

LABELLED = PlainSparseLSSVC(C, **OPTIONS)
STRANGERS = {
    "kernel": {"kernel": "laplacian"},
    "gamma": {"gamma": 0.5},
    "bias_penalty": {"bias_penalty": 1.0},
    "the number of basis points": {"basis": POINTS[:9]},
    "the basis": {"basis": POINTS + 1e-9},
    "the order of the basis": {"basis": POINTS[::-1]},
    "class_weight": {"class_weight": {0: 2.0}},
}


@pytest.mark.parametrize("name", STRANGERS)
def test_states_of_another_basis_are_refused_by_name(name):
    ours = LABELLED.fit(X, THREE).state()
    theirs = clone(LABELLED).set_params(**STRANGERS[name]).fit(X, THREE).state()
    named = "the basis|the order of the basis" if name == "the order of the basis" else name
    for verb, operation in (("added", ours.__add__), ("subtracted", ours.__sub__)):
        with pytest.raises(StateError, match=f"cannot be {verb}: ({named}) differs"):
            operation(theirs)


def test_states_of_other_data_are_refused_by_name():
    ours = LABELLED.fit(X, THREE).state()
    numbers = PlainSparseLSSVR(C, **OPTIONS).fit(X, TARGET).state()
    fewer = clone(LABELLED).fit(X[THREE < 2], THREE[THREE < 2]).state()
    several = PlainSparseLSSVR(C, **OPTIONS).fit(X, TARGETS).state()
    flat = PlainSparseLSSVR(C, **OPTIONS).fit(X, TARGET[:, None]).state()
    wider = PlainSparseLSSVR(C, gamma=GAMMA, basis=np.random.default_rng(1).normal(size=(15, 4)))
    wider = wider.fit(np.column_stack([X, X[:, 0]]), TARGET).state()
    pairs = {
        "task": (ours, numbers),
        "classes": (ours, fewer),
        "the number of targets": (numbers, several),
        "the shape of y": (numbers, flat),
        "the number of features": (numbers, wider),
        "format": (ours, replace(ours, version=FORMAT + 1)),
        "feature names": (ours, replace(ours, feature_names=("a", "b", "c"))),
        "the factor of the basis": (
            ours,
            replace(ours, features=replace(ours.features, L=ours.features.L * (1 + 1e-9))),
        ),
    }
    for name, (a, b) in pairs.items():
        with pytest.raises(StateError, match=f"{name} differs"):
            a + b
    with pytest.raises(TypeError):
        ours + 1


def test_other_folds_are_refused():
    model = PlainSparseLSSVR("kfold", **OPTIONS).fit(X, TARGET)
    with pytest.raises(StateError, match="number of folds differs, 5 and 3"):
        model.state() + model.state().empty(3)
    grouped = PlainSparseLSSVR(KFoldSums(3, groups=np.arange(M) % 7), **OPTIONS).fit(X, TARGET)
    with pytest.raises(StateError, match="folds are groups"):
        grouped.state() + model.state()
    with pytest.raises(StateError, match=re.escape("without_folds()")):
        grouped.state(X, TARGET)
    with pytest.raises(StateError, match="n_folds must be"):
        model.state().empty(1)
    assert (grouped.state().without_folds() + model.state()).n_rows == 2 * M


def test_rows_in_no_fold_are_in_every_model():
    first = PlainSparseLSSVR(C, **OPTIONS).fit(X[:100], TARGET[:100]).state()
    later = PlainSparseLSSVR("kfold", **OPTIONS).fit(X[100:], TARGET[100:]).state()
    batches = PlainSparseLSSVR(C, **OPTIONS).fit(X[:100], TARGET[:100])
    batches.set_params(C="kfold").partial_fit(X[100:], TARGET[100:])
    for merged in (first + later, later + first):
        assert merged.n_folds == 5
        model = PlainSparseLSSVR("kfold").fit_from_state(merged)
        assert_allclose(model.cv_curve_, batches.cv_curve_, rtol=1e-8)


PARAMETERS = {
    "kernel": {"kernel": "laplacian"},
    "gamma": {"gamma": 0.7},
    "fit_intercept": {"fit_intercept": False},
    "bias_penalty": {"bias_penalty": 1.0},
    "class_weight": {"class_weight": {0: 3.0}},
    "C": {"C": KFoldSums(7)},
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_that_contradict_the_state_are_refused_by_name(name):
    state = PlainSparseLSSVC("kfold", **OPTIONS).fit(X, THREE).state()
    with pytest.raises(StateError, match=f"fit_from_state: {name}="):
        PlainSparseLSSVC(**{"C": C, **PARAMETERS[name]}).fit_from_state(state)
    fine = {"gamma": GAMMA, "kernel": "auto", "basis": "random", "C": KFoldSums(5)}
    assert PlainSparseLSSVC(**fine).fit_from_state(state).n_support_ == 15


def test_what_a_state_cannot_do_is_said():
    plain = PlainSparseLSSVR(C, **OPTIONS).fit(X, TARGET)
    with pytest.raises(StateError, match="needs the rows or sums of folds"):
        PlainSparseLSSVR("loo").fit_from_state(plain.state())
    with pytest.raises(StateError, match="use SparseLSSVR"):
        PlainSparseLSSVC(C).fit_from_state(plain.state())
    balanced = PlainSparseLSSVC(C, class_weight="balanced", **OPTIONS).fit(X, THREE)
    with pytest.raises(StateError, match="class_weight='balanced' depends on all rows"):
        balanced.state()
    kernel = PlainSparseLSSVR(C, "precomputed", n_basis=5).fit(rbf_kernel(X), TARGET)
    with pytest.raises(StateError, match="precomputed"):
        kernel.state()
    with pytest.raises(ValueError, match="not fitted"):
        PlainSparseLSSVR().state()
    with pytest.raises(ValueError, match="features"):
        plain.state(X[:, :2], TARGET)
    with pytest.raises(ValueError, match="target columns"):
        plain.state(X, TARGETS)
    with pytest.raises(ValueError, match="not in classes"):
        PlainSparseLSSVC(C, **OPTIONS).fit(X, THREE).state(X, THREE + 1)
    with pytest.raises(StateError, match="two states"):
        FitState.by_site([plain.state()])


def test_memory_is_checked_first():
    points = np.random.default_rng(1).normal(size=(900, 3))
    model = PlainSparseLSSVR(1.0, gamma=5.0, basis=points).fit(X, TARGET)
    small = clone(model).set_params(cache_size=10)
    with pytest.raises(MemoryError, match="basis of 900 points"):
        small.fit_from_state(model.state())
    model.set_params(cache_size=10)
    with pytest.raises(MemoryError, match="basis of 900 points"):
        model.state(X, TARGET)


# ---------------------------------------------------------------------------- sites as folds


def test_a_site_at_a_time_is_left_out():
    plan = PlainSparseLSSVR(C, **OPTIONS).fit(X, TARGETS).state().empty()
    site = PlainSparseLSSVR(C).fit_from_state(plan)
    merged = FitState.by_site([state_of(site, TARGETS, rows) for rows in SITES])
    found = cross_val_from_sums(merged, C=[C])
    for k, rows in enumerate(SITES):
        rest = np.setdiff1d(np.arange(M), rows)
        model = PlainSparseLSSVR(C, **OPTIONS).fit(
            X[rest], TARGETS[rest], sample_weight=WEIGHT[rest]
        )
        squares = (TARGETS[rows] - model.predict(X[rows])) ** 2
        expected = np.average(squares, axis=0, weights=WEIGHT[rows])
        assert_allclose(found.by_output[k, :, 0], expected, rtol=1e-8)
    pooled = PlainSparseLSSVR("kfold").fit_from_state(merged)
    assert pooled.C_ in np.logspace(-6, 7, 50)
    assert pooled.fit_report_["criterion"] == "kfold"


def test_a_kernel_without_gamma_asks_for_none():
    rows = np.random.default_rng(0).normal(size=(30, 2))
    model = leansvm.SparseLSSVR(1.0, "linear", gamma=0.001, n_basis=3, random_state=0)
    model.fit(rows, rows[:, 0])
    again = leansvm.SparseLSSVR(1.0, "linear", gamma=0.001).fit_from_state(model.state())
    np.testing.assert_allclose(again.predict(rows), model.predict(rows), atol=1e-12)
