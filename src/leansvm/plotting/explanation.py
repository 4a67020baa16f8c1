"""Steps from the baseline to one prediction, a bar for each column."""

from __future__ import annotations

from typing import Any

import numpy as np

from leansvm.inspection import Explanation, explain
from leansvm.plotting.axes import new_axes, plain_text


class ExplanationDisplay:
    """From the baseline to a row's prediction: what each column adds, the largest first.

    Use `from_estimator`; the constructor takes an explanation that is known already.

    Parameters
    ----------
    explanation : Explanation
        What `leansvm.inspection.explain` returned.

    Attributes
    ----------
    bars_ : matplotlib BarContainer
        One bar per column; each bar begins where the bar above it ends.
    ax_, figure_ : matplotlib Axes and Figure
        Where they were drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm import SparseLSSVR
    >>> from leansvm.plotting import ExplanationDisplay
    >>> X = np.random.default_rng(0).normal(size=(300, 3))
    >>> model = SparseLSSVR(kernel="rbf", gamma=0.3, n_basis=50, random_state=0)
    >>> display = ExplanationDisplay.from_estimator(model.fit(X, X[:, 1]), [[0.0, 2.0, 0.0]], X)
    >>> display.ax_.get_yticklabels()[0].get_text()
    'x1 = 2'
    """

    def __init__(self, explanation: Explanation) -> None:
        self.explanation = explanation

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        rows: Any,
        background: Any,
        *,
        row: int = 0,
        output: int = 0,
        max_columns: int = 10,
        ax: Any = None,
        **kwargs: Any,
    ) -> ExplanationDisplay:
        """Explain rows and draw one of them.

        Parameters
        ----------
        estimator : estimator
            Fitted model or pipeline.
        rows, background
            Rows to explain, and rows to compare them with.
        row : int, default=0
            Which of the rows to draw.
        output : int, default=0
            Which output, or which class if there are more than two.
        max_columns : int, default=10
            Largest number of bars; the last one adds up all other columns.
        ax : matplotlib Axes, default=None
            Where to draw; default: a new figure.
        **kwargs : dict
            Passed to `leansvm.inspection.explain`.

        Returns
        -------
        ExplanationDisplay
            The display, drawn.
        """
        found = explain(estimator, rows, background, **kwargs)
        return cls(found).plot(ax=ax, row=row, output=output, max_columns=max_columns)

    def plot(
        self, ax: Any = None, *, row: int = 0, output: int = 0, max_columns: int = 10
    ) -> ExplanationDisplay:
        """Draw one row.

        Parameters
        ----------
        ax, row, output, max_columns
            As in `from_estimator`.

        Returns
        -------
        ExplanationDisplay
            The display, drawn.
        """
        if max_columns < 1:
            raise ValueError(f"max_columns must be at least 1, got {max_columns!r}.")
        found, ax = self.explanation, new_axes() if ax is None else ax
        values, baseline, prediction = found.of(row, output)
        order = found.strongest(row, output=output)
        shown = order if len(order) <= max_columns else order[: max_columns - 1]
        labels = [found.label(i, row) for i in shown]
        steps = values[shown]
        if len(shown) < len(order):
            labels.append(f"{len(order) - len(shown)} other columns")
            steps = np.append(steps, values[order[len(shown) :]].sum())
        starts = baseline + np.concatenate([[0.0], np.cumsum(steps)[:-1]])
        places, colours = np.arange(len(steps)), np.where(steps >= 0, "C0", "C1")
        self.bars_ = ax.barh(places, steps, left=starts, color=colours)
        for place, step in zip(places, steps, strict=True):
            ax.annotate(
                f"{step:+.3g}",
                (1.0, place),
                (4, 0),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                va="center",
            )
        ax.axvline(baseline, color="0.5", linewidth=0.5)
        ax.axvline(prediction, color="0.2", linewidth=1.0)
        ax.set_yticks(places, [plain_text(label) for label in labels])
        ax.set_ylim(len(steps) - 0.4, -0.6)  # the first at the top
        what = f"decision value of {found.classes[output]!r}" if found.classes else "prediction"
        label = f"from the baseline {baseline:.4g} to the {what} {prediction:.4g}"
        ax.set_xlabel(plain_text(label))
        self.ax_, self.figure_ = ax, ax.figure
        return self
