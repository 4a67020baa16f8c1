"""Models and states on disk without pickle.

A model is a skops file (a zip archive) with facts about the model; a `FitState`, the sums over rows
that several sites add up, has a format of its own (`_state_file`).

Loading builds only objects of scikit-learn, NumPy, SciPy and this package; a file that names any
other type is refused before anything is built. What is built is checked before it is returned.
SECURITY.md says what that promises.

A file holds what prediction needs: points, coefficients and preprocessing, packed. 200 points of 20
features take about 40 kB. What `partial_fit` needs grows with the square of the points (2,000 of
them: 66 MB): a file holds it if ``keep_state=True``, or if `partial_fit` made the model. Pickles
hold the same.
"""

from __future__ import annotations

import inspect
import io
import json
import os
import warnings
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from leansvm._atomic import write_atomically
from leansvm._extras import needs
from leansvm._version import __version__
from leansvm.persistence import _archive, _schema
from leansvm.persistence._archive import ModelFileError, UntrustedTypesError, printable

if TYPE_CHECKING:
    from leansvm.ridge.state import FitState
    from leansvm.ridge.state_checks import StateError

__all__ = [
    "FitState",
    "ModelFileError",
    "StateError",
    "UntrustedTypesError",
    "load",
    "read_metadata",
    "save",
    "write_atomically",
]

FORMAT = 2  # raise it when older versions could not read what is written
# types that parameters may name: numpy.number selects columns
_NUMPY_TYPES = frozenset({"numpy.dtype", "builtins.object"}) | {
    f"numpy.{name}" for name in ("number", "integer", "floating", "inexact", "generic")
}


def __getattr__(name: str) -> Any:
    """Load `FitState` and `StateError` at their first use: the facts of a file need no solver."""
    if name in ("FitState", "StateError"):
        from leansvm.ridge import state, state_checks

        return state.FitState if name == "FitState" else state_checks.StateError
    raise AttributeError(f"module 'leansvm.persistence' has no attribute {name!r}")


