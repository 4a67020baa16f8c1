"""Models on disk without pickle: a skops file (a zip archive) with facts about the model.

Loading builds only objects of scikit-learn, NumPy, SciPy and this package; a file that names any
other type is refused before anything is built.
"""

from __future__ import annotations

import inspect
import io
import json
import os
import warnings
import zipfile
import zlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import sklearn

from leansvm._version import __version__

__all__ = ["ModelFileError", "UntrustedTypesError", "load", "read_metadata", "save"]

FORMAT = 1  # raise it when older versions could not read what is written
_FACTS = "leansvm.json"


class ModelFileError(ValueError):
    """The file is not a model, is damaged, or comes from a newer version."""


class UntrustedTypesError(ModelFileError):
    """The file names types that are neither ours nor scikit-learn's; `types` lists them."""

    def __init__(self, path: Path, types: list[str]) -> None:
        self.types = types
        super().__init__(
            f"{path} needs types that leansvm does not know: {', '.join(types)}. Nothing was "
            f"loaded. If you trust where the file comes from, list them in trusted=."
        )


def save(
    model: Any,
    path: str | os.PathLike[str],
    *,
    metadata: dict[str, Any] | None = None,
) -> None:
    """Write a fitted model, or a pipeline that holds one, to a file.

    The file appears under its name only when it is complete.

    Parameters
    ----------
    model : estimator
        Anything made of scikit-learn's and leansvm's estimators.
    path : path-like
        File to write; an existing one is replaced.
    metadata : dict, default=None
        Facts to keep with the model, of types that JSON has.

    Examples
    --------
    >>> import os, tempfile
    >>> from sklearn.datasets import load_iris
    >>> from leansvm import LSSVC, persistence
    >>> X, y = load_iris(return_X_y=True)
    >>> path = os.path.join(tempfile.mkdtemp(), "iris.skops")
    >>> persistence.save(LSSVC().fit(X, y), path, metadata={"made from": "iris"})
    >>> persistence.load(path).predict(X[:1])
    array([0])
    >>> persistence.read_metadata(path)["metadata"]
    {'made from': 'iris'}
    """
    facts = {
        "format": FORMAT,
        "leansvm": __version__,
        "scikit-learn": sklearn.__version__,
        "model": type(model).__name__,
        "metadata": metadata or {},
    }
    text = json.dumps(facts, indent=1, allow_nan=False)
    buffer = io.BytesIO(_skops().dumps(model))
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_FACTS, text)
    write_atomically(Path(path), buffer.getvalue())


def load(path: str | os.PathLike[str], *, trusted: Iterable[str] = ()) -> Any:
    """Read a model that :func:`save` wrote.

    Parameters
    ----------
    path : path-like
        The file.
    trusted : iterable of str, default=()
        Full names of further types that may be built, such as those of a selector of your own.

    Returns
    -------
    estimator
        Fitted, as it was saved.

    Raises
    ------
    ModelFileError
        The file is not a model, is damaged, or is of a newer format.
    UntrustedTypesError
        The file names types that are not allowed; none of them was built.
    """
    path = Path(path)
    skops = _skops()
    facts = read_metadata(path)
    data = path.read_bytes()
    try:
        found = set(skops.get_untrusted_types(data=data))
    except Exception as error:  # skops raises whatever the damaged schema leads to
        raise ModelFileError(f"{path} is damaged: {_words(error)}") from error
    unknown = sorted(found - trusted_types() - set(trusted))
    if unknown:
        raise UntrustedTypesError(path, unknown)
    _warn_of_versions(path, facts)
    try:
        return skops.loads(data, trusted=sorted(found))
    except Exception as error:
        raise ModelFileError(f"{path} is damaged: {_words(error)}") from error


def read_metadata(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what is known about a model file; nothing of the model is built.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    dict
        "format", "leansvm" and "scikit-learn" (versions it was written with), "model" (its
        class) and "metadata" (what was given to :func:`save`).
    """
    path = Path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            if _FACTS not in archive.namelist():
                raise ModelFileError(f"{path} was not written by leansvm.persistence.save")
            broken = archive.testzip()
            facts = json.loads(archive.read(_FACTS))
    except zipfile.BadZipFile as error:
        raise ModelFileError(f"{path} is not a model file, or only a part of one") from error
    except (json.JSONDecodeError, UnicodeDecodeError, EOFError, zlib.error) as error:
        raise ModelFileError(f"{path} is damaged: {_words(error)}") from error
    if broken:
        raise ModelFileError(f"{path} is damaged: the checksum of its part {broken} is wrong")
    if not isinstance(facts, dict) or not isinstance(facts.get("format"), int):
        raise ModelFileError(f"{path} is damaged: its facts have no format number")
    if facts["format"] > FORMAT:
        raise ModelFileError(
            f"{path} has format {facts['format']}, written by leansvm {facts.get('leansvm')}; "
            f"leansvm {__version__} reads up to {FORMAT}: upgrade leansvm to load it"
        )
    return facts


@cache
def trusted_types() -> frozenset[str]:
    """Return the full names of types that a model may consist of, beyond those skops trusts."""
    import leansvm
    from leansvm import basis, functions, kernels, losses
    from leansvm.papers import baselines
    from leansvm.solvers.features import KernelFeatures
    from leansvm.solvers.kfold import FoldSums, KFoldSums
    from leansvm.solvers.sums import Sums

    public = [
        getattr(module, name)
        for module in (leansvm, baselines, basis, functions)
        for name in module.__all__
    ]
    parts = [kernels.Kernel, Sums, FoldSums, KFoldSums, KernelFeatures]
    parts += [value for value in vars(losses).values() if inspect.isclass(value)]
    classes = [value for value in (*public, *parts) if inspect.isclass(value)]
    return frozenset({"numpy.dtype"}) | frozenset(
        f"{value.__module__}.{value.__qualname__}"
        for value in classes
        if value.__module__.startswith("leansvm.")
    )


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file completely or not at all; a device is written directly."""
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        error.filename = str(path)  # the name the user gave
        error.filename2 = None
        raise
    finally:
        partial.unlink(missing_ok=True)


def _warn_of_versions(path: Path, facts: dict[str, Any]) -> None:
    written, here = str(facts.get("scikit-learn")), sklearn.__version__
    if written.split(".")[:2] != here.split(".")[:2]:
        warnings.warn(
            f"{path} was written with scikit-learn {written}, this is {here}: "
            f"its preprocessing may behave differently",
            UserWarning,
            stacklevel=3,
        )


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _skops() -> Any:
    try:
        import skops.io
    except ImportError as error:
        raise ImportError("saving models needs skops: pip install 'leansvm[skops]'") from error
    return skops.io
