"""Where a picture is drawn: matplotlib, loaded when the first one is."""

from __future__ import annotations

from typing import Any


def new_axes() -> Any:
    """Return the axes of a new figure, or say what to install."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("plotting needs matplotlib: pip install leansvm[plot]") from error
    return plt.subplots()[1]