def save(
    model: Any,
    path: str | os.PathLike[str],
    *,
    metadata: dict[str, Any] | None = None,
    trusted: Iterable[str] = (),
) -> None:
    """Write a fitted model, or a pipeline that holds one, to a file.

    The file holds what prediction needs and, with ``keep_state=True``, what `partial_fit` needs. It
    appears under its name only when it is complete and has been read back. It holds no callbacks.

    Parameters
    ----------
    model : estimator
        Anything made of scikit-learn's and leansvm's estimators.
    path : path-like
        File to write; an existing one is replaced.
    metadata : dict, default=None
        Facts to keep with the model, of types that JSON can hold.
    trusted : iterable of str, default=()
        Full names of types beyond scikit-learn's and leansvm's, such as those of a selector of
        your own; :func:`load` needs them, too.

    Raises
    ------
    NotFittedError
        The model is not fitted; nothing was written.
    UntrustedTypesError
        The model holds types that :func:`load` would refuse; nothing was written.
    ModelFileError
        The model holds something else that cannot be read back; nothing was written.

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
    import sklearn

    from leansvm.persistence import _plain

    path = Path(path)
    facts = {
        "format": FORMAT,
        "leansvm": __version__,
        "scikit-learn": sklearn.__version__,
        "model": type(model).__name__,
        "metadata": metadata or {},
    }
    try:
        parts, schema = _plain.write(model) or _archive.read_dumped(_skops().dumps(model))
    except RecursionError as error:
        raise ModelFileError(f"the model refers to itself: {path} was not written") from error
    content = _archive.complete(parts, schema, facts)
    del parts
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        with _damage_of(path, saving=True):
            _archive.read_facts(archive)
        _build(archive, path, frozenset(trusted), saving=True)
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

    Examples
    --------
    >>> import os, tempfile
    >>> import leansvm
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> path = os.path.join(tempfile.mkdtemp(), "iris.skops")
    >>> leansvm.LSSVC().fit(X, y).save(path)
    >>> leansvm.load(path).predict(X[:1])
    array([0])
    """
    path = Path(path)
    with _opened(path) as archive:
        facts = _facts(archive, path)
        return _build(archive, path, frozenset(trusted), facts.get("scikit-learn"))


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
    with _opened(path) as archive:
        return _facts(archive, path)


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a model file once, so that nobody can replace it between a check and its use."""
    try:
        _archive.check_regular(path)
    except ValueError as error:
        raise ModelFileError(f"{path} is not a model file: {error}") from error
    with path.open("rb") as file:
        try:
            archive = zipfile.ZipFile(file)
        except Exception as error:  # a damaged list of parts may raise anything
            raise ModelFileError(f"{path} is {_what_it_is(file)}") from error
        with archive:
            if _archive.FACTS not in archive.namelist():
                raise ModelFileError(f"{path} was not written by leansvm.persistence.save")
            size = os.fstat(file.fileno()).st_size
            with _damage_of(path):
                _archive.check_parts(archive, size)
            yield archive


def _what_it_is(file: BinaryIO) -> str:
    """Return in words what a file is that is no archive."""
    file.seek(0)
    start = file.read(2)
    if start == b"PK":
        return "damaged or not complete: copy it again, or save the model again"
    if start[:1] == b"\x80" and start[1:] in (b"\2", b"\3", b"\4", b"\5"):
        return (
            "a pickle, not a model file. leansvm reads no pickles, because they can run code: load "
            "it with pickle or joblib if you trust it, and save it with model.save"
        )
    return "not a model file (model.save and leansvm train write them)"


@contextmanager
def _damage_of(path: Path, saving: bool = False) -> Iterator[None]:
    """Turn any error into one about the file, or about the model to be saved."""
    try:
        yield
    except (ModelFileError, MemoryError):  # sizes are checked: the machine is too small
        raise
    except Exception as error:  # zipfile, json, NumPy and skops raise many kinds of errors
        name = "" if type(error) is ValueError else type(error).__name__
        words = ": ".join(filter(None, (name, printable(str(error))[:300])))
        if saving:
            what = f"was not written, as it could not be read back: {words}"
        else:
            what = f"is damaged: copy it again, or save the model again ({words})"
        raise ModelFileError(f"{path} {what}") from error


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
    path: Path,
    trusted: frozenset[str],
    written_with: Any = None,
    saving: bool = False,
) -> Any:
    """Return the model of an archive, after all checks; warn of another scikit-learn."""
    from leansvm.persistence import _plain
    from leansvm.persistence._objects import check_objects

    with _damage_of(path, saving):
        parts = _archive.read_parts(archive)
        _archive.check_arrays(parts)
        schema = _plain.with_present_names(_archive.read_schema(parts[_archive.SCHEMA]))
        types = _plain.plain_types(schema)
        known = trusted_types() if types is None else _plain.own_types().keys()
        _schema.check_schema(schema, parts.keys() - {_archive.SCHEMA}, known, trusted)
        if types is not None:
            model = _plain.build(schema, parts, types)
            check_objects(model)
        else:
            parts[_archive.SCHEMA] = json.dumps(schema).encode()
            file = io.BytesIO(_archive.archive_of(parts))  # nothing in it is packed
            found = set(_skops().get_untrusted_types(file=file))
        del parts
    if not saving and _of_sklearn(schema):
        _warn_of_versions(path, written_with)
    if types is not None:
        return _fitted(model, path, saving)
    unknown = sorted(found - trusted_types() - trusted)
    if unknown:
        raise UntrustedTypesError(path, unknown, saving=saving)
    with _damage_of(path, saving):
        model = _skops().load(file, trusted=sorted(found))
        check_objects(model)
    return _fitted(model, path, saving)


def _fitted(model: Any, path: Path, saving: bool) -> Any:
    """Return what was built; refuse anything without a method `fit`, and unfitted models."""
    from sklearn.exceptions import NotFittedError
    from sklearn.model_selection import FixedThresholdClassifier
    from sklearn.utils.validation import check_is_fitted

    name = type(model).__name__
    if not hasattr(type(model), "fit"):
        done = "was not written: the model" if saving else "is not a model file: what it holds"
        raise ModelFileError(f"{path} {done} is of type {name}, not an estimator")
    predicts = model
    if isinstance(model, FixedThresholdClassifier) and not hasattr(model, "estimator_"):
        predicts = model.estimator  # fitted before: the threshold itself has nothing to fit
    try:
        with _damage_of(path, saving):
            check_is_fitted(predicts)
    except ModelFileError as error:
        if not isinstance(error.__cause__, NotFittedError):
            raise
        if saving:
            words = f"{path} was not written: this {name} is not fitted. Call fit before you save."
            raise NotFittedError(words) from None
        words = f"{path} holds a {name} that is not fitted: save it again after fit"
        raise ModelFileError(words) from None
    return model


@cache
def trusted_types() -> frozenset[str]:
    """Return the full names of types that a model may hold, beyond those that skops trusts."""
    from leansvm.papers import baselines
    from leansvm.persistence._plain import own_types

    others = [getattr(baselines, name) for name in baselines.__all__] + _of_scikit_learn()
    return (
        _NUMPY_TYPES
        | _schema.SPARSE_TYPES
        | own_types().keys()
        | {f"{value.__module__}.{value.__qualname__}" for value in others}
    )


def _of_scikit_learn() -> list[Any]:
    """Return types of searches, calibration and column selectors that skops does not trust."""
    from sklearn import calibration
    from sklearn.compose import _column_transformer
    from sklearn.metrics import _scorer, get_scorer, get_scorer_names
    from sklearn.model_selection import _split
    from sklearn.utils import Bunch
    from sklearn.utils._metadata_requests import MetadataRequest, MethodMetadataRequest

    classes = [
        value
        for module in (_column_transformer, calibration, _scorer, _split)
        for value in vars(module).values()
        if inspect.isclass(value) and value.__module__ == module.__name__
    ]
    scores = [get_scorer(name)._score_func for name in get_scorer_names()]
    requests = [MetadataRequest, MethodMetadataRequest]  # scorers and searches may hold them
    return [Bunch, *requests, *classes, *scores]


def _of_sklearn(schema: Any) -> bool:
    """Whether a schema names scikit-learn's objects, which may change from version to version."""
    return any(str(n["__module__"]).startswith("sklearn.") for n in _schema.nodes_of(schema))


def _warn_of_versions(path: Path, written_with: Any) -> None:
    import sklearn

    written, here = printable(str(written_with))[:100], sklearn.__version__
    if written.split(".")[:2] != here.split(".")[:2]:
        warnings.warn(
            f"{path} was written with scikit-learn {written}, and {here} is installed: "
            f"its preprocessing may behave differently",
            UserWarning,
            stacklevel=4,
        )


def _skops() -> Any:
    try:
        import skops.io
    except ImportError as error:
        raise ImportError(needs("saving models", "skops", "skops")) from error
    return skops.io
