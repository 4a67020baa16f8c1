"""Bars: what the score loses when a column is shuffled."""

from __future__ import annotations

from typing import Any

import numpy as np

from leansvm.inspection import Importance, importance
from leansvm.plotting.axes import new_axes, plain_text


class ImportanceDisplay:
    """How much each column matters, as horizontal bars with their spread, largest first.

    Use `from_estimator`; the constructor takes an importance that is known already.

    Parameters
    ----------
    importance : Importance
        What `leansvm.inspection.importance` returned.

    Attributes
    ----------
    bars_ : matplotlib BarContainer
        The bars, the longest first.
    ax_, figure_ : matplotlib Axes and Figure
        Where they were drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm import SparseLSSVR
    >>> from leansvm.plotting import ImportanceDisplay
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> y = np.sin(2 * X[:, 1])
    >>> model = SparseLSSVR(kernel="rbf", gamma=0.3, n_basis=50, random_state=0)
    >>> display = ImportanceDisplay.from_estimator(model.fit(X[:200], y[:200]), X[200:], y[200:])
    >>> display.ax_.get_yticklabels()[0].get_text()
    'x1'
    """

    def __init__(self, importance: Importance) -> None:
        self.importance = importance

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        max_columns: int = 20,
        ax: Any = None,
        bar_kw: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> ImportanceDisplay:
        """Compute and draw the importance of a fitted model's columns.

        Parameters
        ----------
        estimator : estimator
            Fitted model or pipeline.
        X, y
            Rows and targets to score, preferably not the training rows.
        max_columns : int, default=20
            Largest number of bars.
        ax : matplotlib Axes, default=None
            Where to draw; default: a new figure.
        bar_kw : dict, default=None
            Passed to `matplotlib.axes.Axes.barh`.
        **kwargs : dict
            Passed to `leansvm.inspection.importance`.

        Returns
        -------
        ImportanceDisplay
            The display, drawn.
        """
        found = importance(estimator, X, y, **kwargs)
        return cls(found).plot(ax=ax, max_columns=max_columns, bar_kw=bar_kw)

    def plot(
        self, ax: Any = None, *, max_columns: int = 20, bar_kw: dict[str, Any] | None = None
    ) -> ImportanceDisplay:
        """Draw the bars.

        Parameters
        ----------
        ax, max_columns, bar_kw
            As in `from_estimator`.

        Returns
        -------
        ImportanceDisplay
            The display, drawn.
        """
        if max_columns < 1:
            raise ValueError(f"max_columns must be at least 1, got {max_columns!r}.")
        ax, found = new_axes() if ax is None else ax, self.importance
        shown = found.strongest(max_columns)
        places, options = np.arange(len(shown)), {"ecolor": "0.4", **(bar_kw or {})}
        self.bars_ = ax.barh(places, found.mean[shown], xerr=found.std[shown], **options)
        ax.set_yticks(places, [plain_text(found.names[i]) for i in shown])
        ax.set_ylim(len(shown) - 0.4, -0.6)  # the first at the top
        ax.set_xlabel(f"loss of {plain_text(found.scoring)} when the column is shuffled")
        if len(shown) < len(found.names):
            ax.set_ylabel(f"{len(shown)} of {len(found.names)} columns")
        self.ax_, self.figure_ = ax, ax.figure
        return self
