"""Panels as inline SVG: small, in the page's own colours, legible on a phone.

Colours are CSS classes (c0, c1, ...; neg, pos), so that one drawing suits light and dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

_WIDTH, _HEIGHT = 360.0, 236.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 12.0, 12.0, 38.0
N_COLOURS = 8

STYLE = """
.k0 { --k: var(--pos); } .k1 { --k: var(--neg); } .k2 { --k: #0f9d6b; } .k3 { --k: #a855c7; }
.k4 { --k: #c79a00; } .k5 { --k: #64748b; } .k6 { --k: #0891b2; } .k7 { --k: #d6408e; }
.chart path.line { fill: none; stroke: var(--k); stroke-width: 2; stroke-linejoin: round; }
.chart path.dots { fill: none; stroke: var(--k); stroke-width: 5; stroke-linecap: round; }
.chart path.dash { stroke-dasharray: 5 4; stroke-width: 1.6; }
.chart path.dash + path.dots { stroke-width: 4; opacity: .75; }
.chart .grid { display: inline; stroke: var(--line); stroke-width: 1; }
.chart text { font-size: 11px; fill: var(--soft); } .chart .axis { fill: var(--ink); }
.plane .region { fill: var(--pos); opacity: .16; } .plane .ground { fill: var(--neg); opacity: .1; }
.plane .level { fill: none; stroke: var(--ink); stroke-width: 1.9; }
.plane .margin { stroke-width: 1; stroke-dasharray: 4 3; opacity: .75; }
.plane .pt { fill: none; stroke-width: 3.4; stroke-linecap: round; opacity: .75; }
.plane .neg { stroke: var(--neg); } .plane .pos { stroke: var(--pos); }
.plane .mark { fill: none; stroke: var(--ink); stroke-width: 1.3; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem .9rem; list-style: none; padding: 0;
  margin: .4rem 0 0; font-size: .85rem; color: var(--soft); }
.legend li::before { content: ""; display: inline-block; width: 1.1em; vertical-align: .25em;
  border-top: 3px solid var(--k); margin-right: .4em; }
.legend li.dash::before { border-top-style: dashed; }
"""


def draw(panel: Mapping[str, Any]) -> str:
    """Return a panel as a figure with its caption and legend."""
    drawing = _curves(panel) if panel["type"] == "curves" else _plane(panel)
    caption = f"<figcaption><b>{escape(panel['title'])}</b>{_legend(panel)}</figcaption>"
    return f"<figure>{drawing}{caption}</figure>"


# --------------------------------------------------------------------------------- curves


def _curves(panel: Mapping[str, Any]) -> str:
    x_axis = _Axis(_all(panel, "x"), "x" in panel["log"], _LEFT, _WIDTH - _RIGHT)
    y_axis = _Axis(_all(panel, "y"), "y" in panel["log"], _HEIGHT - _BOTTOM, _TOP)
    parts = [_axes(panel, x_axis, y_axis)]
    for index, series in enumerate(panel["series"]):
        points = [
            (x_axis.place(x), y_axis.place(y))
            for x, y in zip(series["x"], series["y"], strict=True)
            if x_axis.has(x) and y_axis.has(y)
        ]
        if not points:
            continue
        colour = series.get("colour", index) % N_COLOURS
        dash = " dash" if series.get("dashed") else ""
        line = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        dots = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in points)
        few = len(points) <= 24
        parts.append(f'<path class="line k{colour}{dash}" d="{line}"/>')
        parts.append(f'<path class="dots k{colour}" d="{dots}"/>' if few else "")
    label = f"{panel['title']}: {panel['y']} against {panel['x']}"
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def _all(panel: Mapping[str, Any], axis: str) -> list[float]:
    return [value for series in panel["series"] for value in series[axis]]


class _Axis:
    """Maps numbers to places along one side."""

    def __init__(self, values: Iterable[float], log: bool, start: float, end: float) -> None:
        self.log, self.start, self.end = log, start, end
        usable = [self._scale(v) for v in values if self.has(v)] or [0.0, 1.0]
        low, high = min(usable), max(usable)
        pad = 0.04 * (high - low) or 0.5
        self.low, self.high = low - pad, high + pad
        if not log and low >= 0 and self.low < 0:
            self.low = 0.0

    def has(self, value: float) -> bool:
        """Whether the value can be shown."""
        return math.isfinite(value) and (value > 0 or not self.log)

    def _scale(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def place(self, value: float) -> float:
        """Return the coordinate."""
        share = (self._scale(value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """Return places and labels."""
        if self.log:
            values = self._log_values()
        else:
            step = _nice((self.high - self.low) / 4)
            first = math.ceil(self.low / step)
            values = [k * step for k in range(first, math.floor(self.high / step) + 1)]
        return [(self.place(v), _number(v)) for v in values]

    def _log_values(self) -> list[float]:
        decades = range(math.floor(self.low), math.ceil(self.high) + 1)
        every = max(1, math.ceil((self.high - self.low) / 6))
        factors = (1, 2, 5) if self.high - self.low < 1.6 else (1,)
        values = [f * 10.0**k for k in decades if k % every == 0 for f in factors]
        return [v for v in values if self.low <= math.log10(v) <= self.high]


def _nice(step: float) -> float:
    power = 10 ** math.floor(math.log10(step))
    return float(min((f for f in (1, 2, 5, 10) if f * power >= step), default=10) * power)


def _number(value: float) -> str:
    if value and not 1e-3 <= abs(value) < 1e5:
        exponent = math.floor(math.log10(abs(value)) + 1e-9)
        digits = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        factor = round(value / 10**exponent)
        return f"10{digits}" if factor == 1 else f"{factor}·10{digits}"
    return f"{value:.6g}"


def _axes(panel: Mapping[str, Any], x_axis: _Axis, y_axis: _Axis) -> str:
    parts = []
    for place, text in y_axis.ticks():
        parts.append(f'<path class="grid" d="M{_LEFT} {place:.1f}H{_WIDTH - _RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{place + 4:.1f}" text-anchor="end">{text}</text>')
    for place, text in x_axis.ticks():
        bottom = _HEIGHT - _BOTTOM
        parts.append(f'<path class="grid" d="M{place:.1f} {bottom}v4"/>')
        parts.append(f'<text x="{place:.1f}" y="{bottom + 15}" text-anchor="middle">{text}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(
        f'<text class="axis" x="{middle}" y="{_HEIGHT - 7}" text-anchor="middle">'
        f"{escape(panel['x'])}</text>"
    )
    y = (_TOP + _HEIGHT - _BOTTOM) / 2
    parts.append(
        f'<text class="axis" x="13" y="{y}" text-anchor="middle" transform="rotate(-90 13 {y})">'
        f"{escape(panel['y'])}</text>"
    )
    return "".join(parts)


def _legend(panel: Mapping[str, Any]) -> str:
    if panel["type"] != "curves" or len(panel["series"]) < 2:
        return ""
    entries = []
    for index, series in enumerate(panel["series"]):
        if series.get("unnamed"):
            continue
        dash = " dash" if series.get("dashed") else ""
        colour = series.get("colour", index) % N_COLOURS
        entries.append(f'<li class="k{colour}{dash}">{escape(series["name"])}</li>')
    return f'<ul class="legend">{"".join(entries)}</ul>'


# ---------------------------------------------------------------------------------- plane


def _plane(panel: Mapping[str, Any]) -> str:
    left, right, bottom, top = panel["extent"]
    height = min(_WIDTH, max(200.0, _WIDTH * (top - bottom) / (right - left)))

    def place(point: Sequence[float]) -> tuple[float, float]:
        x = _WIDTH * (point[0] - left) / (right - left)
        return x, height * (top - point[1]) / (top - bottom)

    def path(line: Sequence[Sequence[float]]) -> str:
        return "M" + "L".join("{:.1f} {:.1f}".format(*place(point)) for point in line)

    region = "".join(path(line) + "z" for line in panel["positive"])
    parts = [
        f'<rect class="ground" width="{_WIDTH:g}" height="{height:.0f}"/>',
        f'<path class="region" fill-rule="evenodd" d="{region}"/>',
    ]
    for side, points in zip(("neg", "pos"), panel["points"], strict=True):
        dots = "".join("M{:.1f} {:.1f}h0".format(*place(point)) for point in points)
        parts.append(f'<path class="pt {side}" d="{dots}"/>')
    for level in sorted({line["level"] for line in panel["lines"]}, key=abs):
        lines = "".join(path(line["path"]) for line in panel["lines"] if line["level"] == level)
        kind = "level margin" if level else "level"
        parts.append(f'<path class="{kind}" d="{lines}"/>')
    for point in panel["marks"]:
        x, y = place(point)
        parts.append(f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>')
    return (
        f'<svg class="plane" viewBox="0 0 {_WIDTH:g} {height:.0f}" role="img" '
        f'aria-label="{escape(panel["title"])}">{"".join(parts)}</svg>'
    )
