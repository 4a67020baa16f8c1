"""Rows one by one: residual, leverage and influence are those of refitting."""

import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import kstest
from sklearn.metrics.pairwise import rbf_kernel

from leansvm import LSSVC, LSSVR, ReducedSVC
from leansvm.basis.features import KernelFeatures
from leansvm.inspection import inspect_rows, novelty
from leansvm.ridge import pairs, without_row
from tests.plain import PlainSparseLSSVC, PlainSparseLSSVR


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    Y = np.column_stack([np.sin(2 * X[:, 0]), X[:, 1]]) + 0.3 * rng.normal(size=(120, 2))
    return X, Y, rng.integers(1, 4, size=120).astype(float)


def machines(X):
    return {
        "few": PlainSparseLSSVR(2.0, gamma=0.3, basis=X[:9].copy()),
        "most": PlainSparseLSSVR(2.0, gamma=0.3, basis=X[:80].copy()),
        "all": LSSVR(2.0, gamma=0.3),
        "penalised": LSSVR(2.0, gamma=0.3, bias_penalty=3.0),
    }


@pytest.mark.parametrize("kind", ["few", "most", "all", "penalised"])
def test_rows_are_those_of_refitting(rows, kind):
    X, Y, weight = rows
    model = machines(X)[kind].fit(X, Y, sample_weight=weight)
    found = inspect_rows(model, X, Y, weight)
    errors = left_out_errors(model, X, Y, weight)
    for i in range(0, 120, 40):
        kept = np.arange(120) != i
        less = machines(X)[kind].fit(X[kept], Y[kept], sample_weight=weight[kept])
        residual = Y[i] - less.predict(X[i : i + 1])[0]
        # nearly dependent points: which of them are dropped depends on the processor
        np.testing.assert_allclose(found.residual[i], residual, rtol=1e-7)
        # e = r (1 - h)
        share = 1 - (Y[i] - model.predict(X[i : i + 1])[0]) / residual
        np.testing.assert_allclose(found.leverage[i], share, rtol=1e-6)
        others = left_out_errors(less, X[kept], Y[kept], weight[kept])
        added = (errors[kept].sum() - others.sum()) / weight.sum()
        size = np.abs(errors[kept] - others).sum() / weight.sum()
        assert abs(found.influence[i] - added) < 0.05 * size


def left_out_errors(model, X, Y, weight):
    """Return s r^2 of every row; the residuals r are compared with refitting above."""
    residual = inspect_rows(model, X, Y, weight).residual
    return weight * np.sum(residual**2, axis=1)


@pytest.mark.parametrize("bias", [{}, {"bias_penalty": 2.0}], ids=str)
def test_rows_that_are_basis_points_are_not_computed_again(rows, monkeypatch, bias):
    X, Y, weight = rows
    numbers = np.random.default_rng(3).permutation(120)[:50]
    given = PlainSparseLSSVR(2.0, gamma=0.3, basis=X[numbers].copy(), **bias)
    expected = inspect_rows(given.fit(X, Y, sample_weight=weight), X, Y, weight)
    model = PlainSparseLSSVR(2.0, gamma=0.3, basis=numbers, **bias)
    model.fit(X, Y, sample_weight=weight)
    computed, transform = [], KernelFeatures.transform

    def counted(features, X, out=None):
        computed.append(len(X))
        return transform(features, X, out)

    monkeypatch.setattr(KernelFeatures, "transform", counted)
    found = inspect_rows(model, X, Y, weight)
    assert sum(computed) == 120 - 50
    for name in ("residual", "leverage", "influence", "suspicion", "novelty"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-7)
    with pytest.raises(ValueError, match="not the rows"):  # the basis rows alone are others
        inspect_rows(model, np.where(np.isin(np.arange(120), numbers)[:, None], -X, X), Y, weight)


def test_a_loaded_model_finds_its_basis_among_the_rows(rows):
    X, Y, weight = rows
    model = PlainSparseLSSVR(2.0, gamma=0.3, n_basis=50, random_state=0)
    expected = inspect_rows(model.fit(X, Y, sample_weight=weight), X, Y, weight)
    found = inspect_rows(pickle.loads(pickle.dumps(model)), X, Y, weight)
    np.testing.assert_allclose(found.residual, expected.residual, rtol=1e-8)
    np.testing.assert_allclose(found.novelty, expected.novelty, rtol=1e-8)


