"""Lines: what the prediction does when a feature changes, one picture for each feature."""

from __future__ import annotations

from typing import Any

import numpy as np

from leansvm.inspection import Effects, effects
from leansvm.plotting.axes import few_dates, new_grid, plain_text

_LEVELS_ACROSS, _LONGEST = 4, 12  # names of levels side by side, and their letters


class EffectsDisplay:
    """Partial dependence of the columns that matter most, with lines of single rows.

    Use `from_estimator`; the constructor takes effects that are known already.

    Parameters
    ----------
    effects : Effects
        What `leansvm.inspection.effects` returned.

    Attributes
    ----------
    lines_ : list of matplotlib Line2D
        The average line of every picture.
    axes_ : ndarray of matplotlib Axes
        The pictures, the strongest feature first.
    figure_ : matplotlib Figure
        Where they were drawn.

    Notes
    -----
    All pictures share the vertical axis: the change of the prediction (or of the decision value of
    one class) from its value at the left end. Thin lines are single rows; if they are not parallel,
    the feature interacts with others.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm import SparseLSSVR
    >>> from leansvm.plotting import EffectsDisplay
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> model = SparseLSSVR(kernel="rbf", gamma=0.3, n_basis=50, random_state=0)
    >>> display = EffectsDisplay.from_estimator(model.fit(X, np.sin(2 * X[:, 1])), X)
    >>> display.axes_[0].get_xlabel()
    'x1'
    """

    def __init__(self, effects: Effects) -> None:
        self.effects = effects

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        max_features: int = 6,
        n_individual: int = 30,
        output: int = 0,
        axes: Any = None,
        line_kw: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> EffectsDisplay:
        """Compute and draw the effects of a fitted machine.

        Parameters
        ----------
        estimator : estimator
            A fitted kernel machine, or a pipeline that ends with one.
        X : array-like, sparse matrix or data frame of shape (n_samples, n_columns)
            Rows to average over.
        max_features : int, default=6
            Largest number of pictures; the strongest features come first.
        n_individual : int, default=30
            Single rows to draw.
        output : int, default=0
            Which output, or which class if there are more than two.
        axes : sequence of matplotlib Axes, default=None
            Where to draw; default: a new figure.
        line_kw : dict, default=None
            Passed to `matplotlib.axes.Axes.plot` for the average line.
        **kwargs : dict
            Passed to `leansvm.inspection.effects`.

        Returns
        -------
        EffectsDisplay
            The display, drawn.
        """
        found = effects(estimator, X, n_individual=n_individual, **kwargs)
        return cls(found).plot(axes=axes, max_features=max_features, output=output, line_kw=line_kw)

    def plot(
        self,
        axes: Any = None,
        *,
        max_features: int = 6,
        output: int = 0,
        line_kw: dict[str, Any] | None = None,
    ) -> EffectsDisplay:
        """Draw one picture for each feature.

        Parameters
        ----------
        axes, max_features, output, line_kw
            As in `from_estimator`.

        Returns
        -------
        EffectsDisplay
            The display, drawn.
        """
        if max_features < 1:
            raise ValueError(f"max_features must be at least 1, got {max_features!r}.")
        found = self.effects
        if not 0 <= output < len(found.slope):
            raise ValueError(f"output must be from 0 to {len(found.slope) - 1}, got {output!r}.")
        shown = np.argsort(-found.strength[output], kind="stable")[:max_features]
        axes = new_grid(len(shown)) if axes is None else np.ravel(axes)
        if len(axes) < len(shown):
            raise ValueError(f"axes: {len(shown)} features need as many axes, got {len(axes)}.")
        self.lines_ = []
        for ax, place in zip(axes, shown, strict=False):
            grid, line = found.grids[place], found.average[place][output]
            options = {"color": "C0", "linewidth": 2, **(line_kw or {})}
            if grid.dtype.kind == "U":  # levels
                options = {"marker": "o", "linestyle": ":", **options}
                short = [plain_text(level[:_LONGEST]) for level in grid]
                grid = np.arange(len(grid))
                ax.set_xticks(grid, short, rotation=90 if len(grid) > _LEVELS_ACROSS else 0)
            elif grid.dtype.kind == "M":
                few_dates(ax)
            if found.individual is not None:
                ax.plot(grid, found.individual[place][output].T, color="0.8", linewidth=0.5)
            self.lines_ += ax.plot(grid, line - line[0], **options)
            ax.axhline(0.0, color="0.5", linewidth=0.5)
            ax.set_xlabel(plain_text(found.names[place]))
        axes = np.asarray(axes[: len(shown)])
        reach = [ax.get_ylim() for ax in axes]
        for ax in axes:
            ax.set_ylim(min(low for low, _ in reach), max(high for _, high in reach))
        label = "change of the prediction"
        if found.classes:
            label = f"change towards {str(found.classes[output])[:_LONGEST]!r}"
        axes[0].set_ylabel(plain_text(label))
        self.axes_, self.figure_ = axes, axes[0].figure
        return self
