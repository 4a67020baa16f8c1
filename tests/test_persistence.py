"""Saved models: equal after loading, refused when damaged, newer or made of foreign types."""

import io
import json
import zipfile

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import leansvm
from leansvm import basis, functions, persistence
from leansvm.papers import baselines
from leansvm.persistence import ModelFileError, UntrustedTypesError

pytest.importorskip("skops")

X, y = load_iris(return_X_y=True)
MODELS = [
    leansvm.LSSVC(calibrate=True),
    leansvm.LSSVR(C="loo"),
    leansvm.L2SVC(),
    leansvm.SparseLSSVC(n_basis=20, basis=basis.PivotedCholesky()),
    leansvm.SparseLSSVR(n_basis=20, random_state=0),
    leansvm.ReducedSVC(n_basis=20, loss="logistic", random_state=0),
    leansvm.ReducedSVR(n_basis=20, random_state=0),
    leansvm.LowRankLSSVC(random_state=0),
    leansvm.LowRankLSSVR(function=functions.Simplex(), random_state=0),
    make_pipeline(StandardScaler(), leansvm.KernelBasis(20, random_state=0), leansvm.LSSVC()),
    *(getattr(baselines, name)() for name in baselines.__all__),
]


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.skops"
    persistence.save(leansvm.LSSVC().fit(X, y), path, metadata={"rows": 150})
    return path


def rewrite(path, **members):
    """Replace members of the archive; None leaves one out."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(buffer, "w") as new:
        for name in old.namelist():
            content = members.get(name.partition(".")[0], old.read(name))
            if content is not None:
                new.writestr(name, content)
    path.write_bytes(buffer.getvalue())


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_loaded_model_predicts_the_same(tmp_path, model):
    path = tmp_path / "model.skops"
    persistence.save(model.fit(X, y), path)
    loaded = persistence.load(path)
    assert type(loaded) is type(model)
    assert_array_equal(loaded.predict(X), model.predict(X))
    assert [file.name for file in tmp_path.iterdir()] == ["model.skops"]


def test_partial_fit_continues_after_loading(tmp_path):
    model = leansvm.SparseLSSVC(n_basis=20, random_state=0)
    model.partial_fit(X[::2], y[::2], classes=[0, 1, 2])
    persistence.save(model, tmp_path / "m")
    loaded = persistence.load(tmp_path / "m")
    assert_array_equal(
        loaded.partial_fit(X[1::2], y[1::2]).dual_coef_,
        model.partial_fit(X[1::2], y[1::2]).dual_coef_,
    )


def test_metadata_is_read_without_the_model(saved):
    rewrite(saved, schema=b"nonsense")
    facts = persistence.read_metadata(saved)
    assert facts["metadata"] == {"rows": 150} and facts["model"] == "LSSVC"
    assert facts["leansvm"] == leansvm.__version__
    with pytest.raises(ModelFileError, match=r"model\.skops is damaged"):
        persistence.load(saved)


def test_foreign_types_are_refused_by_name(tmp_path):
    path = tmp_path / "model.skops"
    foreign = make_pipeline(FunctionTransformer(np.linalg.cond), leansvm.LSSVC())
    foreign.steps[0][1].func = json.dumps
    persistence.save(foreign, path)
    with pytest.raises(UntrustedTypesError, match=r"json\.dumps") as caught:
        persistence.load(path)
    assert caught.value.types == ["json.dumps"]
    assert persistence.load(path, trusted=["json.dumps"]).steps[0][1].func is json.dumps


def test_functions_of_this_package_are_not_trusted(tmp_path):
    path = tmp_path / "model.skops"
    persistence.save(FunctionTransformer(persistence.load), path)
    with pytest.raises(UntrustedTypesError, match=r"leansvm\.persistence\.load"):
        persistence.load(path)


@pytest.mark.parametrize("keep", [0, 10, 2000, -30])
def test_part_of_a_file_is_refused(saved, keep):
    saved.write_bytes(saved.read_bytes()[:keep])
    with pytest.raises(ModelFileError, match=r"model\.skops is not a model file"):
        persistence.load(saved)


def test_flipped_bytes_are_found(saved):
    content = bytearray(saved.read_bytes())
    with zipfile.ZipFile(saved) as archive:
        arrays = [info for info in archive.infolist() if info.filename.endswith(".npy")]
    place = max(arrays, key=lambda info: info.file_size)
    middle = place.header_offset + place.compress_size // 2 + 100
    content[middle] ^= 0xFF
    saved.write_bytes(bytes(content))
    with pytest.raises(ModelFileError, match="is damaged"):
        persistence.load(saved)


def test_newer_format_asks_for_an_upgrade(saved):
    facts = {**persistence.read_metadata(saved), "format": 99, "leansvm": "9.9"}
    rewrite(saved, leansvm=json.dumps(facts).encode())
    with pytest.raises(ModelFileError, match=r"format 99, written by leansvm 9\.9.*upgrade"):
        persistence.load(saved)


def test_skops_file_of_others_is_refused(saved):
    rewrite(saved, leansvm=None)
    with pytest.raises(ModelFileError, match=r"was not written by leansvm\.persistence\.save"):
        persistence.load(saved)


@pytest.mark.parametrize("facts", [b"[]", b'{"format": "1"}', b"{", b"\xff"])
def test_nonsense_facts_are_refused(saved, facts):
    rewrite(saved, leansvm=facts)
    with pytest.raises(ModelFileError, match="is damaged"):
        persistence.load(saved)


def test_other_scikit_learn_is_mentioned(saved):
    facts = {**persistence.read_metadata(saved), "scikit-learn": "1.2.0"}
    rewrite(saved, leansvm=json.dumps(facts).encode())
    with pytest.warns(UserWarning, match=r"written with scikit-learn 1\.2\.0"):
        persistence.load(saved)


def test_full_disk_keeps_the_old_file(saved, monkeypatch):
    before = saved.read_bytes()

    def full(self, content):
        raise OSError(28, "No space left on device", str(self))

    monkeypatch.setattr(type(saved), "write_bytes", full)
    with pytest.raises(OSError, match="No space left") as caught:
        persistence.save(leansvm.LSSVC().fit(X, y), saved)
    assert caught.value.filename == str(saved)
    assert saved.read_bytes() == before


def test_missing_file_is_an_ordinary_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        persistence.load(tmp_path / "none")


def test_metadata_must_be_json(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        persistence.save(leansvm.LSSVC().fit(X, y), tmp_path / "m", metadata={"a": float("nan")})
    assert not list(tmp_path.iterdir())