def test_influence_is_computed_when_it_is_read(rows, monkeypatch):
    X, Y, weight = (part.copy() for part in rows)
    model = machines(X)["few"].fit(X, Y, sample_weight=weight)
    pulls, calls = without_row.PrimalLeftOut.pulls, []

    def counted(self, *args):
        calls.append(1)
        return pulls(self, *args)

    monkeypatch.setattr(without_row.PrimalLeftOut, "pulls", counted)
    found = inspect_rows(model, X, Y, weight)
    assert not calls and "influence" not in repr(found)
    expected = found.influence.copy()
    assert found.influence is found.influence and len(calls) == 1
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.influence, expected)
    np.testing.assert_array_equal(again.most_suspicious(3), found.most_suspicious(3))


@pytest.mark.parametrize("kept", [False, True])
def test_influence_of_rows_that_were_changed(rows, monkeypatch, kept):
    X, Y, weight = (part.copy() for part in rows)
    monkeypatch.setattr(without_row, "_KEEP_BYTES", 2**29 if kept else 0)
    model = machines(X)["few"].fit(X, Y, sample_weight=weight)
    expected = inspect_rows(model, X, Y, weight).influence
    model = machines(X)["few"].fit(X, Y, sample_weight=weight)
    found = inspect_rows(model, X, Y, weight)
    X *= -1.0
    if kept:  # nothing is read again
        np.testing.assert_array_equal(found.influence, expected)
    else:
        with pytest.raises(ValueError, match="changed since then"):
            _ = found.influence


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-11), (np.float32, 1e-4)])
def test_both_forms_of_the_sums_over_pairs(monkeypatch, dtype, rtol):
    monkeypatch.setattr(pairs, "_ROWS", 30)
    monkeypatch.setattr(pairs, "_PANEL", 7)
    rng = np.random.default_rng(4)
    W, a, c = rng.normal(size=(100, 20)), rng.normal(size=(100, 3)), rng.uniform(size=(100, 2))
    g = W @ W.T
    tiles = [slice(0, 64), slice(64, 128)]
    first, second = pairs.sums_by_forms(W.__getitem__, tiles, a, c, dtype)
    np.testing.assert_allclose(first, g @ a, rtol=1e-9)
    np.testing.assert_allclose(second, g**2 @ c, rtol=rtol)
    np.fill_diagonal(g, 0.0)
    np.testing.assert_allclose(pairs.squares_by_pairs(W, c, dtype), g**2 @ c, rtol=rtol)


def test_rows_that_are_not_kept_give_the_same(rows, monkeypatch):
    X, Y, weight = rows
    model = machines(X)["few"].fit(X, Y, sample_weight=weight)
    expected = inspect_rows(model, X, Y, weight)
    monkeypatch.setattr(without_row, "_KEEP_BYTES", 0)
    monkeypatch.setattr(without_row, "_TILE_BYTES", 4 * 8 * 11 * 50)
    again = machines(X)["few"].fit(X, Y, sample_weight=weight)
    found = inspect_rows(again, X, Y, weight)
    for name in ("residual", "leverage", "influence", "suspicion", "novelty"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9)


@pytest.mark.parametrize("as_csr", [False, True])
def test_a_second_call_uses_what_the_first_has_worked_out(rows, as_csr):
    X, Y, weight = (part.copy() for part in rows)
    X = sparse.csr_array(X) if as_csr else X
    model = machines(rows[0])["few"].fit(X, Y, sample_weight=weight)
    first = inspect_rows(model, X, Y, weight)
    known = model._answers.left_out
    second = inspect_rows(model, X.copy(), Y.copy(), weight.copy())
    assert model._answers.left_out is known
    np.testing.assert_array_equal(first.influence, second.influence)
    (X.data if as_csr else X)[...] *= -1.0  # the same array, other rows
    with pytest.raises(ValueError, match="not the rows"):
        inspect_rows(model, X, Y, weight)


