"""Read what `fit` is given: arrays, files, Dask collections and devices become `TrainingData`.

`read` validates rows, turns labels into columns +-1 (numbers stay numbers) and combines sample
weights with class weights. After `read`, nothing in a fit depends on where the rows are.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import column_or_1d, compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from leansvm._array_api import (
    dispatched_namespace,
    foreign_namespace,
    like_rows,
    namespace,
    rows_at,
    same_place,
    to_host,
)
from leansvm._sklearn import with_advice
from leansvm.dual.problem import check_kernel_matrix
from leansvm.estimators.targets import check_single_output, explain_targets, read_numbers
from leansvm.linalg import canonical_csr
from leansvm.rows import (
    MemoryBlocks,
    MergedRows,
    RowBlocks,
    RowSource,
    Targets,
    check_budget,
    is_dask,
    merge_equal_rows,
    one_vs_rest,
    order_of,
    source_of,
)
from leansvm.tables import is_table
from leansvm.tables.fitting import (
    TableRows,
    check_features,
    encoded,
    encoded_source,
    has_means,
    transformed,
    validate_table,
    where_no_numbers,
)

Array = NDArray[np.float64]
_LEAST_ROW_WEIGHT = 1e-100  # times the largest; dividing by smaller ones would overflow
# fitted attributes that describe rows and targets
_OF_TARGETS = ("classes_", "_single_output", "_scale")
ROW_ATTRIBUTES = ("n_features_in_", "feature_names_in_", "table_", *_OF_TARGETS)
_SPREAD_ROWS = 256  # rows of a file from which the spread of the targets is taken
_NO_WEIGHT = "sample_weight must be positive for at least one row."


@dataclass(frozen=True)
class TrainingData:
    """Rows, targets (one column per output) and weights of a fit, wherever they are."""

    X: Any  # array, CSR matrix or RowSource
    Y: Any  # None: the source has the targets
    weight: Any  # sample weights times class weights; None: the source has them
    n_outputs: int
    n_positive: int  # rows of positive weight
    # n in GCV: the sum of sample weights. Class weights do not count, because they are costs.
    count: float | None = None
    encode: Targets | None = None  # how a source's targets become numbers
    merged: MergedRows | None = None  # which rows stand for their copies
    taken: NDArray[np.intp] | None = None  # which of the given rows these are; None: all
    whole: TrainingData | None = None  # the rows as they were given, if these are fewer
    class_weight: Array | None = None  # of each class, a factor in ``weight``
    attributes: dict[str, Any] = field(default_factory=dict)  # that `publish` sets: classes, names
    rows: RowBlocks | None = None  # the rows in blocks, if the family has made them

    def blocks(self, columns: int = 0, budget: int = 0, tile_rows: int | None = None) -> RowBlocks:
        """Return the rows in blocks."""
        if self.encode is not None:
            return self.X.blocks(self.encode, columns=columns, budget=budget, weight=self.weight)
        ones = self.weight is None or bool(namespace(self.weight).all(self.weight == 1.0))
        return MemoryBlocks(
            self.X,
            self.Y,
            None if ones else self.weight,
            class_weight=None if ones else self.class_weight,
            columns=columns,
            tile_rows=tile_rows,
        )

    def variance(self) -> float:
        """Weighted variance of all entries of X, as ``gamma="scale"`` uses it."""
        return (self.blocks() if self.rows is None else self.rows).variance()

    def spread(self) -> Array:
        """Standard deviation of the targets (in files: of the first rows); never zero."""
        Y = self.blocks().head(_SPREAD_ROWS)[1] if self.Y is None else self.Y
        return np.maximum(np.std(to_host(Y), axis=0), np.finfo(np.float64).tiny)

    def merge_copies(self, budget: int) -> TrainingData:
        """Give the first of equal rows the weight of all: leave-one-out leaves them out together.

        The rows stay where they are; the other copies get weight 0.
        """
        if self.encode is not None:
            check_budget(
                self.X.n_rows * (64 + 24 * self.n_outputs),
                budget,
                f"A fit with the leave-one-out residuals of {self.X.n_rows:,} rows",
                "Use C='gcv' and calibrate=False, which need only sums.",
            )
        merged = merge_equal_rows(self.blocks())
        weight = np.zeros(self.X.shape[0])
        weight[merged.first] = merged.weight
        return replace(self, weight=weight, n_positive=len(merged.first), merged=merged)

    def take_positive(self, merge: bool, earlier: Any = ()) -> TrainingData:
        """Find the rows of positive weight; with ``merge``, only the first of equal rows.

        ``earlier`` are the weights of the rows of earlier batches; these rows come first.
        """
        Y, weight = to_host(self.Y), np.append(earlier, to_host(self.weight))
        if merge:
            merged = merge_equal_rows(MemoryBlocks(self.X, Y, weight))
        else:
            first = np.flatnonzero(weight > 0)
            group = np.full(len(weight), -1, dtype=np.intp)
            group[first] = np.arange(len(first))
            merged = MergedRows(first, group, weight[first])
        first = merged.first
        return replace(self, Y=Y, weight=weight, merged=merged, n_positive=len(first), taken=first)

    def sort_distinct(self) -> TrainingData:
        """Merge equal rows, and sort the rest by their values.

        Some iterations amplify rounding, which depends on the order of the rows. After this, rows
        in another order, or copies instead of weights, give the same model.
        """
        merged = merge_equal_rows(self.blocks())
        first = merged.first
        distinct = MemoryBlocks(to_host(rows_at(self.X, first)), to_host(rows_at(self.Y, first)))
        order = order_of(distinct, by_values=True).rows
        taken = first[order]
        return replace(
            self,
            X=rows_at(self.X, taken),
            Y=rows_at(self.Y, taken),
            weight=merged.weight[order],
            n_positive=len(first),
            merged=merged,
            taken=taken,
            whole=self,
        )


def read(
    estimator: Any,
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    reset: bool = True,
    classes: Any = None,
    batch: bool = False,
) -> TrainingData:
    """Validate and encode the input of `fit`, or of `partial_fit`; the estimator stays as it is.

    The ``attributes`` of the result are what `publish` sets later: ``n_features_in_``,
    ``classes_`` and such. With ``reset=False`` the features must be those of an earlier call.
    ``classes`` are all labels there will be; a ``batch`` may lack some of them.
    """
    scratch = object.__new__(type(estimator))  # scikit-learn's checks set attributes here
    vars(scratch).update(vars(estimator))
    # Rows of the fit that are read again (`keep_rows`) are encoded as in the fit: the target mean
    # of a category leaves out the row's own target.
    learns = reset or (not batch and has_means(estimator))
    source = None
    if estimator._fits_sources and type(X) is not np.ndarray:
        source = source_of(X, y, sample_weight)
    if source is not None:
        data = _read_source(scratch, source, reset, classes, batch)
        data = replace(data, X=encoded_source(scratch, source, data.encode, reset=learns))
    else:
        if reset:
            vars(scratch).pop("table_", None)
        X = X.compute() if is_dask(X) else X
        try:
            data = _read_arrays(scratch, X, y, sample_weight, reset, classes, batch)
        except (TypeError, ValueError):
            explain_targets(estimator, y)
            raise
        if reset and estimator.kernel == "precomputed":
            check_kernel_matrix(data.X)  # errors of the labels come first
    known = {}
    for name in ROW_ATTRIBUTES:
        if name in vars(scratch):
            known[name] = vars(scratch)[name]
    return replace(data, attributes=known)


def _read_arrays(
    scratch: Any, X: Any, y: Any, sample_weight: Any, reset: bool, classes: Any, batch: bool
) -> TrainingData:
    """Read rows, labels or numbers to predict, and weights in memory."""
    labelled, table = scratch._classifies, X
    if not labelled and sparse.issparse(y):
        raise TypeError("y must be dense, got a sparse matrix: use y.toarray().")
    kinds = {} if labelled else {"multi_output": True, "y_numeric": True}
    X, y = validate(scratch, X, y, reset=reset, **kinds)
    if dispatched_namespace(sample_weight) is not None:
        sample_weight = to_host(sample_weight)
    given = _check_sample_weight(
        sample_weight,
        np.empty((X.shape[0], 0)),
        dtype=np.float64,
        ensure_non_negative=True,
        copy=True,
    )
    if not given.any():
        raise ValueError(_NO_WEIGHT)
    given[given < _LEAST_ROW_WEIGHT * given.max()] = 0.0
    own, class_weight, count = given, None, None
    if labelled:
        Y, labels, totals, class_weight = encode_labels(scratch, y, given, classes, batch)
        count = float(totals.sum())
        if class_weight is not None:
            given = given * class_weight[labels]
    else:
        Y = read_numbers(scratch, y, given, reset)
    if isinstance(X, TableRows):
        X = encoded(scratch, X, Y, own)
    elif not (reset or batch) and has_means(scratch):
        X = scratch.table_.training_rows(table, Y, own).astype(X.dtype)
    shape = Y.shape[1], int(np.count_nonzero(given)), count
    return TrainingData(X, Y, like_rows(given, X), *shape, class_weight=class_weight)


def _read_source(
    scratch: Any, source: RowSource, reset: bool, classes: Any, batch: bool
) -> TrainingData:
    """Find classes and weights in a pass over the targets; X is not read."""
    if scratch.kernel == "precomputed":
        raise ValueError("kernel='precomputed' needs the kernel matrix as an array in memory.")
    if not reset:
        check_features(scratch, source.n_features, source.feature_names)
    elif not source.n_targets:
        raise ValueError(
            f"This {type(scratch).__name__} estimator requires y to be passed, but the target "
            f"y is None: pass y, or name its column in open_dataset(..., target=...)."
        )
    else:
        scratch.__dict__.pop("feature_names_in_", None)
        scratch.n_features_in_ = source.n_features
        if source.feature_names is not None:
            scratch.feature_names_in_ = np.asarray(source.feature_names, dtype=object)
    if not scratch._classifies:
        check_single_output(scratch, source.single_target, reset)
        if scratch.target is not None:
            raise ValueError(
                f"target={scratch.target!r} needs rows in memory: set target=None, and pass the "
                f"transformed y."
            )
        scratch._scale = None
    seen = source.survey(numeric=not scratch._classifies)
    if not seen.weights.any():
        raise ValueError(_NO_WEIGHT)
    known = class_weight = count = None
    outputs, used = source.n_targets, seen.rows
    if scratch._classifies:
        # checked as arrays are, with two rows per class: if all labels differ, scikit-learn
        # takes them for numbers
        twice = np.repeat(np.asarray(seen.classes), 2), np.repeat(seen.weights / 2.0, 2)
        _, labels, totals, class_weight = encode_labels(scratch, *twice, classes, batch)
        known = scratch.classes_
        count, outputs = float(totals.sum()), 1 if len(known) == 2 else len(known)
        if class_weight is not None:
            used = used * (class_weight[labels[::2]] > 0)
    weighted = class_weight is not None or not seen.all_ones
    encode = Targets(known, class_weight, _LEAST_ROW_WEIGHT * seen.largest_weight, weighted)
    return TrainingData(source, None, None, outputs, int(used.sum()), count, encode)


def validate(
    estimator: Any, X: Any, y: Any = "no_validation", *, reset: bool, **kwargs: Any
) -> Any:
    """Check rows (and targets) in memory, as scikit-learn does; they stay where they are.

    With ``reset``, a table with text, dates or missing values is returned as `TableRows`, which
    `encoded` turns into numbers later. Without it, the encoder of the fit returns numbers at once.
    """
    is_array = type(X) is np.ndarray
    if not is_array and is_dask(X):
        X = X.compute()
    if not reset and "table_" in vars(estimator):
        return transformed(estimator, X, y, **kwargs)
    pairwise = estimator.kernel == "precomputed"
    if isinstance(X, RowSource):
        raise TypeError(
            f"{type(estimator).__name__} needs rows in memory; SparseLSSVC, SparseLSSVR, "
            f"ReducedSVC and ReducedSVR fit data sets in files."
        )
    xp = dispatched_namespace(X)
    if xp is not None and reset and (pairwise or not estimator._fits_where_rows_are):
        X, xp = to_host(X), None
    if dispatched_namespace(y) is not None and not (xp and same_place(y, X)):
        y = to_host(y)
    options = {
        "accept_sparse": False if pairwise else "csr",
        "dtype": [np.float64, np.float32] if xp is None else [xp.float64, xp.float32],
        "order": "C" if xp is None else None,
    }
    plain = is_array and X.dtype.kind in "biuf"
    if xp is None and reset and not plain and is_table(X, numbers=False):
        return validate_table(estimator, X, y, **kwargs)
    try:
        checked = validate_data(estimator, X, y, reset=reset, **options, **kwargs)
    except (TypeError, ValueError) as error:
        if xp is not None or (pairwise and isinstance(error, TypeError)) or not is_table(X):
            raise with_advice(error) from None
        if not reset:
            raise ValueError(
                f"Input X contains NaN, text or dates{where_no_numbers(X)}, but "
                f"{type(estimator).__name__} was fitted on numbers without missing values: fill "
                f"them, or fit on rows that contain some."
            ) from None
        return validate_table(estimator, X, y, **kwargs)
    X, *rest = checked if isinstance(checked, tuple) else (checked,)
    X = canonical_csr(X) if sparse.issparse(X) else X
    return (X, *rest) if rest else X


# ---------------------------------------------------------------------------- targets


def encode_labels(
    scratch: Any, y: Any, weight: Array, classes: Any, batch: bool
) -> tuple[Any, NDArray[np.intp], Array, Array | None]:
    """Set ``classes_``; return targets +-1, class numbers, and the weights of the classes.

    ``scratch`` is the copy of the estimator that `read` makes. Targets have one column per class
    (two classes: a single column) and stay where y is; the rest is on the host. The last two
    results are the sums of sample weights by class, and ``class_weight`` as numbers (None if it is
    not given).
    """
    check_classification_targets(y)
    y = column_or_1d(y, warn=True)
    xp = foreign_namespace(y)
    if xp is None:
        present, labels = np.unique(y, return_inverse=True)
    else:
        present, labels = to_host(tuple(xp.unique_inverse(y)))
    scratch.classes_ = known = present if classes is None else np.unique(classes)
    if len(known) < 2:
        raise ValueError(
            f"{type(scratch).__name__} needs rows of at least two classes: the number of classes "
            f"has to be greater than one; got {len(known)} class, {known.tolist()}."
        )
    if classes is not None:
        unknown = np.setdiff1d(present, known)
        if len(unknown):
            raise ValueError(f"y has labels that are not in classes: {unknown.tolist()}.")
        labels = np.searchsorted(known, present)[labels]
    totals: Any = np.bincount(labels, weights=weight, minlength=len(known))
    found = None
    if scratch.class_weight == "balanced":  # over classes that have any weight
        used = totals > 0
        found = np.zeros(len(totals))
        found[used] = totals.sum() / (used.sum() * totals[used])
    elif scratch.class_weight is not None:
        found = compute_class_weight(scratch.class_weight, classes=known, y=known)
        found = np.asarray(found, dtype=np.float64)
        if not np.all(np.isfinite(found) & (found >= 0)):
            raise ValueError(
                f"class_weight must hold finite numbers >= 0, got {scratch.class_weight!r}."
            )
    if not batch and np.count_nonzero(totals if found is None else totals * found) < 2:
        raise ValueError(
            "y, with sample_weight and class_weight, has fewer than two classes with positive "
            "weight: pass rows of at least two classes, and weights above 0."
        )
    return like_rows(one_vs_rest(labels, len(known)), y), labels, totals, found
