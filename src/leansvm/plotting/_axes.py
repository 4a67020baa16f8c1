"""Where a picture is drawn, and names of features and classes as its labels.

Matplotlib is loaded when the first picture is drawn.
"""

from __future__ import annotations

from typing import Any


def new_axes() -> Any:
    """Return the axes of a new figure, or say what to install."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plotting needs matplotlib: pip install leansvm[plot]") from error
    return plt.subplots()[1]


def plain_text(name: object) -> str:
    r"""Return a name as a label that matplotlib draws as it is, never as a formula.

    >>> plain_text("$x^{$")
    '\\$x^{\\$'
    """
    return str(name).replace("$", r"\$")
