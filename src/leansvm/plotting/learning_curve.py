"""Two curves: the error on rows fitted on and on rows left out, against the number of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from leansvm.model_selection import LearningCurve, learning_curve_from_sums
from leansvm.plotting.axes import new_axes


class LearningCurveDisplay:
    """Root mean squared error against the number of rows that a model was fitted on.

    Use `from_estimator`; the constructor takes a curve that was computed before.

    Parameters
    ----------
    curve : LearningCurve
        What `leansvm.model_selection.learning_curve_from_sums` returned.

    Attributes
    ----------
    train_line_, test_line_ : matplotlib Artist
        The means over folds.
    train_band_, test_band_ : matplotlib Artist
        From the smallest to the largest error of a fold.
    ax_, figure_ : matplotlib Axes and Figure
        Where they were drawn.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from leansvm import SparseLSSVR
    >>> from leansvm.plotting import LearningCurveDisplay
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = SparseLSSVR(kernel="rbf", gamma="scale", n_basis=30, random_state=0)
    >>> display = LearningCurveDisplay.from_estimator(model, X, y)
    >>> display.ax_.get_xlabel()
    'rows fitted on'
    """

    def __init__(self, curve: LearningCurve) -> None:
        self.curve = curve

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any = None,
        *,
        fractions: Any = None,
        folds: Any = None,
        sample_weight: Any = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> LearningCurveDisplay:
        """Compute the learning curve of an estimator and draw it.

        Parameters
        ----------
        estimator, X, y, folds, sample_weight
            As `leansvm.model_selection.learning_curve_from_sums` takes them.
        fractions : array-like, default=None
            Shares of the rows; None is that function's default.
        ax, **kwargs
            As in `plot`.

        Returns
        -------
        LearningCurveDisplay
            The drawn curves.
        """
        given = {} if fractions is None else {"fractions": fractions}
        curve = learning_curve_from_sums(
            estimator, X, y, folds=folds, sample_weight=sample_weight, **given
        )
        return cls(curve).plot(ax=ax, **kwargs)

    def plot(self, ax: Any = None, **kwargs: Any) -> LearningCurveDisplay:
        """Draw both curves, each with a band from the smallest to the largest error of a fold.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.
        **kwargs
            Passed to `matplotlib.axes.Axes.plot`.

        Returns
        -------
        LearningCurveDisplay
            The drawn curves.
        """
        ax = new_axes() if ax is None else ax
        curve = self.curve
        self.test_line_, self.test_band_ = _drawn(
            ax, curve.train_sizes, curve.test_errors, "rows left out", kwargs
        )
        self.train_line_, self.train_band_ = _drawn(
            ax, curve.train_sizes, curve.train_errors, "rows fitted on", kwargs
        )
        ax.set_xlabel("rows fitted on")
        ax.set_ylabel("root mean squared error")
        ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _drawn(ax: Any, sizes: Any, errors: Any, label: str, options: dict[str, Any]) -> Any:
    """Draw the mean of the folds and the band of all of them."""
    roots = np.sqrt(errors)
    (line,) = ax.plot(sizes, roots.mean(axis=1), **{"marker": "o", "label": label, **options})
    low, high = roots.min(axis=1), roots.max(axis=1)
    return line, ax.fill_between(sizes, low, high, color=line.get_color(), alpha=0.2, lw=0)
