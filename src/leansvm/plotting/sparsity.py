"""A curve: error or score against the number of basis points."""

from __future__ import annotations

from typing import Any

from leansvm.inspection._view import split_pipeline
from leansvm.model_selection import BasisPath, basis_path
from leansvm.plotting.axes import new_axes

_LABELS = {
    "score": "score",
    "loo": "leave-one-out squared error",
    "gcv": "generalised cross-validation error",
    "objective": "objective",
}


class SparsityPathDisplay:
    """Error or score against the number of basis points.

    Use `from_estimator`; the constructor takes a path that was computed before.

    Parameters
    ----------
    path : BasisPath
        What `leansvm.model_selection.basis_path` returned.
    estimator_name : str or None, default=None
        Name of the curve.

    Attributes
    ----------
    line_ : matplotlib Artist
        The curve.
    ax_, figure_ : matplotlib Axes and Figure
        Where it was drawn.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from leansvm import SparseLSSVC
    >>> from leansvm.plotting import SparsityPathDisplay
    >>> X, y = load_digits(return_X_y=True)
    >>> model = SparseLSSVC(gamma="scale", n_basis=60, basis="pivoted-cholesky")
    >>> display = SparsityPathDisplay.from_estimator(model, X, y, metric="loo")
    >>> display.ax_.get_ylabel()
    'leave-one-out squared error'
    """

    def __init__(self, path: BasisPath, *, estimator_name: str | None = None) -> None:
        self.path = path
        self.estimator_name = estimator_name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        X_score: Any = None,
        y_score: Any = None,
        metric: str | None = None,
        level: str = "points",
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> SparsityPathDisplay:
        """Compute the path of an estimator and draw it.

        Parameters
        ----------
        estimator : SparseLSSVC or SparseLSSVR
            With a nested selector and a number as ``n_basis``, or a pipeline that ends with one. It
            is cloned, not fitted.
        X, y, sample_weight
            Training data.
        X_score, y_score : array-like, default=None
            Rows on which every size is scored.
        metric : {"score", "loo", "gcv", "objective"} or None, default=None
            What to draw; None means "score" if ``X_score`` is given, otherwise "loo".
        level : {"points", "percent"}, default="points"
            Horizontal axis: basis points, or their share of the training rows in percent.
        name : str or None, default=None
            Name of the curve; None is the estimator's basis.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.
        **kwargs
            Passed to `matplotlib.axes.Axes.plot`.

        Returns
        -------
        SparsityPathDisplay
            The drawn curve.
        """
        path = basis_path(
            estimator, X, y, sample_weight=sample_weight, X_score=X_score, y_score=y_score
        )
        name = _name_of(estimator) if name is None else name
        return cls(path, estimator_name=name).plot(ax=ax, metric=metric, level=level, **kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        metric: str | None = None,
        level: str = "points",
        name: str | None = None,
        **kwargs: Any,
    ) -> SparsityPathDisplay:
        """Draw the curve.

        Parameters
        ----------
        ax, metric, level, name, **kwargs
            As in `from_estimator`.

        Returns
        -------
        SparsityPathDisplay
            The drawn curve.
        """
        if metric is None:
            metric = "loo" if self.path.score is None else "score"
        if metric not in _LABELS:
            raise ValueError(f"metric must be one of {', '.join(_LABELS)}, got {metric!r}.")
        values = getattr(self.path, metric)
        if values is None:
            raise ValueError("metric='score' needs X_score and y_score.")
        if level not in ("points", "percent"):
            raise ValueError(f"level must be 'points' or 'percent', got {level!r}.")
        if ax is None:
            ax = new_axes()
        percent = level == "percent"
        sizes = 100 * self.path.sizes / self.path.n_rows if percent else self.path.sizes
        label = self.estimator_name if name is None else name
        (self.line_,) = ax.plot(sizes, values, **{"label": label, **kwargs})
        ax.set_xlabel("basis points [% of the rows]" if percent else "basis points")
        ax.set_ylabel(_LABELS[metric])
        if self.line_.get_label() and not str(self.line_.get_label()).startswith("_"):
            ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _name_of(estimator: Any) -> str:
    estimator = split_pipeline(estimator)[1]
    basis = getattr(estimator, "basis", None)
    return basis if isinstance(basis, str) else type(estimator if basis is None else basis).__name__
