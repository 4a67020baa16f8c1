"""A plane: the functions of a low-rank model and its decision boundary over two features."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from leansvm.inspection._grids import user_units
from leansvm.inspection._view import View, feature_names_of, split_pipeline
from leansvm.plotting.axes import new_axes, plain_text

_COMPARED_ROWS = 500  # rows on which features are compared


class LowRankDisplay:
    """The functions of a low-rank model and its decision boundary over two features.

    Make one with `from_estimator`.

    Parameters
    ----------
    x0, x1 : ndarray of shape (n_grid,)
        Grid of the two features.
    response : ndarray of shape (n_grid, n_grid)
        Decision value (two classes), class number (several) or prediction; one row per value
        of x1.
    functions : ndarray of shape (n_basis, n_grid, n_grid)
        Values of the basis functions, relative to the largest value of each on the plane.
    centers : ndarray of shape (n_basis, 2)
        Their centres.
    weights : ndarray of shape (n_basis,)
        Their weights; for several outputs, the weight of the largest magnitude.
    feature_names : tuple of str
        Names of the two features.
    n_classes : int
        Number of classes, 0 for regression.
    points : tuple of ndarray or None, default=None
        Rows (two columns) and their colours, to be drawn as dots.
    note : str, default=""
        Which features were chosen, and what the others are held at; the title.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Where it was drawn.
    figure_ : matplotlib Figure
        Its figure.
    surface_ : QuadContourSet
        The filled response.
    boundary_ : QuadContourSet or None
        The line f(x) = 0 of a model of two classes.
    contours_ : list of QuadContourSet
        Where each function has half of its largest value.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm import LowRankLSSVC
    >>> from leansvm.plotting import LowRankDisplay
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> model = LowRankLSSVC(n_basis=2).fit(X, X[:, 0] * X[:, 1] > 0)
    >>> display = LowRankDisplay.from_estimator(model, X)  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        x0: NDArray[Any],
        x1: NDArray[Any],
        response: NDArray[Any],
        functions: NDArray[Any],
        centers: NDArray[Any],
        weights: NDArray[Any],
        feature_names: tuple[str, str],
        n_classes: int,
        points: tuple[NDArray[Any], Any] | None = None,
        note: str = "",
    ) -> None:
        self.x0 = x0
        self.x1 = x1
        self.response = response
        self.functions = functions
        self.centers = centers
        self.weights = weights
        self.feature_names = feature_names
        self.n_classes = n_classes
        self.points = points
        self.note = note

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any = None,
        *,
        features: tuple[int, int] | None = None,
        grid_resolution: int = 100,
        margin: float = 0.1,
        ax: Any = None,
        **kwargs: Any,
    ) -> LowRankDisplay:
        """Evaluate a fitted `LowRankLSSVC` or `LowRankLSSVR` on a plane, and draw it.

        Parameters
        ----------
        estimator : LowRankLSSVC or LowRankLSSVR
            Fitted model, or a pipeline that ends with one. If its steps shift and scale columns,
            the picture is in the units of the original columns.
        X : array-like, sparse matrix or data frame of shape (n_samples, n_columns)
            Rows that span the plane; features that are not drawn are held at their medians.
        y : array-like of shape (n_samples,), default=None
            Labels or targets; with them the rows are drawn as dots.
        features : tuple of two int or str, default=None
            Features to draw, by number or name; default: the two that matter most, by how much the
            model's values change when a feature is held at its median. The title says which.
        grid_resolution : int, default=100
            Points of the grid along each feature.
        margin : float, default=0.1
            Share of the range added at each side.
        ax : matplotlib Axes, default=None
            Where to draw; default: a new figure.
        **kwargs : dict
            Passed to matplotlib's ``contourf``.

        Returns
        -------
        LowRankDisplay
            The display, drawn.
        """
        check_is_fitted(split_pipeline(estimator)[1], "centers_")
        view = View(estimator, X)
        estimator, X = view.machine, view.features(view.X)
        names = feature_names_of(view.model, X.shape[1])
        names, origin, unit = user_units(view, X, names)
        chosen = _most_important(estimator, X) if features is None else features
        first, second = _checked_features(chosen, list(names))
        grids = [_grid(X[:, i], grid_resolution, margin) for i in (first, second)]
        plane = np.tile(np.median(X, axis=0), (grid_resolution**2, 1))
        a, b = np.meshgrid(*grids)
        plane[:, first], plane[:, second] = a.ravel(), b.ravel()
        n_classes = len(estimator.classes_) if is_classifier(estimator) else 0
        values = estimator._values(plane)  # not by predict: the grid has no feature names
        response = values.argmax(axis=1) if n_classes > 2 else values[:, 0]
        phi = estimator.function_.values(plane, estimator.centers_, estimator.shapes_)
        phi = phi / np.maximum(phi.max(axis=0), np.finfo(np.float64).tiny)
        coef, pair = estimator.coef_, [first, second]
        points = None
        if y is not None:
            colours = np.asarray(y)
            if n_classes:
                colours = np.searchsorted(estimator.classes_, colours)
            points = (origin[pair] + unit[pair] * X[:, pair], colours)
        display = cls(
            x0=origin[first] + unit[first] * grids[0],
            x1=origin[second] + unit[second] * grids[1],
            response=response.reshape(a.shape),
            functions=phi.T.reshape(-1, *a.shape),
            centers=origin[pair] + unit[pair] * estimator.centers_[:, pair],
            weights=coef[np.abs(coef).argmax(axis=0), np.arange(coef.shape[1])],
            feature_names=(names[first], names[second]),
            n_classes=n_classes,
            points=points,
            note=_note(names, (first, second), chosen=features is None),
        )
        return display.plot(ax=ax, **kwargs)

    def plot(self, ax: Any = None, **kwargs: Any) -> LowRankDisplay:
        """Draw the response, the functions' half-height lines and their centres.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; default: a new figure.
        **kwargs : dict
            Passed to matplotlib's ``contourf``.

        Returns
        -------
        LowRankDisplay
            The display.
        """
        if ax is None:
            ax = new_axes()
        style: dict[str, Any] = {
            "cmap": "viridis" if self.n_classes > 2 else "RdBu_r",
            "alpha": 0.6,
        }
        if self.n_classes > 2:
            style["levels"] = np.arange(self.n_classes + 1) - 0.5
        elif self.n_classes == 2:
            most = max(float(np.abs(self.response).max()), np.finfo(np.float64).tiny)
            style["levels"] = np.linspace(-most, most, 12)
        self.surface_ = ax.contourf(self.x0, self.x1, self.response, **{**style, **kwargs})
        self.boundary_ = None
        if self.n_classes == 2 and self.response.min() < 0 < self.response.max():
            self.boundary_ = ax.contour(
                self.x0, self.x1, self.response, levels=[0.0], colors="black", linewidths=2
            )
        if self.points is not None:
            rows, colours = self.points
            ax.scatter(*rows.T, c=colours, cmap=style["cmap"], s=8, edgecolors="none")
        self.contours_ = []
        for values, center, weight in zip(self.functions, self.centers, self.weights, strict=True):
            line = "solid" if weight > 0 else "dashed"
            if values.min() < 0.5 < values.max():
                self.contours_.append(
                    ax.contour(
                        self.x0, self.x1, values, levels=[0.5], colors="dimgray", linestyles=line
                    )
                )
            ax.plot(*center, marker="+" if weight > 0 else "_", color="black", markersize=12)
        ax.set(
            xlabel=plain_text(self.feature_names[0]),
            ylabel=plain_text(self.feature_names[1]),
            xlim=(self.x0[0], self.x0[-1]),
            ylim=(self.x1[0], self.x1[-1]),
        )
        if self.note:
            ax.set_title(plain_text(self.note), fontsize="medium", wrap=True)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _most_important(estimator: Any, X: NDArray[np.float64]) -> tuple[int, ...]:
    """Return the two features without which the model's values change most, in their order.

    Without a feature: with it held at its median, over at most 500 rows.
    """
    n_features, median = X.shape[1], np.median(X, axis=0)
    if n_features <= 2:
        return tuple(range(n_features))
    rows = X[np.linspace(0, len(X) - 1, min(len(X), _COMPARED_ROWS)).astype(np.intp)]
    values, change = estimator._values(rows), np.empty(n_features)
    for i in range(n_features):
        held = rows.copy()
        held[:, i] = median[i]
        change[i] = np.square(estimator._values(held) - values).sum()
    first, second = np.sort(np.argsort(-change, kind="stable")[:2])
    return int(first), int(second)


def _note(names: list[str], pair: tuple[int, int], *, chosen: bool) -> str:
    """Say which features are drawn and what happens to the others; nothing if there are none."""
    if len(names) == 2:
        return ""
    held = f"the other {len(names) - 2} held at their medians"
    if not chosen:
        return held[0].upper() + held[1:]
    return f"{names[pair[0]]} and {names[pair[1]]} matter most; {held}"


def _checked_features(features: Any, names: list[str]) -> tuple[int, int]:
    known = {name: i for i, name in enumerate(names)}
    pair = [known.get(f, -1) if isinstance(f, str) else f for f in features]
    if len(pair) != 2 or not all(0 <= i < len(names) for i in pair) or pair[0] == pair[1]:
        raise ValueError(
            f"features must be two different numbers below {len(names)} or names of features, got "
            f"{features!r}; a model of one feature has no plane to draw."
        )
    return int(pair[0]), int(pair[1])


def _grid(values: NDArray[Any], n_points: int, margin: float) -> NDArray[np.float64]:
    low, high = float(values.min()), float(values.max())
    extra = margin * (high - low) or 1.0
    return np.linspace(low - extra, high + extra, n_points)
