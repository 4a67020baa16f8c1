"""Models on disk without pickle: a skops file (a zip archive) with facts about the model.

Loading builds only objects of scikit-learn, NumPy, SciPy and this package; a file that names any
other type is refused before anything is built. What is built is checked before it is returned.
SECURITY.md says what that promises.
"""

from __future__ import annotations

import inspect
import io
import os
import stat
import warnings
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import sklearn

from leansvm._atomic import write_atomically
from leansvm._version import __version__
from leansvm.persistence import _archive, _schema
from leansvm.persistence._errors import ModelFileError, UntrustedTypesError, printable

__all__ = [
    "ModelFileError",
    "UntrustedTypesError",
    "load",
    "read_metadata",
    "save",
    "write_atomically",
]

FORMAT = 1  # raise it when older versions could not read what is written
# that parameters name: numpy.number selects columns
_NUMPY_TYPES = frozenset({"numpy.dtype", "builtins.object"}) | {
    f"numpy.{name}" for name in ("number", "integer", "floating", "inexact", "generic")
}


def save(
    model: Any,
    path: str | os.PathLike[str],
    *,
    metadata: dict[str, Any] | None = None,
    trusted: Iterable[str] = (),
) -> None:
    """Write a fitted model, or a pipeline that holds one, to a file.

    The file appears under its name only when it is complete and has been read back.

    Parameters
    ----------
    model : estimator
        Anything made of scikit-learn's and leansvm's estimators.
    path : path-like
        File to write; an existing one is replaced.
    metadata : dict, default=None
        Facts to keep with the model, of types that JSON has.
    trusted : iterable of str, default=()
        Full names of types beyond scikit-learn's and leansvm's, such as those of a selector of
        your own; :func:`load` needs them, too.

    Raises
    ------
    UntrustedTypesError
        The model holds types that :func:`load` would refuse; nothing was written.
    ModelFileError
        It holds something else that cannot be read back; nothing was written.

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
    path = Path(path)
    facts = {
        "format": FORMAT,
        "leansvm": __version__,
        "scikit-learn": sklearn.__version__,
        "model": type(model).__name__,
        "metadata": metadata or {},
    }
    try:
        dumped = _skops().dumps(model)
    except RecursionError as error:
        raise ModelFileError(f"the model refers to itself: {path} was not written") from error
    content = _archive.complete(dumped, facts)
    del dumped
    with zipfile.ZipFile(file := io.BytesIO(content)) as archive:
        with _damage_of(path, saving=True):
            _archive.read_facts(archive)
        _build(archive, file, len(content), path, frozenset(trusted), saving=True)
    write_atomically(path, content)


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
    with _opened(path) as (archive, file, size):
        facts = _facts(archive, path)
        _warn_of_versions(path, facts)
        return _build(archive, file, size, path, frozenset(trusted))


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
    with _opened(path) as (archive, _, _):
        return _facts(archive, path)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[zipfile.ZipFile, BinaryIO, int]]:
    """Open a model file once, so that nobody can replace it between a check and its use."""
    if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
        raise ModelFileError(f"{path} is not a model file: it is a device or a pipe")
    with path.open("rb") as file:
        try:
            archive = zipfile.ZipFile(file)
        except Exception as error:  # whatever a damaged list of parts leads to
            text = f"{path} is not a model file, or only a part of one"
            raise ModelFileError(text) from error
        with archive:
            if _archive.FACTS not in archive.namelist():
                raise ModelFileError(f"{path} was not written by leansvm.persistence.save")
            size = os.fstat(file.fileno()).st_size
            with _damage_of(path):
                _archive.check_parts(archive, size)
            yield archive, file, size


@contextmanager
def _damage_of(path: Path, saving: bool = False) -> Iterator[None]:
    """Whatever is found to be wrong is wrong with the file, or with the model to be saved."""
    try:
        yield
    except MemoryError:  # all sizes are checked first: the model is large, or the machine small
        raise
    except Exception as error:  # zipfile, json, NumPy and skops raise what the content leads to
        name = "" if type(error) is ValueError else type(error).__name__
        words = ": ".join(filter(None, (name, printable(str(error))[:300])))
        what = "was not written, as it could not be read back" if saving else "is damaged"
        raise ModelFileError(f"{path} {what}: {words}") from error


def _facts(archive: zipfile.ZipFile, path: Path) -> dict[str, Any]:
    with _damage_of(path):
        facts = _archive.read_facts(archive)
    if facts["format"] > FORMAT:
        version = printable(str(facts.get("leansvm")))[:100]
        raise ModelFileError(
            f"{path} has format {facts['format']}, written by leansvm {version}; "
            f"leansvm {__version__} reads up to {FORMAT}: upgrade leansvm to load it"
        )
    return facts


def _build(
    archive: zipfile.ZipFile,
    file: BinaryIO,
    size: int,
    path: Path,
    trusted: frozenset[str],
    saving: bool = False,
) -> Any:
    """Return the model of an archive, after all checks."""
    from leansvm.persistence._objects import check_objects

    skops = _skops()
    with _damage_of(path, saving):
        _archive.check_arrays(archive, size)
        schema = _archive.read_schema(archive)
        parts = {*archive.namelist()} - {_archive.FACTS, _archive.SCHEMA}
        _schema.check_schema(schema, parts, trusted_types(), trusted)
        found = set(skops.get_untrusted_types(file=file))
    unknown = sorted(found - trusted_types() - trusted)
    if unknown:
        raise UntrustedTypesError(path, unknown, saving=saving)
    with _damage_of(path, saving):
        model = skops.load(file, trusted=sorted(found))
        check_objects(model)
    return model


@cache
def trusted_types() -> frozenset[str]:
    """Return the full names of types that a model may consist of, beyond those skops trusts."""
    import leansvm
    from leansvm import basis, functions, kernels, losses
    from leansvm.papers import baselines
    from leansvm.solvers.active_set import ActiveSet
    from leansvm.solvers.features import KernelFeatures
    from leansvm.solvers.kfold import FoldSums, KFoldSums
    from leansvm.solvers.sums import Sums

    public = [
        getattr(module, name)
        for module in (leansvm, baselines, basis, functions)
        for name in module.__all__
    ]
    parts = [kernels.Kernel, Sums, FoldSums, KFoldSums, KernelFeatures, ActiveSet]
    parts += [value for value in vars(losses).values() if inspect.isclass(value)]
    ours = [value for value in (*public, *parts) if inspect.isclass(value)]
    return (
        _NUMPY_TYPES
        | _schema.SPARSE_TYPES
        | {_full_name(value) for value in ours if value.__module__.startswith("leansvm.")}
        | {_full_name(value) for value in _of_scikit_learn()}
    )


def _of_scikit_learn() -> list[Any]:
    """Return what searches, calibration and column selectors hold, which skops does not trust."""
    from sklearn import calibration
    from sklearn.compose import make_column_selector
    from sklearn.metrics import _scorer, get_scorer, get_scorer_names
    from sklearn.model_selection import _split
    from sklearn.utils import Bunch

    classes = [
        value
        for module in (calibration, _scorer, _split)
        for value in vars(module).values()
        if inspect.isclass(value) and value.__module__ == module.__name__
    ]
    scores = [get_scorer(name)._score_func for name in get_scorer_names()]
    return [Bunch, make_column_selector, *classes, *scores]


def _full_name(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _warn_of_versions(path: Path, facts: dict[str, Any]) -> None:
    written, here = printable(str(facts.get("scikit-learn")))[:100], sklearn.__version__
    if written.split(".")[:2] != here.split(".")[:2]:
        warnings.warn(
            f"{path} was written with scikit-learn {written}, this is {here}: "
            f"its preprocessing may behave differently",
            UserWarning,
            stacklevel=3,
        )


def _skops() -> Any:
    try:
        import skops.io
    except ImportError as error:
        raise ImportError("saving models needs skops: pip install 'leansvm[skops]'") from error
    return skops.io
