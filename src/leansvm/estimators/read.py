"""Read what `fit` is given: arrays, files, Dask collections and devices become `TrainingData`.

Validates rows, turns labels into columns +-1 (numbers stay numbers) and combines sample weights
with class weights. After `read`, nothing in a fit depends on where the rows are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import (
    assert_all_finite,
    check_array,
    check_consistent_length,
    column_or_1d,
    compute_class_weight,
)
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, validate_data

from leansvm._array_api import (
    as_float64,
    dispatched_namespace,
    foreign_namespace,
    like_rows,
    moved,
    namespace,
    same_place,
    to_host,
    zeros,
)
from leansvm.dual.problem import check_kernel_matrix
from leansvm.estimators.target import learn_scale, to_scale
from leansvm.estimators.training_data import TrainingData
from leansvm.linalg import canonical_csr
from leansvm.rows import (
    RowSource,
    Targets,
    few_values,
    one_vs_rest,
    source_of,
)
from leansvm.tables import is_table
from leansvm.tables.fitting import (
    TableRows,
    encoded,
    encoded_source,
    transformed,
    validate_table,
)

Array = NDArray[np.float64]
_LEAST_WEIGHT = 1e-100  # of the largest: smaller ones are too small to divide by
_LARGEST_TARGET = 1e140  # sums of squares of larger ones are not finite
_FEW_CLASSES = "sample_weight and class_weight leave fewer than two classes with positive weight."
# what an estimator is told of its rows
_OF_TARGETS = ("classes_", "_single_output", "_scale")
ROW_ATTRIBUTES = ("n_features_in_", "feature_names_in_", "table_", *_OF_TARGETS)
_NO_WEIGHT = "sample_weight must be positive for at least one row."


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

    What it will be told of the rows (``n_features_in_``, ``feature_names_in_``, ``classes_``) is in
    the ``attributes`` of the result.

    Parameters
    ----------
    estimator : Machine
        Whose ``kernel``, ``class_weight`` and kind (classifier or regressor) decide.
    X, y, sample_weight
        As `fit` takes them.
    reset : bool
        Whether features are those of a first call, not compared with an earlier one.
    classes : array-like, optional
        All labels there will be.
    batch : bool
        Whether the rows are a part of the data, which may lack classes.
    """
    scratch = object.__new__(type(estimator))  # takes what scikit-learn's checks set
    scratch.__dict__.update(estimator.__dict__)
    source = source_of(X, y, sample_weight) if estimator._fits_sources else None
    if source is None:
        data = _read_arrays(scratch, X, y, sample_weight, reset, classes, batch)
    else:
        check_source(scratch, source, reset=reset)
        encode = _classes_of_source if estimator._classifies else _numbers_of_source
        data = encode(scratch, source, y, reset=reset, classes=classes, batch=batch)
        learns = reset or ("table_" in vars(scratch) and not batch)
        data = replace(data, X=encoded_source(scratch, source, data.encode, reset=learns))
    known = {}
    for name in ROW_ATTRIBUTES:
        if name in vars(scratch):
            known[name] = vars(scratch)[name]
    return replace(data, attributes=known)


def _read_arrays(
    estimator: Any, X: Any, y: Any, sample_weight: Any, reset: bool, classes: Any, batch: bool
) -> TrainingData:
    """Read rows, targets and weights in memory."""
    # rows of a fit that are read again: each gets means without its own target again
    reset = reset or ("table_" in vars(estimator) and not batch)
    if estimator._classifies:
        X, y = validate(estimator, X, y, reset=reset)
        Y, labels = encode_labels(estimator, y, classes)
        weight = _sample_weights(sample_weight, X)
        count = float(namespace(weight).sum(weight))
        X = encoded(estimator, X, Y, weight, reset=reset)
        weight, by_class = _class_weighted(estimator, weight, labels, batch)
    else:
        if sparse.issparse(y):
            raise TypeError("y must be dense, got a sparse matrix: use y.toarray().")
        X, y = validate(estimator, X, y, reset=reset, multi_output=True, y_numeric=True)
        Y, count, by_class = as_float64(y), None, None
        if foreign_namespace(Y) is None:  # objects such as None have become NaN
            assert_all_finite(Y, input_name="y")
            if np.abs(Y).max(initial=0.0) > _LARGEST_TARGET:
                raise ValueError(f"y has values beyond {_LARGEST_TARGET:g}: scale it.")
        _check_single_output(estimator, Y.ndim == 1, reset)
        Y = namespace(Y).reshape(Y, (Y.shape[0], -1))
        weight = _sample_weights(sample_weight, X)
        if reset:
            estimator._scale = None
            if estimator.target is not None:
                estimator._scale = learn_scale(estimator.target, Y, weight)
        Y = Y if estimator._scale is None else to_scale(estimator._scale, Y)
        X = encoded(estimator, X, Y, weight, reset=reset)
    # after the labels: an error of theirs comes first
    if reset and estimator.kernel == "precomputed":
        check_kernel_matrix(X)
    positive = int(namespace(weight).count_nonzero(weight > 0))
    return TrainingData(X, y, Y, weight, Y.shape[1], positive, count, class_weight=by_class)


