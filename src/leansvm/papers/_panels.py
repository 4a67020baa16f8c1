"""Panels of a figure, as plain data: curves, and decision functions in the plane.

The report draws them; kept in results.json, they can be drawn again without measuring.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

_GRID = 90  # points of the grid each way
_MOST_POINTS = 400  # training points drawn


def curves(
    title: str,
    x_label: str,
    y_label: str,
    series: Mapping[str, tuple[Any, Any]],
    *,
    log: str = "",
    dashed: Sequence[str] = (),
) -> dict[str, Any]:
    """Return a panel of lines; `log` names the logarithmic axes, `dashed` some of the series."""
    return {
        "type": "curves",
        "title": title,
        "x": x_label,
        "y": y_label,
        "log": log,
        "series": [
            {
                "name": name,
                "x": [_short(v) for v in x],
                "y": [_short(v) for v in y],
                **({"dashed": True} if name in dashed else {}),
            }
            for name, (x, y) in series.items()
        ],
    }


def plane(
    title: str,
    function: Callable[[np.ndarray], np.ndarray],
    X: np.ndarray,
    y: np.ndarray,
    *,
    levels: Sequence[float] = (-1.0, 0.0, 1.0),
    marks: np.ndarray | None = None,
    margin: float = 0.06,
) -> dict[str, Any]:
    """Return a panel of a decision function in the plane: its level lines, and the points."""
    from contourpy import contour_generator

    low, high = X.min(axis=0), X.max(axis=0)
    pad = margin * (high - low)
    low, high = low - pad, high + pad
    xs, ys = (np.linspace(low[j], high[j], _GRID) for j in (0, 1))
    grid = np.stack(np.meshgrid(xs, ys), axis=-1).reshape(-1, 2)
    values = function(grid).reshape(_GRID, _GRID)
    surface: Any = contour_generator(xs, ys, values, fill_type="ChunkCombinedOffset")
    points, starts = (part[0] for part in surface.filled(0.0, max(values.max(), 0.0) + 1.0))
    positive = [] if points is None else np.split(points, starts[1:-1])
    shown = np.linspace(0, len(y) - 1, min(len(y), _MOST_POINTS)).astype(int)
    return {
        "type": "plane",
        "title": title,
        "extent": [_short(v) for v in (low[0], high[0], low[1], high[1])],
        "positive": [_path(line) for line in positive],
        "lines": [
            {"level": level, "path": _path(line)}
            for level in levels
            for line in surface.lines(level)
        ],
        "points": [[*_path(X[shown][y[shown] == side])] for side in (-1, 1)],
        "marks": [] if marks is None else _path(np.asarray(marks)),
    }


def _path(points: np.ndarray) -> list[list[float]]:
    return [[_short(a), _short(b)] for a, b in points]


def _short(value: float) -> float:
    return float(f"{float(value):.4g}")
