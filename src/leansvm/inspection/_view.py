"""A fitted model as its user sees it: it takes rows with named columns, also in a pipeline.

`View` reads rows through the steps of a pipeline and the model's own encoding of tables. `Summand`
is one kernel of f(x) = sum_p sum_j coef_pj k_p(x, z_pj) + b, in which columns are taken apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from leansvm._array_api import to_host
from leansvm._sklearn import split_threshold
from leansvm.estimators.kernel_basis import KernelBasis
from leansvm.estimators.kernel_machine import KernelMachine
from leansvm.estimators.machine import Machine
from leansvm.estimators.read import validate
from leansvm.kernels import Mixture, clipped
from leansvm.kernels._function import KernelFunction
from leansvm.kernels.mixture import PARTS
from leansvm.linalg import dense_rows64
from leansvm.low_rank import names_of_features
from leansvm.rows import RowSource, is_dask
from leansvm.tables import TableEncoder

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


class View:
    """A model and rows that it can predict.

    Parameters
    ----------
    model : estimator
        A fitted machine of this package, or a pipeline that ends with one; or what
        `tune_threshold` returned for it, whose decision values are those of the model.
    X : array-like, sparse matrix or data frame of shape (n_samples, n_columns)
        Rows as the user has them.
    """

    def __init__(self, model: Any, X: Any) -> None:
        if is_dask(X) or isinstance(X, RowSource):
            raise TypeError("Rows must be in memory: pass a sample, as an array or a frame.")
        if len(getattr(X, "shape", (0, 0))) == 1 and hasattr(X, "iloc"):
            raise TypeError("Rows must be a frame, got a Series: for one row pass X.iloc[[0]].")
        self.model, self.threshold = split_threshold(model)
        check_is_fitted(self.model)
        self.before, self.machine = split_pipeline(self.model)
        self.X = X if hasattr(X, "columns") else np.asarray(to_host(dense(X)))
        if len(self.X.shape) != 2 or not self.X.shape[0]:
            raise ValueError(f"X must have rows and columns, got shape {tuple(self.X.shape)}.")
        self.names = names_of(self.model, self.X)

    @property
    def is_kernel_machine(self) -> bool:
        """Whether predictions are sums of kernel values."""
        return isinstance(self.machine, KernelMachine) and not isinstance(self.machine, KernelBasis)

    @property
    def is_plain(self) -> bool:
        """Whether the machine's features are the user's columns themselves."""
        return self.before is None and getattr(self.machine, "table_", None) is None

    @property
    def table(self) -> TableEncoder | None:
        """What reads the user's columns; None if they are numbers or a step reads them."""
        first = self.machine if self.before is None else self.before[0]
        return first if isinstance(first, TableEncoder) else getattr(first, "table_", None)

    def left_out(self, names: Sequence[str]) -> list[str]:
        """Return which of these columns the fit left out."""
        return [] if self.table is None else [n for n in names if n in self.table.left_out_]

    def features(self, X: Any) -> Array:
        """Return rows as the machine's kernel gets them: transformed, encoded, dense."""
        rows = X if self.before is None else self.before.transform(X)
        return dense_rows64(to_host(validate(self.machine, rows, reset=False)))

    def values(self, X: Any) -> Array:
        """Return f of rows: predictions, or decision values; one column for each output."""
        return np.asarray(self.machine._values(self.features(X)), dtype=np.float64)

    def owned(self, groups: Sequence[Indices]) -> list[Indices] | None:
        """Return which of the machine's features come from each group of columns.

        A group moves down by one row, and the features that change are its own. None if some
        feature depends on several groups, as after PCA.
        """
        if self.is_plain:
            return list(groups)
        F, down = self.features(self.X), np.roll(np.arange(len(self.X)), 1)
        taken, found = np.zeros(F.shape[1], bool), []
        for columns in groups:
            moved = self.features(with_columns_of(self.X, columns, down))
            changed = np.flatnonzero((moved != F).any(axis=0))
            if taken[changed].any() or (moved[:, changed] != F[down][:, changed]).any():
                return None
            taken[changed] = True
            found.append(changed)
        return found


