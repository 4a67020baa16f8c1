"""Where a picture is drawn, and names of features and classes as its labels.

Matplotlib is loaded when the first picture is drawn.
"""

from __future__ import annotations

from typing import Any

from leansvm._extras import needs


def new_axes() -> Any:
    """Return the axes of a new figure, or say what to install."""
    return _pyplot().subplots(layout="constrained")[1]  # long names of features have room


def new_grid(count: int) -> Any:
    """Return so many axes of a new figure, in rows of three (four axes: in rows of two)."""
    columns = 2 if count == 4 else 3
    width, height = min(count, columns), -(-count // columns)
    size = (3.0 * width, 2.6 * height)
    _, axes = _pyplot().subplots(height, width, figsize=size, layout="constrained", squeeze=False)
    for ax in axes.ravel()[count:]:
        ax.set_axis_off()
    return axes.ravel()[:count]


def few_dates(ax: Any) -> None:
    """Put so few dates on an axis that they do not overlap."""
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    places = AutoDateLocator(minticks=2, maxticks=5)
    ax.xaxis.set_major_locator(places)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(places))


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(needs("plotting", "matplotlib", "plot")) from error
    return plt


def plain_text(name: object) -> str:
    r"""Return a name as a label that matplotlib draws as it is, never as a formula.

    >>> plain_text("$x^{$")
    '\\$x^{\\$'
    """
    return str(name).replace("$", r"\$")
