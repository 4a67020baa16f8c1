"""States in files: the same after loading, refused when damaged or of another format."""

import io
import json
import zipfile

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone

import leansvm
from leansvm import persistence
from leansvm.kernels import Kernel
from leansvm.persistence import FitState, StateError
from leansvm.ridge.state import FORMAT
from tests.plain import PlainSparseLSSVC, PlainSparseLSSVR

rng = np.random.default_rng(11)
M, C = 160, 20.0
X = rng.normal(size=(M, 3))
Z = rng.normal(size=(30, 3))
TWO = np.where(X[:, 0] + 0.5 * rng.normal(size=M) > 0, "yes", "no")
THREE = np.digitize(X[:, 0] + 0.3 * rng.normal(size=M), [-0.5, 0.5])
TARGET = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 40
TARGETS = np.column_stack([TARGET, 100 * X[:, 2] - 30])
POINTS = rng.normal(size=(15, 3))
OPTIONS = {"gamma": 0.4, "basis": POINTS}


def values(model):
    return model.decision_function(Z) if hasattr(model, "classes_") else model.predict(Z)


def saved_cases():
    holes = sparse.csr_array(np.where(abs(X) < 0.5, 0.0, X))
    per_feature = Kernel("laplacian", gamma=np.array([0.1, 0.2, 0.3])).gamma
    return {
        "text labels": (PlainSparseLSSVC("kfold", **OPTIONS), X, TWO),
        "objects": (PlainSparseLSSVC(C, **OPTIONS), X, TWO.astype(object)),
        "weighted": (PlainSparseLSSVC(C, class_weight={1: 3.0}, **OPTIONS), X, THREE),
        "float32": (PlainSparseLSSVR(C, n_basis=9, random_state=0), X.astype(np.float32), TARGETS),
        "sparse": (PlainSparseLSSVR(C, n_basis=9, random_state=0), holes, TARGET),
        "per feature": (
            PlainSparseLSSVR(C, "laplacian", gamma=per_feature, basis=POINTS),
            X,
            TARGET,
        ),
        "no bias": (PlainSparseLSSVR(C, fit_intercept=False, **OPTIONS), X, TARGET),
        "penalised": (PlainSparseLSSVR("kfold", bias_penalty=2.0, **OPTIONS), X, TARGET),
    }


@pytest.mark.parametrize("case", saved_cases())
def test_a_saved_state_is_the_same(case, tmp_path):
    model, rows, y = saved_cases()[case]
    state = model.fit(rows, y).state()
    state.save(tmp_path / "a")
    loaded = FitState.load(tmp_path / "a")
    assert repr(loaded) == repr(state)
    again = clone(model).fit_from_state(loaded)
    assert_array_equal(again.dual_coef_, clone(model).fit_from_state(state).dual_coef_)
    assert_allclose(values(again), values(model), rtol=1e-6)  # float32 rows are worked on as such
    assert (loaded + state).n_rows == 2 * M  # not refused
    if state.classes is not None:
        assert again.classes_.dtype.kind == model.classes_.dtype.kind
        assert_array_equal(again.predict(Z), model.predict(Z))
    loaded.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_model_of_a_state_can_be_saved(tmp_path):
    pytest.importorskip("skops")
    state = PlainSparseLSSVC("kfold", **OPTIONS).fit(X, THREE).state()
    model = leansvm.SparseLSSVC("kfold").fit_from_state(state)
    persistence.save(model, tmp_path / "model")
    assert_array_equal(persistence.load(tmp_path / "model").predict(Z), model.predict(Z))


def product(a, b):
    return a @ b.T