def test_copies_share_their_numbers_and_weights_of_zero_are_told(rows):
    X, Y, _ = rows
    X, Y = np.vstack([X, X[:2], X[5:6] + 9]), np.vstack([Y, Y[:2], Y[5:6]])
    weight = np.r_[np.ones(122), 0.0]
    model = PlainSparseLSSVR(2.0, gamma=0.3, basis=X[:9].copy()).fit(X, Y, sample_weight=weight)
    found = inspect_rows(model, X, Y, weight)
    for name in ("residual", "leverage", "influence", "suspicion", "novelty"):
        np.testing.assert_array_equal(getattr(found, name)[120:122], getattr(found, name)[:2])
    np.testing.assert_allclose(found.residual[122], Y[122] - model.predict(X[122:])[0])
    assert found.leverage[122] == found.influence[122] == 0
    assert np.isnan(found.suspicion[122]) and 122 not in found.most_suspicious(122)


@pytest.mark.parametrize("machine", [PlainSparseLSSVC(1.0, n_basis=50, random_state=0), LSSVC()])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_wrong_labels_are_suspicious(machine, n_classes):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 2))
    y = np.digitize(X[:, 0], [-0.4, 0.4] if n_classes == 3 else [0.0])
    flipped = rng.choice(np.flatnonzero(np.abs(X[:, 0]) > 0.8), 12, replace=False)
    y[flipped] = n_classes - 1 - y[flipped]
    found = inspect_rows(machine.fit(X, y), X, y)
    assert np.isin(found.most_suspicious(12), flipped).mean() > 0.9
    assert found.suspicion[flipped].min() > 0.5
    others = np.delete(found.influence, flipped)
    assert found.influence[flipped].mean() > 0 > others.mean()  # wrong rows hurt, others help


def test_wrong_numbers_are_suspicious(rows):
    X, Y, _ = rows
    y = Y[:, 0].copy()
    y[7] += 10
    found = inspect_rows(PlainSparseLSSVR(n_basis=30, random_state=0).fit(X, y), X, y)
    assert found.most_suspicious(1)[0] == 7
    assert found.suspicion[7] == pytest.approx(1 - 1 / 120)


def test_novelty_of_rows_like_the_training_rows_is_even():
    rng = np.random.default_rng(2)
    X, X_new = rng.normal(size=(1000, 2)), rng.normal(size=(1000, 2))
    sparse = [PlainSparseLSSVR(1.0, n_basis=size, random_state=0) for size in (30, 150, 350)]
    for machine in (*sparse, LSSVR(1.0)):
        model = machine.fit(X[:400], X[:400, 0])
        assert kstest(novelty(model, X_new), "uniform").pvalue > 1e-4
    far = novelty(LSSVR(1.0, gamma=0.5).fit(X[:400], X[:400, 0]), X_new[:20] + 8)
    assert far.max() < 0.01


def test_refusals(rows):
    X, Y, _ = rows
    with pytest.raises(TypeError, match="ReducedSVC"):
        inspect_rows(ReducedSVC(), X, Y)
    model = PlainSparseLSSVR(1.0, n_basis=5, random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="not the rows"):
        inspect_rows(model, X[::-1], Y)
    K = rbf_kernel(X)
    with pytest.raises(ValueError, match="precomputed"):
        novelty(LSSVR(kernel="precomputed").fit(K, Y), K)


@pytest.mark.parametrize(("C", "way"), [(50.0, "PrimalLeftOut"), (1e6, "DualLeftOut")])
def test_a_basis_of_most_rows_takes_the_small_matrix_where_that_has_the_digits(rows, C, way):
    X, Y, weight = rows
    model = PlainSparseLSSVR(C, gamma=0.3, basis=X[:110].copy()).fit(X, Y, sample_weight=weight)
    answers = model._ask()
    found = answers.left_out
    assert type(found).__name__ == way
    data = answers.distinct
    features = answers.fitted.coordinates.features
    exact = answers._of_all_rows(data, features, bias_penalty=0.0)
    np.testing.assert_allclose(1 - found.leverage, 1 - exact.leverage, rtol=1e-9)
    np.testing.assert_allclose(found.residual, exact.residual, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found.influence, exact.influence, rtol=1e-6, atol=1e-10)


def test_a_warning_of_the_fit_does_not_come_again():
    pd = pytest.importorskip("pandas")
    y = np.random.default_rng(0).normal(size=80)
    table = pd.DataFrame({"day": [f"{1 + i % 28:02}/10/2023" for i in range(80)], "y": y + 1.0})
    with pytest.warns(UserWarning, match="look like dates"):
        model = PlainSparseLSSVR(10.0, "rbf", gamma=0.1, n_basis=20, random_state=0).fit(table, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inspect_rows(model, table, y)
