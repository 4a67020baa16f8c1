"""Mixtures of kernels in model files, states, pickles and clones; bad ones are refused."""

import io
import json
import pickle
import zipfile

import numpy as np
import pytest
from sklearn.base import clone

from leansvm import LSSVC, SparseLSSVC, SparseLSSVR
from leansvm.kernels import Kernel, Mixture
from leansvm.persistence import FitState, ModelFileError, StateError, load, save

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3))
Y = np.sin(2 * X[:, 0]) + X[:, 1]
_G = np.array([0.5, 0.2, 0.0, 0.3])


def mixture(weight=0.5):
    return Mixture(
        [(weight, "rbf", _G), (0.3, "laplacian", 2 * _G), (0.2, "linear", _G[:3])],
        clip=(np.full(3, -2.0), np.array([2.0, np.inf, 2.0])),
        linear_clip=(np.full(3, -5.0), np.full(3, 5.0)),
        origin=np.array([0.1, 0.0, 0.0]),
        knots=[(1, [-1.0, 0.0, 1.0], [-2.0, 0.5, 1.0])],
    )


def machine(kernel=None, **params):
    kernel = mixture() if kernel is None else kernel
    return SparseLSSVR(kernel=kernel, n_basis=12, basis="random", random_state=0, **params)


@pytest.mark.parametrize("keep_sums", [False, True])
@pytest.mark.parametrize("model", [machine(), LSSVC(kernel=mixture()), SparseLSSVC()])
def test_model_files(model, keep_sums, tmp_path):
    model = clone(model).fit(X, Y > 0 if hasattr(model, "predict_proba") else Y.round() > 0)
    if "keep_state" in model.get_params():
        model.set_params(keep_state=keep_sums)
    save(model, tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.kernel_ == model.kernel_
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_pickle_and_clone():
    model = machine().fit(X, Y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert clone(model).kernel == model.kernel
    refitted = machine(model.kernel_).fit(X, Y)
    np.testing.assert_array_equal(refitted.predict(X), model.predict(X))


def test_partial_fit_refuses_another_mixture():
    model = machine(C=1.0).fit(X[:40], Y[:40])
    model.kernel = mixture()  # equal numbers
    model.partial_fit(X[40:], Y[40:])
    model.kernel = mixture(0.6)
    with pytest.raises(ValueError, match="partial_fit: kernel="):
        model.partial_fit(X[40:], Y[40:])


# ------------------------------------------------------------------ states


def test_states_merge_and_files_keep_them(tmp_path):
    model = machine(C=1.0).fit(X[:40], Y[:40])
    first = model.state()
    second = model.state(X[40:], Y[40:])
    first.save(tmp_path / "s")
    again = FitState.load(tmp_path / "s")
    assert again.features.kernel.given == mixture()
    both = again + second
    pooled = machine(C=1.0).fit_from_state(both)
    assert pooled.kernel_ == mixture()
    assert set(pooled.gamma_) == {"rbf", "laplacian", "linear"}
    np.testing.assert_allclose(
        pooled.predict(X), model.partial_fit(X[40:], Y[40:]).predict(X), rtol=1e-9
    )


def test_states_of_other_mixtures_are_refused():
    state = machine(C=1.0).fit(X, Y).state()
    other = machine(mixture(0.6), C=1.0).fit(X, Y).state()
    with pytest.raises(StateError, match="kernel differs"):
        state + other
    with pytest.raises(StateError, match="kernel="):
        machine(mixture(0.6), C=1.0).fit_from_state(state)
    with pytest.raises(StateError, match="kernel="):
        machine("rbf", C=1.0).fit_from_state(state)


# ------------------------------------------------------------------ crafted files

BAD = {
    "negative weights": ("weights", lambda a: -a),
    "no weights": ("weights", lambda a: 0 * a),
    "weights that are not finite": ("weights", lambda a: a * np.nan),
    "too few weights": ("weights", lambda a: a[:2]),
    "a table of weights": ("weights", lambda a: a[None]),
    "gamma of another length": ("gamma1", lambda a: a[:2]),
    "gamma that is not finite": ("gamma0", lambda a: a + np.inf),
    "knots that fall": ("knots0", lambda a: a[:, ::-1]),
    "one knot": ("knots0", lambda a: a[:, :1]),
    "three rows of knots": ("knots0", lambda a: np.vstack([a, a[:1]])),
    "knots that are not finite": ("knots0", lambda a: a * np.nan),
    "a feature that is missing": ("features", lambda a: a + 7),
    "a huge feature": ("features", lambda a: a + 1e300),
    "many features": ("features", lambda a: np.zeros(1000)),
    "bounds of another length": ("clip", lambda a: a[:, :2]),
    "bounds upside down": ("clip", lambda a: a[::-1]),
    "one bound": ("linear_clip", lambda a: a[:1]),
    "bounds that are not finite": ("linear_clip", lambda a: a * np.nan),
    "origin of another length": ("origin", lambda a: a[:1]),
}


def rewritten(path, old, new, tmp_path):
    """Replace an array in an archive by another one, wherever it is."""
    target, buffer = tmp_path / "bad", io.BytesIO()
    np.save(buffer, np.ascontiguousarray(new))
    replaced = 0
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(target, "w") as bad:
        for part in source.infolist():
            content = source.read(part)
            if part.filename.endswith(".npy"):
                found = np.load(io.BytesIO(content), allow_pickle=False)
                if found.shape == old.shape and np.array_equal(found, old):
                    content, replaced = buffer.getvalue(), replaced + 1
            bad.writestr(part, content)
    assert replaced
    return target


@pytest.mark.parametrize("what", BAD)
def test_bad_mixtures_in_files(what, tmp_path):
    name, change = BAD[what]
    model = machine(C=1.0).fit(X, Y)
    old = mixture().numbers()[name]
    save(model, tmp_path / "m")
    with pytest.raises(ModelFileError, match="is damaged"):
        load(rewritten(tmp_path / "m", old, change(old), tmp_path))
    model.state().save(tmp_path / "s")
    with pytest.raises(StateError, match="damaged"):
        FitState.load(rewritten(tmp_path / "s", old, change(old), tmp_path))


@pytest.mark.parametrize("parts", [None, [], ["rbf"], ["rbf", "poly", "linear"], [1, 2, 3], 10**9])
def test_states_with_unknown_parts(parts, tmp_path):
    machine(C=1.0).fit(X, Y).state().save(tmp_path / "s")
    with zipfile.ZipFile(tmp_path / "s") as source, zipfile.ZipFile(tmp_path / "t", "w") as bad:
        for part in source.infolist():
            content = source.read(part)
            if part.filename == "state.json":
                content = json.dumps(json.loads(content) | {"parts": parts}).encode()
            bad.writestr(part, content)
    with pytest.raises(StateError, match="damaged"):
        FitState.load(tmp_path / "t")


def test_a_mixture_of_other_features_is_refused(tmp_path):
    model = machine(C=1.0).fit(X, Y)
    model.kernel_ = Mixture([(1.0, "rbf", np.ones(4))])
    with pytest.raises(ModelFileError, match="4 features, not 3"):
        save(model, tmp_path / "m")
    model.kernel_ = mixture()
    model.gamma_ = {"rbf": np.ones(3)}
    with pytest.raises(ModelFileError, match="gamma_ does not match"):
        save(model, tmp_path / "m")
    assert Kernel(mixture()).given == mixture()