def validate(
    estimator: Any, X: Any, y: Any = "no_validation", *, reset: bool, **kwargs: Any
) -> Any:
    """Check rows (and targets) in memory, as scikit-learn does; they stay where they are.

    Tables with text, dates or missing values come back as `TableRows` from a first call, which
    `encoded` makes numbers of; later ones as the features that the encoder of the fit makes.
    """
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
    if xp is None and reset and is_table(X, numbers=False):
        return validate_table(estimator, X, y, **kwargs)
    try:
        checked = validate_data(estimator, X, y, reset=reset, **options, **kwargs)
    except (TypeError, ValueError) as error:
        if xp is not None or (pairwise and isinstance(error, TypeError)) or not is_table(X):
            raise
        if not reset:
            raise ValueError(
                f"Input X contains NaN, text or dates, and {type(estimator).__name__} was fitted "
                f"on numbers without gaps: fill them, or fit again with rows that have some."
            ) from None
        return validate_table(estimator, X, y, **kwargs)
    X, *rest = checked if isinstance(checked, tuple) else (checked,)
    X = canonical_csr(X) if sparse.issparse(X) else X
    return (X, *rest) if rest else X


def targets_to_score(estimator: Any, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any] | None:
    """Return targets and weights that a source brings along; None for arrays."""
    source = source_of(X, y, sample_weight) if estimator._fits_sources else None
    if source is None:
        return None
    if not source.n_targets:
        raise ValueError("score needs the targets: pass y, or name it in open_dataset(target=...).")
    return source.targets()


def check_source(estimator: Any, source: RowSource, *, reset: bool) -> None:
    """Set or compare the number and the names of the features."""
    if estimator.kernel == "precomputed":
        raise ValueError("kernel='precomputed' needs the kernel matrix as an array in memory.")
    if not reset:
        check_features(estimator, source.n_features, source.feature_names)
        return
    if not source.n_targets:
        raise ValueError(
            f"This {type(estimator).__name__} estimator requires y to be passed, but the target "
            f"y is None: pass y beside a Dask collection, name it in open_dataset(..., target=...)."
        )
    estimator.__dict__.pop("feature_names_in_", None)
    estimator.n_features_in_ = source.n_features
    if source.feature_names is not None:
        estimator.feature_names_in_ = np.asarray(source.feature_names, dtype=object)


def check_features(estimator: Any, n_features: int, names: list[str] | None) -> None:
    """Compare number and names of the features with those of the fit."""
    if "table_" in vars(estimator):
        return  # finds its columns by their names
    if n_features != estimator.n_features_in_:
        raise ValueError(
            f"X has {n_features} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input."
        )
    known = getattr(estimator, "feature_names_in_", None)
    if names is not None and known is not None and list(known) != list(names):
        raise ValueError(
            f"The feature names should match those that were passed during fit: {list(known)}, "
            f"got {list(names)}."
        )


# ---------------------------------------------------------------------------- targets


def encode_labels(estimator: Any, y: Any, classes: Any = None) -> tuple[Any, Any]:
    """Return targets +-1, one column per class (two classes: one column), and class numbers.

    Both are where y is. Sets ``classes_``.
    """
    check_classification_targets(y)
    y = column_or_1d(y, warn=True)
    xp = foreign_namespace(y)
    if xp is not None and classes is None:
        present, labels = xp.unique_inverse(y)
        present = to_host(present)
    else:
        present, labels = np.unique(to_host(y), return_inverse=True)
    estimator.classes_ = present if classes is None else np.unique(classes)
    n_classes = len(estimator.classes_)
    if n_classes < 2:
        raise ValueError(
            f"The number of classes has to be greater than one; got {n_classes} class: y must "
            f"hold at least two classes for {type(estimator).__name__}."
        )
    if foreign_namespace(labels) is not None:
        numbers = like_rows(np.arange(n_classes)[n_classes == 2 :], labels)
        return 2.0 * as_float64(labels[:, None] == numbers) - 1.0, labels
    if classes is not None:
        unknown = np.setdiff1d(present, estimator.classes_)
        if len(unknown):
            raise ValueError(f"y has labels that are not in classes: {unknown.tolist()}.")
        labels = np.searchsorted(estimator.classes_, present)[labels]
    return one_vs_rest(labels, n_classes), labels


def any_targets(X: Any, y: Any) -> Array:
    """Return classes as columns +-1 and numbers as they are, of whatever kind y is."""
    y = y if dispatched_namespace(y) is None else to_host(y)
    y = check_array(y, ensure_2d=False, dtype=None, input_name="y")
    check_consistent_length(X, y)
    kind = type_of_target(y)
    if kind in ("binary", "multiclass") and (y.dtype.kind not in "iuf" or few_values(y)):
        classes, labels = np.unique(y, return_inverse=True)
        return one_vs_rest(labels, len(classes))
    Y = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    assert_all_finite(Y, input_name="y")
    return Y


