"""Checks of a loaded model before it is used.

Compiled code reads as many numbers as the shapes say, and a file may say anything. So the arrays of
a model are compared with each other, and indices with the arrays that they refer to.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from leansvm.basis.features import KernelFeatures
from leansvm.dual.active_set import ActiveSet
from leansvm.estimators.kernel_basis import KernelBasis
from leansvm.estimators.kernel_machine import KernelMachine
from leansvm.estimators.low_rank import LowRankMachine
from leansvm.estimators.machine import Machine
from leansvm.estimators.predict import Classifier
from leansvm.kernels import KERNELS, Kernel, Mixture
from leansvm.low_rank import BasisFunction, get_function
from leansvm.ridge.kfold import FoldSums
from leansvm.ridge.sums import Sums
from leansvm.tables import TableEncoder

_PLACES = {"MT19937": 624, "Philox": 4}  # numbers that these generators hold


def check_objects(model: Any) -> None:
    """Raise ValueError if the parts of a model do not match each other."""
    for part in _parts(model):
        if sparse.issparse(part):
            _check_sparse(part)
        elif isinstance(part, np.random.RandomState | np.random.Generator):
            _check_generator(part)
        elif isinstance(part, KernelBasis):
            _check_kernel_basis(part)
        elif isinstance(part, Machine):
            _check_machine(part)
        elif isinstance(part, TableEncoder):
            _check_table(part, part.n_features_in_)
        elif _is_libsvm(part):
            _check_libsvm(part)


def _parts(model: Any) -> Iterator[Any]:
    """Yield every object that a model holds, each once."""
    stack, seen = [model], dict[int, Any]()
    while stack:
        part = stack.pop()
        if id(part) in seen or isinstance(part, str | bytes | int | float | None | type):
            continue
        seen[id(part)] = part
        yield part
        if isinstance(part, dict):
            stack.extend(part.values())
        elif isinstance(part, list | tuple | set | frozenset):
            stack.extend(part)
        elif isinstance(part, np.ndarray):
            stack.extend(part.ravel() if part.dtype == object else ())
        elif hasattr(part, "__dict__") and not sparse.issparse(part):
            stack.extend(vars(part).values())


# ------------------------------------------------------------------ numbers


def _array(
    owner: Any, name: str, shape: tuple[int | None, ...], kinds: str = "f", finite: bool = True
) -> Any:
    """Return an attribute that must be an array (or CSR rows) of this shape; None: any length."""
    array: Any = getattr(owner, name, None)
    what = f"{type(owner).__name__}.{name}"
    if not isinstance(array, np.ndarray) and not (sparse.issparse(array) and len(shape) == 2):
        raise ValueError(f"{what} is not an array")
    fits = len(array.shape) == len(shape) and all(
        wanted in (None, length) for wanted, length in zip(shape, array.shape, strict=True)
    )
    if not fits:
        raise ValueError(f"{what} has shape {array.shape}, not {shape}")
    odd = kinds == "f" and array.dtype not in (np.float32, np.float64)  # for compiled code
    if array.dtype.kind not in kinds or odd:
        raise ValueError(f"{what} has type {array.dtype}")
    values = array.data if sparse.issparse(array) else array
    if finite and values.dtype.kind in "fc" and not np.isfinite(values).all():
        raise ValueError(f"{what} has values that are not finite")
    return array


def _indices(owner: Any, name: str, length: int | None, low: int, high: int) -> Any:
    """Return an attribute that must be integers from ``low`` to ``high`` - 1."""
    array = _array(owner, name, (length,), "iu")
    if array.size and not low <= int(array.min()) <= int(array.max()) < high:
        raise ValueError(f"{type(owner).__name__}.{name} points outside of the data")
    return array


def _number(owner: Any, name: str, low: float = -np.inf) -> None:
    value = getattr(owner, name, None)
    if not isinstance(value, int | float | np.number) or not low <= value < np.inf:
        raise ValueError(f"{type(owner).__name__}.{name} is {value!r}"[:200])


def _check_sparse(matrix: Any) -> None:
    if matrix.format not in ("csr", "csc"):
        raise ValueError(f"a sparse matrix is of the kind {matrix.format}")
    matrix.check_format(full_check=True)  # indices in order and within the shape


def _check_generator(generator: Any) -> None:
    """Refuse a generator that would read past the numbers it holds."""
    state = (
        generator.get_state(legacy=False)
        if isinstance(generator, np.random.RandomState)
        else generator.bit_generator.state
    )
    place = state.get("buffer_pos", state["state"].get("pos", 0))
    if not 0 <= place <= _PLACES.get(state["bit_generator"], place):
        raise ValueError(f"a random generator has the impossible position {place}")


# ------------------------------------------------------------------ models


def _check_machine(model: Machine) -> None:
    """Check the parameters and, if the model is fitted, the fitted attributes."""
    model._validate_params()
    if not any(name.endswith("_") and not name.endswith("__") for name in vars(model)):
        return
    n_features = _n_features(model)
    if hasattr(model, "table_"):
        n_features = _check_table(model.table_, n_features)
    n_outputs = len(_array(model, "intercept_", (None,)))
    if isinstance(model, Classifier):
        n_classes = len(_array(model, "classes_", (None,), "biufUSO"))
        if n_outputs != (1 if n_classes == 2 else n_classes) or n_classes < 2:
            raise ValueError(f"{n_classes} classes have {n_outputs} outputs")
        if hasattr(model, "class_map_"):
            _array(model, "class_map_", (n_classes + 1, n_classes))
        if hasattr(model, "calibration_scale_"):
            _number(model, "calibration_scale_", 0.0)
        if (
            hasattr(model, "calibration_slopes_")
            and _array(model, "calibration_slopes_", (6,)).min() < 0
        ):
            raise ValueError("calibration_slopes_ must not be negative")
    if isinstance(model, LowRankMachine):
        _check_functions(model, n_outputs, n_features)
    if isinstance(model, KernelMachine):
        _check_support(model, n_outputs, n_features)
        if hasattr(model, "_features"):
            _check_sums(model, n_outputs, n_features)
        if hasattr(model, "_sequence"):
            _check_sequence(model._sequence, n_outputs, n_features)


def _n_features(model: Any) -> int:
    n_features: Any = getattr(model, "n_features_in_", None)
    if not isinstance(n_features, int | np.integer) or n_features < 1:
        raise ValueError(f"n_features_in_ is {n_features!r}"[:200])
    if hasattr(model, "feature_names_in_"):
        _array(model, "feature_names_in_", (int(n_features),), "OU")
    return int(n_features)


def _check_table(table: Any, n_columns: int) -> int:
    """Check the encoder of a table; return how many features it makes."""
    if not isinstance(table, TableEncoder) or table.n_features_in_ != n_columns:
        raise ValueError("table_ does not match the columns of the model")
    return table._checked_width()


def _check_functions(model: LowRankMachine, n_outputs: int, n_features: int) -> None:
    size = _array(model, "coef_", (n_outputs, None)).shape[1]
    _array(model, "centers_", (size, n_features))
    if not (_array(model, "shapes_", (size, n_features)) >= 0).all():
        raise ValueError("shapes_ has negative values")
    if not isinstance(model.function_, BasisFunction):
        raise ValueError("function_ is not a basis function")
    if type(model.function_) is not type(get_function(model.function)):
        raise ValueError("function_ does not match the parameter function")


def _check_support(model: KernelMachine, n_outputs: int, n_features: int) -> None:
    size = _array(model, "dual_coef_", (n_outputs, None)).shape[1]
    kernel: Any = getattr(model, "kernel_", None)
    _check_kernel(model, kernel, n_features)
    if kernel == "precomputed":
        _indices(model, "support_", size, 0, n_features)
        _array(model, "support_vectors_", (0, 0))
    else:
        _indices(model, "support_", size, -1, np.iinfo(np.int64).max)
        _array(model, "support_vectors_", (size, n_features))
    if hasattr(model, "coef_"):
        _array(model, "coef_", (n_outputs, n_features))
    if model._seen is not None:
        _array(model, "_seen", (2, n_features), finite=False)
    if model.n_support_ != size:
        raise ValueError(f"n_support_ is not {size}")


def _check_kernel(owner: Any, name: Any, n_features: int) -> None:
    """Check gamma and the bounds of a kernel, which ``owner`` has with or without underscores.

    A mixture has checked its own numbers when it was built.
    """
    if isinstance(name, Mixture):
        if name.n_features != n_features:
            raise ValueError(f"the mixture is of {name.n_features} features, not {n_features}")
        found, by_part = getattr(owner, "gamma_", None), name.gamma_by_part
        if isinstance(owner, Machine) and not (
            isinstance(found, dict)
            and found.keys() == by_part.keys()
            and all(np.array_equal(found[part], by_part[part]) for part in by_part)
        ):
            raise ValueError("gamma_ does not match the parts of the mixture")
        return
    if not callable(name) and name not in KERNELS:
        raise ValueError(f"there is no kernel {name!r}"[:200])
    own = isinstance(owner, Kernel)
    gamma, clip = ("gamma", "clip") if own else ("gamma_", "clip_")
    if isinstance(getattr(owner, gamma, None), np.ndarray):
        if not (_array(owner, gamma, (n_features,)) >= 0).all():
            raise ValueError("gamma has negative values")
    else:
        _number(owner, gamma, 0.0)
    bounds = getattr(owner, clip, None)
    if bounds is not None:
        shapes = {np.shape(side) for side in bounds}
        if len(bounds) != 2 or shapes != {(n_features,)} or not (bounds[0] <= bounds[1]).all():
            raise ValueError("clip must have one pair of bounds for each feature")
    for parameter in ("degree", "coef0"):
        if hasattr(owner, parameter):
            _number(owner, parameter)


def _check_features(features: Any, n_features: int) -> int:
    """Check kernel functions of points; return how many there are."""
    if not isinstance(features, KernelFeatures) or not isinstance(features.kernel, Kernel):
        raise ValueError("the features of the model have the wrong type")
    kernel = features.kernel
    _check_kernel(kernel, kernel.given, n_features)
    if kernel.precomputed:
        n_points = len(_indices(features, "points", None, 0, n_features))
    else:
        n_points = _array(features, "points", (None, n_features)).shape[0]
    if features.L is not None:
        _array(features, "L", (n_points, n_points))
    if features.kept is not None:
        _indices(features, "kept", n_points, 0, np.iinfo(np.int64).max)
    if features.constant is not None:
        _number(features, "constant")
    return n_points


def _check_sums(model: Any, n_outputs: int, n_features: int) -> None:
    """Check the running sums of `partial_fit`."""
    _check_features(model._features, n_features)
    sums, columns = model._sums, model._features.width + n_outputs
    if not isinstance(sums, Sums | FoldSums) or sums.n_outputs != n_outputs:
        raise ValueError("the sums of the model have the wrong type")
    _number(sums, "count", 0.0)
    _array(sums, "shift", (columns,))
    square = (columns + 1, columns + 1)
    if isinstance(sums, Sums):
        _array(sums, "gram", square)
    else:
        _array(sums, "base", square)
        _array(sums, "grams", (None, *square))
    if getattr(model, "_selected", None) is not None:
        selected = _indices(model, "_selected", None, -1, np.iinfo(np.int64).max)
        if model._features.kept is not None and model._features.kept.max(initial=-1) >= len(
            selected
        ):
            raise ValueError("kept points are not among the selected ones")


def _check_sequence(sequence: Any, n_outputs: int, n_features: int) -> None:
    """Check the rows that `L2SVC.partial_fit` has seen."""
    solver, weight = sequence
    if not isinstance(solver, ActiveSet) or not isinstance(weight, np.ndarray):
        raise ValueError("the rows of partial_fit have the wrong type")
    problem = solver.problem
    n_rows = _array(problem, "X", (None, n_features)).shape[0]
    _array(problem, "Y", (n_rows, n_outputs))
    if not (_array(problem, "weight", (n_rows,)) > 0).all() or len(weight) < n_rows:
        raise ValueError("rows of partial_fit have no weights")
    _check_kernel(problem.kernel, problem.kernel.given, n_features)


def _check_kernel_basis(model: KernelBasis) -> None:
    model._validate_params()
    if hasattr(model, "_features"):
        n_features = _n_features(model)
        if hasattr(model, "table_"):
            n_features = _check_table(model.table_, n_features)
        size = _check_features(model._features, n_features)
        _array(model, "normalization_", (size, size))
        _indices(model, "support_", size, -1, np.iinfo(np.int64).max)
    elif hasattr(model, "support_"):
        raise ValueError("KernelBasis has no features")


def _is_libsvm(part: Any) -> bool:
    """Whether this is a machine of scikit-learn's LIBSVM; there is none before its module."""
    module = sys.modules.get("sklearn.svm._base")  # to load it takes a while
    return module is not None and isinstance(part, module.BaseLibSVM)


def _check_libsvm(model: Any) -> None:
    """Check what scikit-learn hands to LIBSVM, which trusts it."""
    if not hasattr(model, "_n_support"):
        return
    n_features = _n_features(model)
    counts = _array(model, "_n_support", (None,), "iu")
    n_support, n_classes = int(counts.sum()), max(len(getattr(model, "classes_", ())), 2)
    if counts.min() < 0 or len(counts) != n_classes:
        raise ValueError("the support vectors do not match the classes")
    if model.kernel == "precomputed":
        _indices(model, "support_", n_support, 0, model.shape_fit_[0])
    else:
        _indices(model, "support_", n_support, 0, np.iinfo(np.int32).max)
        _array(model, "support_vectors_", (n_support, n_features))
    _array(model, "_dual_coef_", (n_classes - 1, n_support))
    _array(model, "_intercept_", (n_classes * (n_classes - 1) // 2,))
    for name in ("_probA", "_probB"):
        if len(getattr(model, name, ())) not in (0, n_classes * (n_classes - 1) // 2):
            raise ValueError(f"{name} must have one value for each pair of classes")