def classes_of(machine: Any, n_outputs: int) -> tuple[Any, ...]:
    """Return the labels of the outputs: the second of two classes; nothing for numbers."""
    if not machine._classifies:
        return ()
    return tuple(machine.classes_.tolist()[int(n_outputs == 1) :])


def split_pipeline(model: Any) -> tuple[Any, Any]:
    """Return the steps before the machine (None without any) and the machine."""
    model = split_threshold(model)[0]
    if not isinstance(model, Pipeline):
        return None, model
    return (model[:-1] if len(model.steps) > 1 else None), model[-1]


def checked_view(model: Any, X: Any, task: str) -> View:
    """Return the view of one of this package's machines; refuse other models."""
    machine = split_pipeline(model)[1]
    if not isinstance(machine, Machine) or isinstance(machine, KernelBasis):
        raise TypeError(
            f"{task} needs an estimator of leansvm, a pipeline that ends with one, or what "
            f"tune_threshold returns for it, got {type(machine).__name__}."
        )
    return View(model, X)


def names_of(model: Any, X: Any) -> list[str]:
    """Return the names of columns: those of a frame or of the fit, else x0, x1, ..."""
    if hasattr(X, "columns"):
        return [str(name) for name in X.columns]
    seen = getattr(model, "feature_names_in_", None)
    fits = seen is not None and len(seen) == X.shape[1]
    return names_of_features(seen if fits else None, X.shape[1])


def feature_names_of(model: Any, count: int) -> list[str]:
    """Return the names of the machine's own features, as the steps before it call them."""
    before, machine = split_pipeline(model)
    found = [getattr(machine, "feature_names_in_", None)]
    encoder = getattr(machine, "table_", None) if before is None else before
    if encoder is not None:
        with suppress(AttributeError, ValueError):  # of steps that give no names
            found.append(encoder.get_feature_names_out())
    known = (names for names in found if names is not None and len(names) == count)
    return names_of_features(next(known, None), count)


def dense(X: Any) -> Any:
    """Return sparse rows as an array, others as they are."""
    return X.toarray() if sparse.issparse(X) else X


def stacked(X: Any, below: Any) -> Any:
    """Return the rows of both, in X's form."""
    if hasattr(X, "isetitem") and hasattr(below, "isetitem"):  # pandas
        from pandas import concat

        return concat([X, below], ignore_index=True)
    if hasattr(X, "to_series") and hasattr(below, "to_series"):  # polars
        return X.vstack(below)
    return np.concatenate([np.asarray(X), np.asarray(below)])


def composed(X: Any, sources: Indices) -> Any:
    """Return rows whose column c is that of row ``sources[i, c]`` of X, in X's form."""
    if hasattr(X, "isetitem"):  # pandas
        rows = X.iloc[sources[:, 0]].reset_index(drop=True)
        for c in range(1, X.shape[1]):
            rows.isetitem(c, X.iloc[:, c].array.take(sources[:, c]))
        return rows
    if hasattr(X, "to_series"):  # polars
        return X.select(X.to_series(c)[sources[:, c]] for c in range(X.shape[1]))
    return np.take_along_axis(X, sources, axis=0)


def with_columns_of(X: Any, columns: Indices, rows: Indices) -> Any:
    """Return X with some columns taken from other rows."""
    sources = np.tile(np.arange(len(rows))[:, None], (1, X.shape[1]))
    sources[:, columns] = rows[:, None]
    return composed(X, sources)


