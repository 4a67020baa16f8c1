"""Bars: the error on every group, or fold, that was left out."""

from __future__ import annotations

from typing import Any

import numpy as np

from leansvm.model_selection import FoldErrors, KFoldSums, cross_val_from_sums
from leansvm.plotting.axes import new_axes, plain_text


class GroupErrorsDisplay:
    """Root mean squared error on every group that was left out.

    Use `from_estimator`; the constructor takes errors that were computed before.

    Parameters
    ----------
    errors : FoldErrors
        What `leansvm.model_selection.cross_val_from_sums` returned.

    Attributes
    ----------
    bars_ : matplotlib BarContainer
        One bar per group.
    mean_ : matplotlib Artist
        Line at the error over the rows of all groups.
    ax_, figure_ : matplotlib Axes and Figure
        Where they were drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_diabetes
    >>> from leansvm import SparseLSSVR
    >>> from leansvm.plotting import GroupErrorsDisplay
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = SparseLSSVR(kernel="rbf", gamma="scale", n_basis=30, random_state=0)
    >>> clinic = np.repeat(["north", "south", "west"], [150, 150, 142])
    >>> display = GroupErrorsDisplay.from_estimator(model, X, y, groups=clinic)
    >>> [tick.get_text() for tick in display.ax_.get_yticklabels()]
    ['north', 'south', 'west']
    """

    def __init__(self, errors: FoldErrors) -> None:
        self.errors = errors

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        *,
        groups: Any = None,
        sample_weight: Any = None,
        C: float | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> GroupErrorsDisplay:
        """Compute the errors on groups left out one at a time, and draw them.

        Parameters
        ----------
        estimator : SparseLSSVC, SparseLSSVR or FitState
            As `leansvm.model_selection.cross_val_from_sums` takes it.
        X, y, sample_weight
            Rows; None if the sums of a fitted model or a state have folds.
        groups : array-like of shape (n_samples,), default=None
            The group of every row; None: five folds.
        C, ax, **kwargs
            As in `plot`.

        Returns
        -------
        GroupErrorsDisplay
            The drawn bars.
        """
        folds = None if groups is None else KFoldSums(None, groups=groups)
        errors = cross_val_from_sums(estimator, X, y, folds=folds, sample_weight=sample_weight)
        return cls(errors).plot(ax=ax, C=C, **kwargs)

    def plot(self, ax: Any = None, *, C: float | None = None, **kwargs: Any) -> GroupErrorsDisplay:
        """Draw the bars.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.
        C : float, default=None
            Errors are drawn at the candidate that is nearest to this value; None means the best
            one.
        **kwargs
            Passed to `matplotlib.axes.Axes.barh`.

        Returns
        -------
        GroupErrorsDisplay
            The drawn bars.
        """
        found = self.errors
        at = int(np.argmin(np.abs(np.log(found.C) - np.log(found.best_C if C is None else C))))
        ax = new_axes() if ax is None else ax
        places = np.arange(len(found.names))
        self.bars_ = ax.barh(places, np.sqrt(found.errors[:, at]), **kwargs)
        self.mean_ = ax.axvline(np.sqrt(found.mean[at]), color="0.3", ls="--", label="all groups")
        ax.set_yticks(places, [plain_text(name) for name in found.names])
        ax.invert_yaxis()
        ax.set_xlabel("root mean squared error on the group left out")
        ax.set_title(f"C = {found.C[at]:.3g}")
        ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self
