"""Checks that two states, or a state and the parameters of a model, belong together.

Sums may be added if their rows were mapped to the same columns and their targets were encoded
alike. The errors name what differs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import compute_class_weight

from leansvm.kernels import WITH_GAMMA, Mixture
from leansvm.linalg import cholesky_in_place
from leansvm.ridge.kfold import FoldSums, KFoldSums
from leansvm.ridge.sums import Sums

Array = NDArray[np.float64]
_FACTOR_DIGITS = 1e-12  # to which L must agree, of its largest entry
_OF_DOT = ("poly", "sigmoid")  # kernels that have degree and coef0


class StateError(ValueError):
    """A state cannot be used this way; the message says why and what to do.

    Examples
    --------
    >>> from leansvm.persistence import StateError
    >>> issubclass(StateError, ValueError)
    True
    """


def refuse_strangers(a: Any, b: Any, verb: str) -> None:
    """Raise StateError unless two states were made on one basis; the error names the difference."""
    ours, theirs = _facts(a), _facts(b)
    strange = [name for name, mine in ours.items() if not equal(mine, theirs[name])]
    if not strange:  # the same L of K_BB = L L', to rounding: machines may round differently
        off = np.abs(a.features.L - b.features.L).max(initial=0.0)
        if off > _FACTOR_DIGITS * np.abs(a.features.L).max(initial=0.0):
            strange = ["the factor of the basis"]
    if strange:  # the first of several is the cause of the others
        name = strange[0]
        raise StateError(
            f"States cannot be {verb}: {name} differs{_values(ours.get(name), theirs.get(name))}. "
            f"Make all of them on one basis: send one state (or its empty()) to every site, and "
            f"let each call fit_from_state(state), then state(X, y) of its rows."
        )
    if not (isinstance(a.sums, FoldSums) and isinstance(b.sums, FoldSums)):
        return
    if a.sums.by_groups or b.sums.by_groups:
        raise StateError(
            f"States cannot be {verb}: their folds are groups, which differ between the states. "
            f"Call without_folds() first, or FitState.by_site(states) to leave out one state at "
            f"a time."
        )
    if a.n_folds != b.n_folds:
        raise StateError(
            f"States cannot be {verb}: the number of folds differs, {a.n_folds} and {b.n_folds}. "
            f"Begin all with the same empty(n_folds=...)."
        )


def _facts(state: Any) -> dict[str, Any]:
    """Return what must agree, by its name in messages, causes before their consequences."""
    features, kernel = state.features, state.features.kernel
    of_dot = kernel.name in _OF_DOT
    return {
        "format": state.version,
        "task": "regression" if state.classes is None else "classification",
        "classes": state.classes,
        "class_weight": state.class_weight,
        "the number of targets": state.sums.n_outputs,
        "the shape of y": 1 if state.single_output else 2,
        "the number of features": state.n_features,
        "feature names": state.feature_names,
        "kernel": kernel.given,
        "gamma": kernel.gamma,
        "degree": kernel.degree if of_dot else None,
        "coef0": kernel.coef0 if of_dot else None,
        "clip": None if kernel.clip is None else np.stack(kernel.clip),
        "bias_penalty": state.bias_penalty,
        "the number of basis points": features.points.shape[0],
        "the basis": features.points,
        "the order of the basis": features.kept,
    }


def equal(a: Any, b: Any) -> bool:
    """Compare numbers, text, arrays and sparse matrices."""
    if a is None or b is None:
        return a is b
    if sparse.issparse(a) or sparse.issparse(b):
        both = sparse.issparse(a) and sparse.issparse(b)
        return both and a.shape == b.shape and (a != b).nnz == 0
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return bool(np.array_equal(a, b))
    return bool(a == b)


def _values(a: Any, b: Any) -> str:
    """Return both values if they are short."""
    if a is None and b is None:
        return ""
    text = f" ({a!r} and {b!r})"
    plain = all(isinstance(v, str | int | float | np.generic) or v is None for v in (a, b))
    short = len(text) < 80 and "\n" not in text and "object at" not in text
    return text if plain or short else ""


# ---------------------------------------------------------------------------- parameters


def class_weights(class_weight: Any, classes: Any) -> Array | None:
    """Return the weight of every class, which must not depend on the rows."""
    if class_weight is None or classes is None:
        return None
    if isinstance(class_weight, str):
        raise StateError(
            f"class_weight={class_weight!r} depends on all rows together, which no state has: give "
            f"the weights as a dictionary."
        )
    return np.asarray(compute_class_weight(class_weight, classes=classes, y=classes), np.float64)


def refuse_parameters(state: Any, parameters: dict[str, Any], classifies: bool) -> None:
    """Raise StateError for the first parameter of a model that contradicts the state."""
    kernel, penalty = state.features.kernel, state.bias_penalty
    if classifies != (state.classes is not None):
        task = "classes" if state.classes is not None else "numbers"
        other = "SparseLSSVC" if state.classes is not None else "SparseLSSVR"
        raise StateError(f"fit_from_state: the state was made for {task}: use {other}.")
    alias = "polynomial" if kernel.given == "poly" else kernel.given
    expected: dict[str, tuple[bool, Any]] = {
        "kernel": (parameters["kernel"] in ("auto", kernel.given, alias), kernel.given),
        "fit_intercept": (parameters["fit_intercept"] == (penalty < np.inf), penalty < np.inf),
    }
    if kernel.name in WITH_GAMMA and not isinstance(kernel.given, Mixture):  # has its own scales
        gamma = parameters["gamma"]  # a rule (a text), or that of the state
        same = isinstance(gamma, str) or np.array_equal(np.asarray(gamma, np.float64), kernel.gamma)
        expected["gamma"] = (same, kernel.gamma)
    numbers = {"bias_penalty": penalty} if penalty < np.inf else {}
    if kernel.name in _OF_DOT:
        numbers |= {"degree": kernel.degree, "coef0": kernel.coef0}
    expected |= {name: (parameters[name] == value, value) for name, value in numbers.items()}
    weights = class_weights(parameters.get("class_weight"), state.classes)
    expected["class_weight"] = (equal(weights, state.class_weight), state.class_weight)
    C = parameters["C"]
    if isinstance(C, KFoldSums):
        expected["C"] = (C.groups is None and C.n_splits == state.n_folds, "kfold")
    for name, (same, value) in expected.items():
        if not same:
            why = " and folds of its own, which C='kfold' uses" if name == "C" else ""
            raise StateError(
                f"fit_from_state: {name}={parameters[name]!r}, but the state was made with "
                f"{value!r}{why}. Set {name} to it."
            )


# ---------------------------------------------------------------------------- differences


def difference(a: Any, b: Any, rounding: float) -> Any:
    """Subtract Gram matrices, which must stay positive semidefinite to rounding."""
    count = a.count - b.count
    if isinstance(a, Sums):
        return replace(a, gram=_minus(a.gram, b.gram, rounding), count=count)
    pairs = zip(a.grams, b.grams, strict=True)
    grams = np.stack([_minus(mine, theirs, rounding) for mine, theirs in pairs])
    return replace(a, grams=grams, base=_minus(a.base, b.base, rounding), count=count)


def _minus(gram: Array, other: Array, rounding: float) -> Array:
    """Return G - H; refuse a difference that is indefinite, which no sum over rows is."""
    if not other.any():
        return gram
    left = gram - other
    if abs(left[-1, -1]) <= rounding * gram[-1, -1]:  # no row is left here
        return np.zeros_like(gram)
    size = np.sqrt(np.maximum(gram.diagonal(), 0.0))
    size[size == 0.0] = 1.0
    scaled = left / size / size[:, None]
    scaled.flat[:: len(scaled) + 1] += rounding
    try:
        cholesky_in_place(scaled)
    except np.linalg.LinAlgError:
        raise StateError(
            "The sums would become indefinite. Some of the rows to forget were never added, or "
            "were added with other targets or weights, or without folds (in this case call "
            "without_folds() first)."
        ) from None
    return left