def grouped(
    names: Sequence[str], groups: Mapping[str, Any] | None
) -> tuple[list[str], list[Indices]]:
    """Return names and column numbers of what moves as one: groups, and columns in none."""
    given = {} if groups is None else groups
    places = {name: i for i, name in enumerate(names)}
    owner: dict[int, str] = {}
    for group, members in given.items():
        for member in [members] if isinstance(members, str | int) else members:
            column = places.get(member, member) if isinstance(member, str) else int(member)
            if not isinstance(column, int) or not 0 <= column < len(names) or column in owner:
                raise ValueError(
                    f"groups[{group!r}]: {member!r} must be the name or number of one of the "
                    f"{len(names)} columns, each in one group at most."
                )
            owner[column] = str(group)
    order: dict[Any, list[int]] = {}
    for i, name in enumerate(names):
        order.setdefault((owner[i],) if i in owner else (name, i), []).append(i)
    return [str(key[0]) for key in order], [np.asarray(each) for each in order.values()]


@dataclass(frozen=True)
class Summand:
    """One kernel of a model: sum_j coef_j k(x, z_j)."""

    function: KernelFunction
    prepare: Callable[[Array], Array]  # the machine's features -> rows that the kernel takes
    source: Indices  # for each column of these rows, the feature that it is made of
    points: Array  # prepared
    coef: Array  # points x outputs

    def columns_of(self, features: Indices) -> Indices:
        """Return the kernel's columns that some features make, those of gamma 0 left out."""
        used = np.isin(self.source, features)
        return np.flatnonzero(used & (np.broadcast_to(self.function.gamma, used.shape) > 0))

    def along(self, columns: Indices) -> KernelFunction:
        """Return the kernel of some columns alone."""
        f = self.function
        gamma = f.gamma if np.ndim(f.gamma) == 0 else np.asarray(f.gamma)[columns]
        return type(f)(gamma, f.degree, f.coef0)


def parts_of(machine: Any) -> list[Summand] | None:
    """Return the kernels whose sum the model is; None if no kernel has a name."""
    features, coef = machine._model()
    kernel, coef = features.kernel, np.asarray(to_host(coef), np.float64)
    if callable(kernel.name) or kernel.precomputed:
        return None
    points = dense_rows64(to_host(features.points))
    if isinstance(kernel.function, Mixture):
        return _parts_of_mixture(kernel.function, points, coef)
    prepare = _same if kernel.clip is None else partial(clipped, bounds=kernel.clip)
    source = np.arange(points.shape[1])
    return [Summand(kernel.function, prepare, source, prepare(points), coef)]


def _parts_of_mixture(mixture: Mixture, points: Array, coef: Array) -> list[Summand]:
    columns = np.arange(mixture.n_features)
    curves = np.array([curve.feature for curve in mixture.knots], np.intp)
    return [
        Summand(
            PARTS[part.kernel](part.gamma),
            partial(mixture.rows_of, number),
            columns if part.kernel == "linear" else np.concatenate([columns, curves]),
            mixture.rows_of(number, points),
            part.weight * coef,
        )
        for number, part in enumerate(mixture.parts)
        if part.weight > 0
    ]


def _same(rows: Array) -> Array:
    return rows


def as_lines(
    title: str,
    names: Sequence[str],
    cells: Sequence[str],
    shown: Indices,
    left_out: Sequence[str] = (),
    labels: Sequence[str] | None = None,
) -> str:
    """Return a title, a line for each of the first eight columns, and what is not shown."""
    labels = names if labels is None else labels
    used = [i for i in shown.tolist() if names[i] not in left_out]
    width = max((len(labels[i]) for i in used[:8]), default=0)
    lines = [title, *(f"  {labels[i]:<{width}}  {cells[i]}" for i in used[:8])]
    lines += [f"  {len(used) - 8} more"] if len(used) > 8 else []
    if left_out:
        more = f" and {len(left_out) - 8} more" if len(left_out) > 8 else ""
        lines.append(f"  left out of the fit: {', '.join(left_out[:8])}{more}")
    return "\n".join(lines)
