"""Where data sets lie on this machine, and how their ``.npz`` files are read and written.

One file per set, ``<folder>/<name>/<name>.npz``, without pickled objects:
``X_train y_train X_test y_test``, or ``X y`` without a split, or ``X y train_index test_index``;
sparse rows as ``X_train_data``, ``_indices``, ``_indptr`` and ``_shape``; optional
``feature_names`` and ``class_names``.
"""

from __future__ import annotations

import os
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike
from scipy.sparse import csr_array

from leansvm._atomic import replacing
from leansvm.datasets._catalogue import CATALOGUE, check_name
from leansvm.datasets._set import LabelledData

VARIABLE = "LEANSVM_DATA"
_DAMAGE = (
    zipfile.BadZipFile,
    zlib.error,
    ValueError,
    TypeError,
    LookupError,
    EOFError,
    OSError,
    RuntimeError,
)  # what reading a damaged archive or array may raise


class DatasetNotFoundError(FileNotFoundError):
    """A known data set that is not on this machine; the message says how to get it.

    Parameters
    ----------
    message : str
        What is missing, and how to get it.
    dataset : str, default=""
        Its name.
    """

    def __init__(self, message: str, dataset: str = "") -> None:
        super().__init__(message)
        self.dataset = dataset


def cache_folder() -> Path:
    """Return the per-user folder that downloads go to.

    Returns
    -------
    Path
        ``leansvm`` in the folder the operating system has for caches.
    """
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "leansvm"


def search_folders(data_home: str | os.PathLike[str] | None = None) -> list[Path]:
    """Return the folders to look in, first to last."""
    if data_home is not None:
        return [Path(data_home).expanduser()]
    named = os.environ.get(VARIABLE)
    return ([Path(named).expanduser()] if named else []) + [cache_folder()]


def find(name: str, *, data_home: str | os.PathLike[str] | None = None) -> Path | None:
    """Return the file of a data set, or None if it is not on this machine.

    Parameters
    ----------
    name : str
        A name of the catalogue, or of a folder of your own in the same format.
    data_home : path-like, default=None
        The only folder to look in; None: ``$LEANSVM_DATA``, then the per-user cache.

    Returns
    -------
    Path or None
        ``<folder>/<name>/<name>.npz``.
    """
    for folder in search_folders(data_home):
        path = folder / name / f"{name}.npz"
        if path.is_file():
            return path
    return None


def available(*, data_home: str | os.PathLike[str] | None = None) -> dict[str, Path]:
    """Return the data sets that :func:`load` finds here, with their files.

    Parameters
    ----------
    data_home : path-like, default=None
        The only folder to look in; None: ``$LEANSVM_DATA``, then the per-user cache.

    Returns
    -------
    dict of str to Path
        Sorted by name; sets of your own in the same format included.
    """
    found: dict[str, Path] = {}
    for folder in search_folders(data_home):
        for path in folder.glob("*/*.npz"):
            if path.stem == path.parent.name:
                found.setdefault(path.stem, path)
    return dict(sorted(found.items()))


def load(
    name: str,
    *,
    data_home: str | os.PathLike[str] | None = None,
    dtype: DTypeLike | None = np.float64,
) -> LabelledData:
    """Load a data set from this machine; nothing is downloaded.

    Parameters
    ----------
    name : str
        A name of the catalogue (:func:`names`), or of a folder of your own in the same format.
    data_home : path-like, default=None
        The only folder to look in; None: ``$LEANSVM_DATA``, then the per-user cache.
    dtype : dtype or None, default=numpy.float64
        Type of the features; None: as stored, which for raw values may be small integers.

    Returns
    -------
    LabelledData
        Rows, labels and what is known about them.

    Raises
    ------
    DatasetNotFoundError
        A known data set is not on this machine; the message says which folders were searched and
        how to get it.
    ValueError
        An unknown name, or a file that is damaged.

    Examples
    --------
    >>> from leansvm.datasets import DatasetNotFoundError, load
    >>> try:
    ...     load("ijcnn1", data_home="nowhere")
    ... except DatasetNotFoundError as error:
    ...     print(error)
    the data set ijcnn1 is not on this machine: no ijcnn1/ijcnn1.npz in nowhere;
    get it with: leansvm datasets download ijcnn1 --data-home nowhere
    """
    path = find(name, data_home=data_home)
    if path is None:
        check_name(name)
        raise DatasetNotFoundError(_not_found(name, data_home), name)
    try:
        with np.load(path, allow_pickle=False) as file:
            return _dataset(name, file, dtype)
    except _DAMAGE as error:
        raise ValueError(f"{path} is not a readable data set: {error}") from error


def _not_found(name: str, data_home: str | os.PathLike[str] | None) -> str:
    folders = " or ".join(str(folder) for folder in search_folders(data_home))
    message = f"the data set {name} is not on this machine: no {name}/{name}.npz in {folders}"
    command = f"leansvm datasets download {name}"
    if data_home is not None:
        command += f" --data-home {data_home}"
    elif not os.environ.get(VARIABLE):
        message += f" (the variable {VARIABLE} may name a folder of your own)"
    return f"{message};\nget it with: {command}"


def _dataset(name: str, file: Mapping[str, np.ndarray], dtype: DTypeLike | None) -> LabelledData:
    def rows(part: str) -> Any:
        if f"{part}_data" in file:
            pieces = (file[f"{part}_{key}"] for key in ("data", "indices", "indptr"))
            X = csr_array(tuple(pieces), shape=tuple(file[f"{part}_shape"]))
            X.check_format(full_check=True)  # compiled code trusts the indices
        else:
            X = file[part]
        return X if dtype is None else X.astype(dtype)

    def text(key: str) -> tuple[str, ...] | None:
        return tuple(str(value) for value in file[key]) if key in file else None

    split = "y_train" in file
    splits = None
    if "train_index" in file:
        splits = (file["train_index"].astype(np.intp), file["test_index"].astype(np.intp))
    return LabelledData(
        name,
        rows("X_train" if split else "X"),
        file["y_train" if split else "y"],
        rows("X_test") if split else None,
        file["y_test"] if split else None,
        splits,
        text("feature_names"),
        text("class_names"),
        CATALOGUE[name].notes if name in CATALOGUE else "",
    )


def save(data: LabelledData, path: Path) -> None:
    """Write a data set in the form that :func:`load` reads, all at once or not at all."""
    arrays: dict[str, Any] = {}
    if data.X_test is None:
        arrays.update(_stored("X", data.X_train), y=data.y_train)
    else:
        arrays.update(_stored("X_train", data.X_train), y_train=data.y_train)
        arrays.update(_stored("X_test", data.X_test), y_test=data.y_test)
    if data.splits is not None:
        arrays["train_index"], arrays["test_index"] = data.splits
    for key in ("feature_names", "class_names"):
        if (value := getattr(data, key)) is not None:
            arrays[key] = np.array(value, dtype=str)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        np.savez_compressed(file, **arrays)


def _stored(key: str, X: Any) -> Iterator[tuple[str, np.ndarray]]:
    if isinstance(X, np.ndarray):
        yield key, X
        return
    for part in ("data", "indices", "indptr"):
        yield f"{key}_{part}", getattr(X, part)
    yield f"{key}_shape", np.array(X.shape)
