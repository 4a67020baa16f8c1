"""Files of numbers without column names: LIBSVM/SVMlight and npz."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from leansvm.cli._output import CommandError
from leansvm.cli._read._words import quoted


def whole(y: np.ndarray) -> np.ndarray:
    """Return int64 if all values are whole and fit; otherwise return the values as they are."""
    if len(y) == 0 or not np.isfinite(y).all() or np.any(y != np.round(y)):
        return y
    fits = int(y.min()) >= -(2**63) and int(y.max()) < 2**63
    return y.astype(np.int64) if fits else y


def read_svmlight(
    path: Path, n_features: int | None = None, zero_based: bool | str = "auto"
) -> tuple[Any, np.ndarray, bool]:
    """Read sparse rows; pad them to the features of a model.

    Indices count from 0 or from 1, as in the training file; the result says which. "auto" means
    from 1 if no row has the index 0.
    """
    from sklearn.datasets import load_svmlight_file

    try:
        X, y = load_svmlight_file(str(path), zero_based=zero_based is not False)
    except (ValueError, EOFError, OverflowError) as error:
        raise CommandError(f"{path}{_svmlight_problem(path, zero_based)}") from error
    if zero_based == "auto":
        zero_based = not (len(X.indices) and X.indices.min() > 0)
        if not zero_based:
            X.indices -= 1
            X.resize((X.shape[0], X.shape[1] - 1))
    if n_features is None:
        _check_width(path, X.shape[1])
    if n_features is not None and X.shape[1] < n_features:  # the last ones are zero in all rows
        X.resize((X.shape[0], n_features))
    return X, whole(y), bool(zero_based)


def _check_width(path: Path, n_features: int) -> None:
    """Refuse an index so large that a few numbers for each feature would exceed the memory."""
    from leansvm.rows import available_memory, format_bytes

    needed, free = _VECTORS * 8 * n_features, available_memory()
    if needed > free:
        raise CommandError(
            f"{path}: the largest index is {n_features:,}. A model with so many features needs "
            f"{format_bytes(needed)}, but only {format_bytes(free)} are free; number the features "
            f"without gaps"
        )


_VECTORS = 16  # of one number per feature that preprocessing, fit and model hold at once
_PAIR = re.compile(rb"(qid|\d+):[-+]?(\d+\.?\d*|\.\d+|nan|inf)([eE][-+]?\d+)?$", re.I)


def _svmlight_problem(path: Path, zero_based: bool | str) -> str:
    """Find the first line that is not 'label index:value ...' with growing indices."""
    content = path.read_bytes()
    for number, line in enumerate(content.splitlines(), start=1):
        fields = line.partition(b"#")[0].split()
        if not fields:
            continue
        if not _is_number(fields[0].decode("ascii", "replace")):
            return f", line {number}: the label {fields[0].decode(errors='replace')!r} is no number"
        last = -1
        for pair in fields[1:]:
            text = pair.decode(errors="replace")
            if not _PAIR.match(pair):
                return f", line {number}: {text!r} is not of the form index:value"
            if pair.startswith(b"qid"):
                continue
            index = int(pair.partition(b":")[0])
            if index == 0 and zero_based is False:
                return f", line {number}: {text!r}, but the training file counts features from 1"
            if index >= 2**31:
                return f", line {number}: the index of {text!r} is too large"
            if index <= last:
                return f", line {number}: the index of {text!r} is not larger than the one before"
            last = index
    return ": not a LIBSVM/SVMlight file" if content.strip() else ": the file is empty"


def read_npz(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Read arrays X and y, or X_train and y_train."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise CommandError(
                f"{path}: this is a single array (npy); save X and y together with numpy.savez"
            )
        with loaded as file:
            arrays = {key: file[key] for key in file.files if key in _NPZ_KEYS}
            found = file.files
    except (zipfile.BadZipFile, ValueError, OSError, EOFError) as error:
        raise CommandError(f"{path}: not a readable npz file ({error})") from error
    X = arrays.get("X", arrays.get("X_train"))
    y = arrays.get("y", arrays.get("y_train"))
    if X is None:
        raise CommandError(f"{path}: no array X (or X_train); the file has {quoted(found)}")
    if X.ndim != 2 or (y is not None and y.shape != (len(X),)):
        shapes = f"X {X.shape}" + ("" if y is None else f" and y {y.shape}")
        needed = "X must have rows and columns, y one value per row"
        raise CommandError(f"{path}: {needed}; got {shapes}")
    _check_type(path, "X", X, "biuf", "numbers; write dates and text as numbers first")
    if y is None:
        return X, y
    _check_type(path, "y", y, "biufU", "numbers or text")
    return X, y if y.dtype.kind == "U" else whole(y)


def _check_type(path: Path, name: str, array: np.ndarray, kinds: str, wanted: str) -> None:
    """Refuse dates, complex numbers, bytes and records, which would be taken for something else."""
    if array.dtype.kind not in kinds:
        raise CommandError(f"{path}: {name} has type {array.dtype}, but must hold {wanted}")


_NPZ_KEYS = ("X", "y", "X_train", "y_train")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
