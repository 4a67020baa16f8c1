"""Loading: every layout of the files, where they are looked for, and what errors say."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

from leansvm.datasets import DatasetNotFoundError, LabelledData, available, load, names
from leansvm.datasets._files import save

X = np.arange(12, dtype=np.uint8).reshape(6, 2)
Y = np.array([0, 1, 2, 0, 1, 2], dtype=np.int8)
SPLIT = LabelledData("split", X[:4], Y[:4], X[4:], Y[4:], class_names=("a", "b", "c"))
LAYOUTS = [
    LabelledData("whole", X, Y, feature_names=("left", "right")),
    SPLIT,
    LabelledData("sparse", csr_array(X[:4]), Y[:4], csr_array(X[4:]), Y[4:]),
    LabelledData(
        "many", X, Y, splits=(np.array([[0, 0, 1], [4, 5, 3]]), np.array([[2, 3], [0, 1]]))
    ),
]


def dense(X):
    return X if isinstance(X, np.ndarray) else X.toarray()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LEANSVM_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for data in LAYOUTS:
        save(data, tmp_path / "data" / data.name / f"{data.name}.npz")
    return tmp_path / "data"


@pytest.mark.parametrize("data", LAYOUTS, ids=lambda data: data.name)
def test_what_was_saved_is_loaded(folder, data):
    found = load(data.name)
    assert_array_equal(dense(found.X_train), dense(data.X_train))
    assert_array_equal(found.y_train, data.y_train)
    assert found.X_train.dtype == np.float64
    assert load(data.name, dtype=None).X_train.dtype == np.uint8
    assert (found.X_test is None) == (data.X_test is None)
    if data.X_test is not None:
        assert_array_equal(dense(found.X_test), dense(data.X_test))
        assert_array_equal(found.y_test, data.y_test)
    assert found.feature_names == data.feature_names
    assert found.class_names == data.class_names
    assert data.name in repr(found)


def test_splits_may_repeat_rows(folder):
    X_train, y_train, X_test, y_test = load("many").split(0)
    assert_array_equal(X_train, X[[0, 0, 1]])
    assert_array_equal(y_train, Y[[0, 0, 1]])
    assert_array_equal(X_test, X[[2, 3]])
    assert_array_equal(y_test, Y[[2, 3]])
    with pytest.raises(ValueError, match="split has no numbered splits"):
        load("split").split(0)


def test_own_folder_comes_before_the_cache(folder, tmp_path):
    from leansvm.datasets import cache_folder

    assert tmp_path in cache_folder().parents
    other = LabelledData("whole", X + 1, Y)
    for name in ("whole", "cached"):
        save(other, cache_folder() / name / f"{name}.npz")
    assert load("whole").X_train[0, 0] == 0
    assert load("cached").X_train[0, 0] == 1
    assert list(available()) == ["cached", "many", "sparse", "split", "whole"]
    assert list(available(data_home=cache_folder())) == ["cached", "whole"]
    assert load("whole", data_home=cache_folder()).X_train[0, 0] == 1


def test_missing_set_says_where_was_looked_and_how_to_get_it(folder):
    with pytest.raises(DatasetNotFoundError) as caught:
        load("ijcnn1")
    assert isinstance(caught.value, FileNotFoundError)
    message = str(caught.value)
    assert str(folder) in message and "leansvm datasets download ijcnn1" in message


def test_unknown_name_gets_a_suggestion(folder):
    with pytest.raises(ValueError, match="no data set 'ijcnn'; did you mean ijcnn1"):
        load("ijcnn")


@pytest.mark.parametrize("damage", ["cut", "text", "keys"])
def test_damaged_file_is_named(folder, damage):
    path = folder / "whole" / "whole.npz"
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:200])
    elif damage == "text":
        path.write_text("not a data set")
    else:
        np.savez(path, something=X)
    with pytest.raises(ValueError, match=r"whole\.npz is not a readable data set"):
        load("whole")


@pytest.mark.parametrize("place", ["indices", "indptr"])
def test_sparse_rows_that_point_outside_are_refused(folder, place):
    pieces = {"data": np.ones(2), "indices": np.array([0, 1]), "indptr": np.array([0, 1, 2])}
    pieces[place][1] = 10**6
    arrays = {f"X_{name}": values for name, values in pieces.items()}
    np.savez(folder / "whole" / "whole.npz", **arrays, X_shape=np.array([2, 2]), y=np.zeros(2))
    with pytest.raises(ValueError, match=r"whole\.npz is not a readable data set"):
        load("whole")


def test_a_failed_write_leaves_nothing(folder, monkeypatch):
    def fail(file, **arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", fail)
    before = (folder / "whole" / "whole.npz").read_bytes()
    with pytest.raises(OSError, match="No space left"):
        save(LabelledData("whole", X + 1, Y), folder / "whole" / "whole.npz")
    assert (folder / "whole" / "whole.npz").read_bytes() == before
    assert [path.name for path in (folder / "whole").iterdir()] == ["whole.npz"]


def test_one_label_against_the_rest():
    binary = SPLIT.against_rest(2)
    assert_array_equal(binary.y_train, [-1, -1, 1, -1])
    assert_array_equal(binary.y_test, [-1, 1])
    with pytest.raises(ValueError, match="split has no label 7; it has 0, 1, 2"):
        SPLIT.against_rest(7)


def test_scaling_uses_training_rows_alone():
    constant = np.column_stack([X[:, 0], np.full(6, 9.0)]).astype(float)
    data = LabelledData("d", constant[:4], Y[:4], constant[4:], Y[4:]).scaled(-1, 1)
    assert_allclose(data.X_train[:, 0], [-1, -1 / 3, 1 / 3, 1])
    assert data.X_test[:, 0].max() > 1
    assert_array_equal(data.X_train[:, 1], -1)
    with pytest.raises(ValueError, match="sparse"):
        LAYOUTS[2].scaled(0, 1)


def test_catalogue_is_sorted_and_has_every_set_of_the_papers():
    assert names() == sorted(names())
    assert {"a9a", "ijcnn1", "covtype", "vehicle", "synth", "ida-titanic"} <= set(names())