def test_kernels_of_your_own_merge_but_are_not_saved(tmp_path):
    model = PlainSparseLSSVR(C, product, basis=POINTS).fit(X, TARGET)
    twice = PlainSparseLSSVR(C, product).fit_from_state(model.state() + model.state())
    weighted = PlainSparseLSSVR(C, product, basis=POINTS).fit(
        X, TARGET, sample_weight=np.full(M, 2.0)
    )
    assert_allclose(values(twice), values(weighted), rtol=1e-8)
    with pytest.raises(StateError, match="callable kernel cannot be saved"):
        model.state().save(tmp_path / "a")
    assert not list(tmp_path.iterdir())


def parts_of(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewritten(path, parts, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


def as_npy(array):
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=True)
    return file.getvalue()


@pytest.fixture
def path(tmp_path):
    PlainSparseLSSVC("kfold", **OPTIONS).fit(X, THREE).state().save(tmp_path / "state")
    return tmp_path / "state"


def test_files_of_another_format_are_refused_by_name(path):
    parts = parts_of(path)
    facts = json.loads(parts["state.json"])
    newer = json.dumps(facts | {"format": FORMAT + 1, "leansvm": "9.0"})
    rewritten(path, parts | {"state.json": newer})
    with pytest.raises(StateError, match=f"format {FORMAT + 1}, written by leansvm '9.0'"):
        FitState.load(path)
    for text, words in (('{"kind": "song"}', "not written by"), ("[1]", "not written by")):
        rewritten(path, parts | {"state.json": text})
        with pytest.raises(StateError, match=words):
            FitState.load(path)
    del parts["state.json"]
    rewritten(path, parts)
    with pytest.raises(StateError, match="not written by"):
        FitState.load(path)
    with pytest.raises(FileNotFoundError):
        FitState.load(path.with_name("none"))


def test_damaged_files_are_refused(path):
    parts = parts_of(path)
    grams = np.zeros((5, 19, 19))
    wrong = {
        "objects": {"classes.npy": as_npy(np.array([{}, 1, 2], dtype=object))},
        "another part": {"code.npy": as_npy(np.zeros(1))},
        "another size": {"grams.npy": as_npy(grams[:, :5])},
        "not finite": {"grams.npy": as_npy(grams + np.nan)},
        "not symmetric": {"grams.npy": as_npy(grams + np.arange(19))},
        "negative": {"grams.npy": as_npy(grams - np.eye(19))},
        "points": {"points.npy": as_npy(np.zeros((15, 3), dtype=int))},
        "no row": {"selected.npy": as_npy(np.full(15, -2))},
        "same point twice": {"kept.npy": as_npy(np.zeros(15, dtype=int))},
        "huge": {"L.npy": parts["L.npy"][:128].replace(b"(15, 15)", b"(99999, 99999)")[:128]},
        "cut": {"L.npy": parts["L.npy"][:-8]},
    }
    for name, other in wrong.items():
        rewritten(path, parts | other)
        with pytest.raises(StateError, match="not a state, or is damaged"):
            FitState.load(path)
        assert name
    facts = json.loads(parts["state.json"])
    changes = [("n_rows", -1), ("n_features", 4), ("gamma", -1.0), ("count", "1")]
    changes += [("kernel", "x"), ("kernel", "precomputed"), ("coef0", float("nan"))]
    for key, value in changes:
        rewritten(path, parts | {"state.json": json.dumps(facts | {key: value})})
        with pytest.raises(StateError, match="not a state, or is damaged"):
            FitState.load(path)


def test_packed_bombs_are_refused(path):
    parts = parts_of(path) | {"L.npy": as_npy(np.zeros((3000, 3000)))}
    rewritten(path, parts, zipfile.ZIP_DEFLATED)
    with pytest.raises(StateError, match="is compressed, but no part may be"):
        FitState.load(path)


def test_flipped_bytes_never_do_more_than_be_refused(path):
    content = path.read_bytes()
    bits = np.random.default_rng(0)
    for _ in range(150):
        broken = bytearray(content)
        for place in bits.integers(0, len(content), size=3):
            broken[place] ^= 1 << int(bits.integers(8))
        path.write_bytes(broken)
        try:
            FitState.load(path)
        except StateError:
            continue
