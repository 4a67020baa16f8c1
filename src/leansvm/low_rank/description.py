"""A model of few functions, written down for people: a sentence for each function."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from leansvm.low_rank.functions import BasisFunction
from leansvm.tables import feature_names as feature_names_of

Array = NDArray[np.float64]
_SWITCHED_OFF = 1e3  # times the reach along the feature that matters most: it hardly matters
_LEGEND = (
    "Functions are in order of their weights, features in order of how much they matter to the "
    "function. The reach says how far the function extends along a feature."
)
_WIDTH = 96  # characters of a line


class ReadableModel:
    """What estimators on learned functions share: `describe`."""

    function_: BasisFunction
    centers_: Array
    shapes_: Array
    coef_: Array
    intercept_: Array
    fit_report_: dict[str, Any]

    def describe(
        self,
        feature_names: Sequence[Any] | None = None,
        *,
        max_features: int | None = 3,
        max_functions: int | None = 10,
        scaler: Any = None,
    ) -> str:
        """Write the model down: a sentence for each function, largest weight first.

        Parameters
        ----------
        feature_names : sequence of str, default=None
            Names; default: those seen in `fit` or by the scaler, else x0, x1, ...
        max_features, max_functions : int or None, default=3 and 10
            Most features of a sentence, those that matter most to the function; most sentences.
            None for all.
        scaler : transformer, default=None
            What has scaled the features before, fitted: centres and reaches are then in the units
            that they had, as in ``pipeline[-1].describe(scaler=pipeline[0])``.

        Returns
        -------
        str
            What each function does to f, its centre, and how far it reaches along each feature.

        Examples
        --------
        >>> import numpy as np
        >>> from leansvm import LowRankLSSVR
        >>> X = np.linspace(-1, 1, 50)[:, None]
        >>> model = LowRankLSSVR(n_basis=1, init=[[0.0]]).fit(X, np.exp(-np.abs(X[:, 0])))
        >>> "near hour = " in model.describe(["hour"])
        True
        """
        check_is_fitted(self)
        for name, value in (("max_features", max_features), ("max_functions", max_functions)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be a number >= 1, or None for all, got {value!r}.")
        centers, coef, classes = self.centers_, self.coef_, getattr(self, "classes_", None)
        if feature_names is None:
            feature_names = feature_names_of(self)
        if feature_names is None:
            feature_names = getattr(scaler, "feature_names_in_", None)
        names = names_of_features(feature_names, centers.shape[1])
        widths = self.function_.widths(self.shapes_)
        narrow = widths / self.fit_report_.get("feature_spread", 1.0)  # older files have none
        if scaler is not None:
            centers, widths = _before_scaling(scaler, centers, widths)
        kind = type(self.function_).__name__
        lines = [_first_line(kind, coef.shape[1], self.intercept_, classes)]
        order = np.argsort(-np.abs(coef).max(axis=0), kind="stable")
        for place, j in enumerate(order[:max_functions], start=1):
            shown = np.argsort(narrow[j], kind="stable")
            shown = shown[narrow[j][shown] < _SWITCHED_OFF * narrow[j].min()]
            where = [
                f"{names[i]} = {_plain(centers[j, i])} (reach {_plain(widths[j, i])})"
                for i in shown[:max_features]
            ]
            more = len(shown) - len(where)
            rest = f", and {more} more feature{'s' * (more > 1)}" if more else ""
            effect = _effect(coef[:, j], classes)
            lines.append(f"{place:>3}. {effect} near {', '.join(where)}{rest}.")
        left = order[len(lines) - 1 :]
        if len(left):
            largest = _plain(float(np.abs(coef[:, left]).max()))
            lines.append(f"     {len(left)} more, with weights of at most {largest}.")
        wrapped = [textwrap.fill(line, _WIDTH, subsequent_indent="     ") for line in lines]
        return "\n".join([*wrapped, textwrap.fill(_LEGEND, _WIDTH)])


def names_of_features(names: Sequence[Any] | None, n_features: int) -> list[str]:
    """Return names as text, one per feature; x0, x1, ... without any."""
    if names is None:
        return [f"x{i}" for i in range(n_features)]
    if len(names) != n_features:
        raise ValueError(
            f"feature_names has {len(names)} names, the model has {n_features} features."
        )
    return [str(name) for name in names]


def _first_line(
    kind: str, n_functions: int, intercept: Array, classes: Sequence[Any] | None
) -> str:
    numbers = ", ".join(_plain(value) for value in intercept)
    bias = numbers if len(intercept) == 1 else f"({numbers})"
    line = f"f(x) = {bias} + sum of {n_functions} {kind} function{'s' * (n_functions > 1)}"
    if classes is None:
        return line + "."
    if len(classes) == 2:
        return f"{line}; f > 0 means {classes[1]}, f < 0 means {classes[0]}."
    return f"{line}, one f for each class; the class with the largest wins."


def _plain(value: float) -> str:
    """Return three or four digits, without an exponent where people would write none."""
    if value == 0.0 or 1e-4 <= abs(value) < 1e7:
        rounded = float(f"{value:.4g}" if abs(value) >= 1000 else f"{value:.3g}")
        return f"{rounded:,.0f}" if abs(rounded) >= 1e4 else f"{rounded:g}"
    return f"{value:.3g}"


def _effect(weights: Array, classes: Sequence[Any] | None) -> str:
    """Say what a function with these weights does, at its centre."""
    if len(weights) == 1:
        what = "the prediction" if classes is None else "f"
        return (
            f"{'Raises' if weights[0] > 0 else 'Lowers'} {what} by up to {_plain(abs(weights[0]))}"
        )
    labels = [f"output {i}" for i in range(len(weights))] if classes is None else classes
    most, least = int(weights.argmax()), int(weights.argmin())
    parts = []
    if weights[most] > 0:
        parts.append(f"speaks for {labels[most]} ({weights[most]:+.3g})")
    if weights[least] < 0:
        parts.append(f"{'' if parts else 'speaks '}against {labels[least]} ({weights[least]:+.3g})")
    text = " and ".join(parts) or "has no weight"
    return text[0].upper() + text[1:]


def _before_scaling(scaler: Any, centers: Array, widths: Array) -> tuple[Array, Array]:
    """Return centres and widths in the units that the features had before ``scaler``."""
    if not hasattr(scaler, "inverse_transform"):
        raise ValueError(f"scaler: {type(scaler).__name__} has no inverse_transform.")
    n_features = centers.shape[1]
    zero = np.asarray(scaler.inverse_transform(np.zeros((1, n_features))))
    steps = [
        np.asarray(scaler.inverse_transform(size * np.eye(n_features))) - zero for size in (1, 2)
    ]
    units = steps[0].diagonal() if steps[0].shape == (n_features, n_features) else np.empty(0)
    if not len(units) or not all(
        np.allclose(step, size * np.diag(units), rtol=1e-6, atol=1e-9 * np.abs(units).max())
        for size, step in enumerate(steps, start=1)
    ):
        raise ValueError(
            f"scaler: {type(scaler).__name__} does not scale each feature by a factor of its own; "
            f"StandardScaler, MinMaxScaler and RobustScaler do."
        )
    return np.asarray(scaler.inverse_transform(centers)), widths * np.abs(units)
