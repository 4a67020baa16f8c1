"""Bars: the scale of every feature that a model has learned.

A kernel with one gamma for each feature looks at feature f in the unit 1 / sqrt(gamma_f). Relative
to the spread of the feature, sqrt(gamma_f) * std_f says how fast the model can change along it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from leansvm.inspection._view import feature_names_of, split_pipeline
from leansvm.plotting.axes import new_axes, plain_text


class FeatureScalesDisplay:
    """How quickly a model can change along each feature, as horizontal bars, largest first.

    Use `from_estimator`; the constructor takes scales that are known already.

    Parameters
    ----------
    scales : ndarray of shape (n_features,)
        Scale of each feature, the largest 1.
    feature_names : sequence of str
        Their names.

    Attributes
    ----------
    bars_ : matplotlib BarContainer
        The bars, the longest first.
    ax_, figure_ : matplotlib Axes and Figure
        Where they were drawn.

    Notes
    -----
    A long bar means that the model can change quickly along the feature, not that the feature
    matters: one with a straight-line effect has a short bar (`ImportanceDisplay` shows what
    matters). If two features have the same information, both may have a medium scale, or only one
    of them a large one. A model does not use a feature whose scale is 0.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm import SparseLSSVR
    >>> from leansvm.plotting import FeatureScalesDisplay
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> model = SparseLSSVR(gamma="learn", n_basis=50, random_state=0).fit(X, np.sin(2 * X[:, 1]))
    >>> display = FeatureScalesDisplay.from_estimator(model, feature_names=["a", "b", "c"])
    >>> display.ax_.get_yticklabels()[0].get_text()
    'b'
    """

    def __init__(self, scales: NDArray[Any], feature_names: Sequence[str]) -> None:
        self.scales = scales
        self.feature_names = feature_names

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        max_features: int = 20,
        feature_names: Sequence[str] | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> FeatureScalesDisplay:
        """Draw the scales of a fitted model.

        Parameters
        ----------
        estimator : estimator
            Fitted with ``gamma="learn"``, or a pipeline that ends with such a model.
        max_features : int, default=20
            Largest number of features; those with the largest scales are drawn.
        feature_names : sequence of str, default=None
            Names of all features; default: those of the fit or of the steps before the model, or
            x0, x1, ... if there are none.
        ax : matplotlib Axes, default=None
            Where to draw; default: a new figure.
        **kwargs : dict
            Passed to `matplotlib.axes.Axes.barh`.

        Returns
        -------
        FeatureScalesDisplay
            The display, drawn.
        """
        check_is_fitted(estimator)
        machine = split_pipeline(estimator)[1]
        if not hasattr(machine, "feature_scales_"):
            raise ValueError(
                f"This {type(machine).__name__} has no feature_scales_: fit it with gamma='learn'."
            )
        scales = np.asarray(machine.feature_scales_, dtype=np.float64)
        names = feature_names
        if names is None:
            names = feature_names_of(estimator, len(scales))
        if len(names) != len(scales):
            raise ValueError(f"feature_names has {len(names)} names for {len(scales)} features.")
        return cls(scales, names).plot(ax=ax, max_features=max_features, **kwargs)

    def plot(
        self, ax: Any = None, *, max_features: int = 20, **kwargs: Any
    ) -> FeatureScalesDisplay:
        """Draw the bars.

        Parameters
        ----------
        ax, max_features, **kwargs
            As in `from_estimator`.

        Returns
        -------
        FeatureScalesDisplay
            The display, drawn.
        """
        if max_features < 1:
            raise ValueError(f"max_features must be at least 1, got {max_features!r}.")
        if ax is None:
            ax = new_axes()
        # equal scales in the order of the features
        shown = np.argsort(-self.scales, kind="stable")[:max_features]
        places = np.arange(len(shown))
        self.bars_ = ax.barh(places, self.scales[shown], **kwargs)
        ax.set_yticks(places, [plain_text(self.feature_names[i]) for i in shown])
        ax.set(
            xlabel="how quickly the kernel changes (largest = 1)",
            xlim=(0, 1),
            ylim=(len(shown) - 0.4, -0.6),  # the first at the top
        )
        if len(shown) < len(self.scales):
            ax.set_ylabel(f"{len(shown)} of {len(self.scales)} features")
        self.ax_, self.figure_ = ax, ax.figure
        return self
