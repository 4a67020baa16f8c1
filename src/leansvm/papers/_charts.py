"""Panels drawn by matplotlib: small, in the page's own colours, legible on a phone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from leansvm.plotting import html
from leansvm.plotting.axes import plain_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH = 4.8  # inches
_DASHED: dict[str, Any] = {"linestyle": (0, (3.2, 2.4)), "linewidth": 1.2}


def draw(panel: Mapping[str, Any]) -> str:
    """Return a panel as a figure with its caption."""
    label = panel["title"]
    if panel["type"] == "curves":
        label += f": {panel['y']} against {panel['x']}"
        with html.drawing(figsize=(_WIDTH, 2.8 + 0.2 * (_named(panel) // 2))) as (fig, ax):
            _curves(ax, panel)
            if _named(panel) > 1:
                fig.legend(loc="outside lower left", ncols=2, labelcolor=html.SOFT)
            picture = html.svg(fig, label)
    else:
        left, right, bottom, top = panel["extent"]
        shape = min(1.0, max(0.55, (top - bottom) / (right - left)))
        with html.drawing(figsize=(_WIDTH, _WIDTH * shape), layout="none") as (fig, ax):
            ax.set(position=(0, 0, 1, 1), xlim=(left, right), ylim=(bottom, top))
            ax.set_axis_off()
            _plane(ax, panel)
            picture = html.svg(fig, label)
    return html.figure(picture, panel["title"])


def _named(panel: Mapping[str, Any]) -> int:
    return sum(not series.get("unnamed") for series in panel["series"])


def _curves(ax: Axes, panel: Mapping[str, Any]) -> None:
    for index, series in enumerate(panel["series"]):
        colour = html.COLOURS[series.get("colour", index) % len(html.COLOURS)]
        dashed = _DASHED if series.get("dashed") else {}
        name = "_" if series.get("unnamed") else plain_text(series["name"])
        ax.plot(series["x"], series["y"], color=colour, label=name, **dashed)
        if len(series["x"]) <= 24:
            points = np.transpose([series["x"], series["y"]])
            html.dots(ax, points, 3.0 if dashed else 4.4, color=colour)
    ax.set(xlabel=plain_text(panel["x"]), ylabel=plain_text(panel["y"]))
    ax.tick_params(colors=html.SOFT, length=0)
    ax.grid(axis="y")
    ax.spines[:].set_color(html.LINE)
    for name, axis in (("x", ax.xaxis), ("y", ax.yaxis)):
        if name in panel["log"]:  # a value that is not positive is left out
            getattr(ax, f"set_{name}scale")("log", nonpositive="mask")
        _ticks(axis, name in panel["log"])


def _ticks(axis: Any, log: bool) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    low, high = axis.get_view_interval()
    short = log and high / low < 40  # few powers of ten: 1, 2, 5, 10, ...
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if short else (1,)) if log else MaxNLocator(5))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: _number(value)))


def _number(value: float) -> str:
    """Return 0.01 and 10⁻⁵: text, where matplotlib would set a formula."""
    if value and not 1e-3 <= abs(value) < 1e5:
        factor, exponent = f"{value:.0e}".split("e")
        digits = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"10{digits}" if factor == "1" else f"{factor}·10{digits}"
    return f"{value:.6g}"


def _plane(ax: Axes, panel: Mapping[str, Any]) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    bottom, top = panel["extent"][2:]
    ax.axhspan(bottom, top, color=html.NEGATIVE, alpha=0.1, linewidth=0)
    if panel["positive"]:  # the page fills even-odd: holes are lines like any other
        outline = Path.make_compound_path(*(Path(line, closed=True) for line in panel["positive"]))
        ax.add_patch(PathPatch(outline, color=html.POSITIVE, alpha=0.16, linewidth=0))
    for colour, points in zip((html.NEGATIVE, html.POSITIVE), panel["points"], strict=True):
        if points:
            html.dots(ax, points, 3.0, color=colour, alpha=0.75)
    for line in panel["lines"]:
        margin = _DASHED if line["level"] else {}
        ax.plot(*np.transpose(line["path"]), color=html.INK, **margin)
    if panel["marks"]:
        marks = np.transpose(panel["marks"])
        ax.plot(*marks, "o", markersize=8, markerfacecolor="none", color=html.INK)