def _classes_of_source(
    estimator: Any, source: RowSource, y: Any, *, reset: bool, classes: Any, batch: bool
) -> TrainingData:
    """Find classes and weights in a pass over the targets, without a look at X."""
    seen = source.survey(numeric=False)
    # the checks of arrays, on two rows per class: of labels that are all different scikit-learn
    # says that they could be numbers
    _, present = encode_labels(estimator, np.repeat(np.asarray(seen.classes), 2), classes)
    present = present[::2]
    n_classes = len(estimator.classes_)
    by_class = np.zeros(n_classes)
    by_class[present] = seen.weights
    if not by_class.any():
        raise ValueError(_NO_WEIGHT)
    class_weight = None
    if estimator.class_weight is not None:
        class_weight = _weight_of_classes(estimator, by_class)
    used = seen.rows * (1 if class_weight is None else class_weight[present] > 0)
    if not batch and np.count_nonzero(used) < 2:
        raise ValueError(_FEW_CLASSES)
    weighted = class_weight is not None or not seen.all_ones
    least = _LEAST_WEIGHT * seen.largest_weight
    encode = Targets(estimator.classes_, class_weight, least, weighted)
    outputs = 1 if n_classes == 2 else n_classes
    count = float(seen.weights.sum())
    return TrainingData(source, y, None, None, outputs, int(used.sum()), count, encode)


def _numbers_of_source(
    estimator: Any, source: RowSource, y: Any, *, reset: bool, classes: Any, batch: bool
) -> TrainingData:
    """Look at the weights; targets are numbers."""
    _check_single_output(estimator, source.single_target, reset)
    if estimator.target is not None:
        raise ValueError(
            f"target={estimator.target!r} needs rows in memory: set target=None, and transform y "
            f"before."
        )
    estimator._scale = None
    seen = source.survey(numeric=True)
    if not seen.weights.any():
        raise ValueError(_NO_WEIGHT)
    encode = Targets(None, None, _LEAST_WEIGHT * seen.largest_weight, not seen.all_ones)
    return TrainingData(source, y, None, None, source.n_targets, int(seen.rows[0]), encode=encode)


def _check_single_output(estimator: Any, single: bool, reset: bool) -> None:
    if not reset and estimator._single_output != single:
        raise ValueError("y must have as many target columns as in earlier calls.")
    estimator._single_output = single


# ---------------------------------------------------------------------------- weights


def _sample_weights(sample_weight: Any, X: Any) -> Any:
    """Return checked weights where the rows are; ones where none are given."""
    X = np.empty((X.shape[0], 0)) if isinstance(X, TableRows) else X
    if foreign_namespace(X) is not None:
        weight = zeros((X.shape[0],), X)
        weight += 1.0
        if sample_weight is not None:
            given = to_host(sample_weight) if hasattr(sample_weight, "dtype") else sample_weight
            weight = like_rows(_sample_weights(given, np.empty((X.shape[0], 0))), X)
        return weight
    if dispatched_namespace(sample_weight) is not None:
        sample_weight = to_host(sample_weight)
    weight = _check_sample_weight(
        sample_weight, X, dtype=np.float64, ensure_non_negative=True, copy=True
    )
    if not weight.any():
        raise ValueError(_NO_WEIGHT)
    weight[weight < _LEAST_WEIGHT * weight.max()] = 0.0
    return np.asarray(weight)


def _class_weighted(
    estimator: Any, weight: Any, labels: Any, batch: bool
) -> tuple[Any, Array | None]:
    """Return sample weights times class weights, and the latter by class (None: not given)."""
    n_classes, by_class = len(estimator.classes_), None
    if foreign_namespace(weight) is None:
        labels = to_host(labels)
        totals = np.bincount(labels, weights=weight, minlength=n_classes).astype(np.float64)
    else:
        xp, labels = namespace(weight), moved(labels, weight)
        sums = [xp.sum(xp.where(labels == c, weight, 0.0)) for c in range(n_classes)]
        totals = np.asarray(to_host(xp.stack(sums)))
    if estimator.class_weight is not None:
        by_class = _weight_of_classes(estimator, totals)
        of_rows = namespace(labels).take(like_rows(by_class, labels), labels)
        weight = weight * moved(of_rows, weight)
        totals = totals * by_class
    if not batch and np.count_nonzero(totals) < 2:
        raise ValueError(_FEW_CLASSES)
    return weight, by_class


def _weight_of_classes(estimator: Any, counts: Array) -> Array:
    if estimator.class_weight == "balanced":  # over classes that have any weight
        present = counts > 0
        balanced = np.zeros(len(counts))
        balanced[present] = counts.sum() / (present.sum() * counts[present])
        return balanced
    classes = estimator.classes_
    by_class = compute_class_weight(estimator.class_weight, classes=classes, y=classes)
    if not np.all(np.isfinite(by_class) & (by_class >= 0)):
        raise ValueError(
            f"class_weight must hold finite numbers >= 0, got {estimator.class_weight!r}."
        )
    return np.asarray(by_class, dtype=np.float64)
