"""`Predictor` against the model it was made from: every estimator, kernel and kind of target."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_matrix
from sklearn.datasets import load_iris
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

import leansvm
from leansvm import Predictor
from leansvm.kernels import KERNELS, Kernel
from leansvm.losses import Logistic

X, y = load_iris(return_X_y=True)
X += 0.01 * np.random.default_rng(0).normal(size=X.shape).clip(-2, 2)  # no two rows are the same
GAMMA = np.array([0.5, 0.0, 1.5, 0.1])
NAMED = sorted({*KERNELS} - {"precomputed"})


def values_of(model, rows):
    return getattr(model, "decision_function", model.predict)(rows)


def scale_of(model):
    """The size of the terms that f adds up: rounding is measured against it."""
    weights = model.dual_coef_ if hasattr(model, "dual_coef_") else model.coef_
    return np.abs(weights).sum(axis=1).max() + np.abs(model.intercept_).max()


def assert_same(model, rows=X, machine=None):
    """Row by row and all at once, numbers and labels, also after a pickle."""
    predictor = pickle.loads(pickle.dumps(Predictor(model)))
    expected = values_of(model, rows)
    atol = 1e-9 * scale_of(model if machine is None else machine)
    assert_allclose([predictor.decision_function(x) for x in rows], expected, atol=atol, rtol=0)
    assert_allclose(predictor.decision_function(rows), expected, atol=1e-6 * atol, rtol=1e-12)
    labels = [predictor.predict(x) for x in rows]
    if hasattr(model, "classes_"):
        assert_array_equal(labels, model.predict(rows))
        assert_array_equal(predictor.predict(rows), model.predict(rows))
    else:
        assert_allclose(labels, model.predict(rows), atol=atol, rtol=0)


@pytest.mark.parametrize("kernel", NAMED)
@pytest.mark.parametrize("target", ["two", "three", "text", "number", "numbers"])
def test_every_kernel_and_kind_of_target(kernel, target):
    targets = {
        "two": y > 0,
        "three": y,
        "text": np.array(["a", "b", "c"])[y],
        "number": X[:, 0] - X[:, 1],
        "numbers": X[:, :2],
    }[target]
    kind = leansvm.LSSVR if target.startswith("number") else leansvm.LSSVC
    assert_same(kind(kernel=kernel, C=0.1, gamma=0.01).fit(X[::2], targets[::2]))


@pytest.mark.parametrize("kernel", ["rbf", "matern12", "matern32", "matern52", "laplacian"])
@pytest.mark.parametrize("clip", [None, (np.full(4, 1.0), np.full(4, 4.0))])
@pytest.mark.parametrize("gamma", [GAMMA, 0.7, 0.0, 1e8])
def test_values_of_one_row(kernel, clip, gamma):
    """Against the block of the kernel, at the points themselves and far away, too."""
    kernel = Kernel(kernel, gamma=gamma, clip=clip)
    form, points = kernel.row_form(X[:40]), X[:40]
    for x in (*X[30:60], X[0] + 1e-9, np.full(4, 1e6)):
        assert_allclose(form(x), kernel.block(x[None], points)[0], atol=2e-9)


@pytest.mark.parametrize(
    "model",
    [
        leansvm.SparseLSSVC(n_basis=20, C=1.0, random_state=0),  # scales are learned
        leansvm.SparseLSSVR(n_basis=20, C=1.0, kernel="rbf", gamma="scale", random_state=0),
        leansvm.ReducedSVC(kernel="rbf", gamma="scale", n_basis=20, random_state=0),
        leansvm.ReducedSVR(n_basis=20, random_state=0),
        leansvm.L2SVC(),
        leansvm.L2SVC(kernel="linear"),
        leansvm.LowRankLSSVC(n_basis=3, max_iter=5, tol=1.0, random_state=0),
        leansvm.LowRankLSSVR(n_basis=3, max_iter=5, tol=1.0, random_state=0),
        leansvm.LSSVC(kernel=lambda A, B: A @ B.T),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_estimator(model):
    if callable(getattr(model, "kernel", None)):
        model.set_params(kernel=linear)
    assert_same(model.fit(X[::2], y[::2]))


def linear(A, B):
    return A @ B.T


def test_other_kinds_of_rows():
    assert_same(leansvm.LSSVC(gamma=0.5).fit(csr_matrix(X), y))
    assert_same(leansvm.LSSVC(kernel="precomputed").fit(X @ X.T, y), X @ X.T)
    model = leansvm.LSSVC(gamma=0.5).fit(X.astype(np.float32), y)
    assert_same(model)
    predictor = Predictor(model)
    assert predictor.predict(list(X[0])) == predictor.predict(X[:1].astype(np.float32))[0]
    assert predictor.predict(np.empty((0, 4))).shape == (0,)


def test_probabilities():
    for targets in (y, y > 0):
        model = leansvm.LSSVC(calibrate=True, gamma=0.5).fit(X, targets)
        predictor = Predictor(model)
        expected = model.predict_proba(X)
        assert_allclose([predictor.predict_proba(x) for x in X], expected, atol=1e-9)
        assert_allclose(predictor.predict_proba(X), expected, atol=1e-12)
    with pytest.raises(AttributeError, match="calibrate=True"):
        Predictor(leansvm.LSSVC(calibrate=False).fit(X, y)).predict_proba(X[0])


def test_probabilities_of_a_logistic_loss():
    for targets, loss in ((y, "logistic"), (y > 0, Logistic(p=2.0))):
        model = leansvm.ReducedSVC(1.0, loss=loss, n_basis=8, gamma=0.5, random_state=0)
        model.set_params(calibrate=False)
        predictor = pickle.loads(pickle.dumps(Predictor(model.fit(X, targets))))
        expected = model.predict_proba(X)
        assert_allclose([predictor.predict_proba(x) for x in X], expected, atol=1e-9)
        assert_allclose(predictor.predict_proba(X), expected, atol=1e-12)
    model.set_params(calibrate=True)  # no scale is known, as model.predict_proba says too
    with pytest.raises(AttributeError, match="calibrate=True"):
        Predictor(model).predict_proba(X[0])
    model.fit(X, y)
    assert_allclose(Predictor(model).predict_proba(X), model.predict_proba(X), atol=1e-12)


@pytest.mark.parametrize(
    "steps",
    [
        [StandardScaler()],
        [StandardScaler(with_mean=False), StandardScaler(with_std=False)],
        [RobustScaler(), "passthrough"],
        ["passthrough"],
        ["passthrough", StandardScaler()],
        [RobustScaler(with_centering=False, with_scaling=False)],
        [MinMaxScaler((-1, 1)), MaxAbsScaler()],
    ],
)
def test_scalers_in_a_pipeline(steps):
    model = make_pipeline(*steps, leansvm.LSSVC(gamma=0.5)).fit(X[::2], y[::2])
    assert_same(model, machine=model[-1])


@pytest.mark.parametrize("scaler", [MinMaxScaler, MaxAbsScaler])
def test_scalers_that_clip_are_refused(scaler):
    if "clip" not in scaler().get_params():
        pytest.skip("this version of scikit-learn has no such parameter")
    model = make_pipeline(scaler(clip=True), leansvm.LSSVC(gamma=0.5)).fit(X, y)
    with pytest.raises(TypeError, match="without clip"):
        Predictor(model)


def test_threads_share_a_predictor():
    model = leansvm.LSSVC(kernel="matern32", gamma=0.5).fit(X, y)
    predictor = Predictor(model)
    alone = [predictor.decision_function(x) for x in X]
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: list(map(predictor.decision_function, X)), range(8)):
            assert_array_equal(found, alone)


def test_a_later_fit_changes_nothing():
    model = leansvm.LSSVC(gamma=0.5).fit(X, y)
    predictor = Predictor(model)
    before = predictor.decision_function(X[0])
    model.fit(X[:100], y[:100])
    assert_array_equal(predictor.decision_function(X[0]), before)


def test_what_it_refuses():
    model = leansvm.LSSVC(gamma=0.5).fit(X, y)
    predictor = Predictor(model)
    for bad in (X[0, :3], X[:, :3], X[None]):
        with pytest.raises(ValueError, match="one row of 4 features"):
            predictor.predict(bad)
    for value, words in ((np.nan, "is missing, but training"), (-np.inf, "holds infinity")):
        with pytest.raises(ValueError, match=f"Column 'x1' {words}"):
            predictor.predict([1.0, value, 1.0, 1.0])
        with pytest.raises(ValueError, match=f"Column 'x1' {words}"):
            predictor.predict([[1.0, value, 1.0, 1.0]])
    with pytest.raises(TypeError, match="dense numbers"):
        predictor.predict(csr_matrix(X))
    for bad in ([1.0, "a", 1.0, 1.0], [X[0], [1.0, "a", 1.0, 1.0]]):
        with pytest.raises(ValueError, match="Column 'x1' had numbers in training, but now 'a'"):
            predictor.predict(bad)
    with pytest.raises(ValueError, match="A row has 4 values"):
        predictor.predict([X[0], X[0, :3]])
    with pytest.raises(ValueError, match="without names of columns: pass a list of numbers"):
        predictor.predict({"a": 1.0})
    with pytest.raises(NotFittedError):
        Predictor(leansvm.LSSVC())
    with pytest.raises(TypeError, match="got StandardScaler"):
        Predictor(StandardScaler().fit(X))
    with pytest.raises(TypeError, match=r"step PCA.*TableEncoder.*\(pipeline\[-1\]\)"):
        Predictor(make_pipeline(PCA(), leansvm.LSSVC()).fit(X, y))


def test_values_that_are_too_large():
    model = leansvm.LSSVC(kernel="poly", gamma=1.0).fit(X, y)
    with pytest.raises(ValueError, match="not finite"):
        Predictor(model).predict(np.full(4, 1e120))
    far = np.full(4, 1e300)  # whose square overflows
    model = leansvm.LSSVC(gamma=0.5).fit(X, y)
    assert_array_equal(Predictor(model).decision_function(far), model.intercept_)


def test_arrays_of_other_libraries(monkeypatch):
    model = leansvm.SparseLSSVC(n_basis=9, C=1.0, kernel="rbf", gamma=0.5).fit(X, y)
    monkeypatch.setattr("leansvm.export.predictor.foreign_namespace", lambda points: np)
    with pytest.raises(TypeError, match="to_numpy"):
        Predictor(model)


# ------------------------------------------------------------- names


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("text", [False, True])
def test_columns_are_found_by_name(library, text):
    library = pytest.importorskip(library)
    frame = library.DataFrame(dict(zip("abcd", X.T, strict=True)))
    if text:
        more = {"e": np.array(["x", "y", "z"])[np.arange(len(X)) % 3]}
        frame = library.DataFrame(dict(zip("abcd", X.T, strict=True)) | more)
    model = leansvm.LSSVC(gamma=0.5).fit(frame, y)
    predictor, expected = Predictor(model), model.decision_function(frame)
    names = list(frame.columns)[::-1]
    assert_allclose(predictor.decision_function(frame[names]), expected, atol=1e-12)
    columns = [frame[name] for name in names]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    assert_allclose(predictor.decision_function(rows), expected, atol=1e-9)
    assert_allclose(predictor.decision_function(rows[7]), expected[7], atol=1e-9)
    if hasattr(frame, "iloc"):
        row = frame[names].iloc[7]
        assert_allclose(predictor.decision_function(row), expected[7], atol=1e-9)
    with pytest.raises(ValueError, match="'a'"):
        predictor.predict(frame[names[:-1]])
    with pytest.raises(ValueError, match="'A'"):
        predictor.predict(rows[0] | {"A": 1.0})


def test_what_json_may_hold_is_refused_with_the_errors_of_values():
    """A service answers "bad request" to TypeError and ValueError."""
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"x": X[:, 0], "city": ["Oslo", "Rome", None] * (len(X) // 3)})
    predictor = Predictor(leansvm.LSSVC(gamma=0.5).fit(table, y[: len(table)]))
    numbers = Predictor(leansvm.LSSVC(gamma=0.5).fit(table[["x"]].assign(z=X[:, 1]), y))
    for bad in (5, None, True, "text"):
        for model in (predictor, numbers):
            with pytest.raises(TypeError, match="A row is a dict of columns and values, or a list"):
                model.predict(bad)
    for bad in ("1_000", 10**400, "many"):
        with pytest.raises(ValueError, match="Column 'x' had numbers in training, but now"):
            predictor.predict({"x": bad})
    for bad in (10**400, "many", "yes", [1], {"a": 1}):
        for rows in ({"x": bad, "z": 1}, [{"z": 1, "x": bad}], pandas.DataFrame({"x": [bad]})):
            if isinstance(rows, pandas.DataFrame):
                rows["z"] = 1.0
            with pytest.raises(ValueError, match="Column 'x' had numbers in training, but now"):
                numbers.predict(rows)
    for bad in (None, float("nan"), "n/a"):
        with pytest.raises(ValueError, match="Column 'x' is missing, but training had no missing"):
            numbers.predict({"x": bad, "z": 1})


def test_scalers_before_missing_values():
    rows = X.copy()
    rows[::7, 1] = np.nan
    model = make_pipeline(StandardScaler(), leansvm.LSSVC(gamma=0.5)).fit(rows, y)
    predictor, expected = Predictor(model), model.decision_function(rows)
    assert_allclose(predictor.decision_function(rows), expected, atol=1e-12)
    assert_allclose([predictor.decision_function(row) for row in rows], expected, atol=1e-9)


# ------------------------------------------------------------- rows that need no validation


def test_rows_that_are_ready_are_not_validated(monkeypatch):
    model = leansvm.LSSVC(gamma=0.5).fit(X, y)
    expected = model.predict(X)
    monkeypatch.setattr("leansvm.estimators.predict.validate", None)
    assert_array_equal(model.predict(X), expected)
    for other in (
        X.tolist(),
        X.astype(np.float32),
        np.asfortranarray(X),
        csr_matrix(X),
        X[:, ::-1],
    ):
        with pytest.raises(TypeError, match="NoneType"):
            model.predict(other)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rows_that_are_not_ready_are_refused_as_before(bad):
    model = leansvm.LSSVC(gamma=0.5).fit(X, y)
    rows = X[:3].copy()
    rows[1, 2] = bad
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        model.predict(rows)
    with pytest.raises(ValueError, match="3 features, but LSSVC is expecting 4"):
        model.predict(X[:, :3].copy())
    with pytest.raises(ValueError, match="minimum of 1"):
        model.predict(X[:0])
    with pytest.raises(NotFittedError):
        leansvm.LSSVC().predict(X)
    large = np.array([[1e308, 1e308, 1.0, 1.0]])  # finite, but their sum is not
    assert model.predict(large).shape == (1,)


def test_missing_names_are_still_mentioned():
    pandas = pytest.importorskip("pandas")
    model = leansvm.LSSVC(gamma=0.5).fit(pandas.DataFrame(X, columns=list("abcd")), y)
    with pytest.warns(UserWarning, match="feature names"):
        model.predict(X)
