"""The pages leansvm writes: one file each, nothing loaded from elsewhere.

HTML is in templates (``*.html.j2``). They escape all text except :class:`Markup`, the output of
another template. Pages follow the reader's light or dark setting and fit narrow screens: tables
scroll inside their frame, and pictures are inline SVG in the page's own colours.
"""

from __future__ import annotations

import io
import os
import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leansvm._extras import needs

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours of classes and curves that read well on light and on dark paper.
NEGATIVE, POSITIVE = "#d95f0d", "#2663eb"
COLOURS = (
    *(POSITIVE, NEGATIVE, "#0f9d6b", "#a855c7"),
    *("#c79a00", "#64748b", "#0891b2", "#d6408e"),
)

# What stands for the page's own colours while matplotlib draws.
INK, SOFT, LINE = "#010203", "#010204", "#010205"
_PAGE_COLOURS = {INK: "currentColor", SOFT: "var(--soft)", LINE: "var(--line)"}
_PAGE_COLOURS |= {POSITIVE: "var(--pos)", NEGATIVE: "var(--neg)"}
_numbers = count()


@cache
def _environment(folder: Path) -> Environment:
    """Return what reads the templates of a folder, and the ones here that they extend."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as error:
        raise ImportError(needs("an HTML page", "jinja2", "cli")) from error
    return Environment(
        loader=FileSystemLoader([folder, Path(__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(template: Path, **values: Any) -> str:
    """Return the page that a template makes of the values, and of the versions in use."""
    page = _environment(template.parent).get_template(template.name)
    return page.render(versions=versions(), **values)


def page(title: str, lead: str, body: Iterable[str], footer: Iterable[str] = ()) -> str:
    """Return a page of sections; the versions in use follow the sentences of the footer."""
    template = Path(__file__).with_name("page.html.j2")
    return render(template, title=title, lead=lead, body=body, footer=footer)


def _part(name: str, *values: Any) -> Markup:
    """Call a macro of parts.html.j2."""
    parts: Any = _environment(Path(__file__).parent).get_template("parts.html.j2").module
    return getattr(parts, name)(*values)


def section(heading: str, body: str, text: str = "", anchor: str = "") -> Markup:
    """Return a section; `body` is the concatenated output of the functions below."""
    return _part("section", heading, body, text, anchor)


def table(header: Sequence[object], rows: Iterable[Sequence[object]], caption: str = "") -> Markup:
    """Return a table that scrolls sideways if the page is narrow.

    The first cell of every row is its heading. A cell may be a :class:`Cell` to have a class.
    """
    return _part("table", header, rows, caption)


class Cell(str):
    """Text of a table cell with a CSS class, such as "good" or "bad"."""

    kind: str

    def __new__(cls, text: object, kind: str) -> Cell:
        """Make a cell of any value."""
        cell = super().__new__(cls, str(text))
        cell.kind = kind
        return cell


def figures(items: Iterable[str]) -> Markup:
    """Return figures side by side if there is room."""
    return _part("figures", items)


def figure(picture: str, title: str, caption: str = "") -> Markup:
    """Return a figure: a picture (see :func:`svg`) and what stands below it."""
    return _part("figure", picture, title, caption)


def facts(items: Iterable[tuple[str, object]]) -> Markup:
    """Return the page's most important numbers, large: (label, value) pairs."""
    return _part("facts", items)


def bullets(items: Iterable[str]) -> Markup:
    """Return a list of sentences."""
    return _part("bullets", items)


def code(text: str) -> Markup:
    """Return a block of code that can be selected as a whole."""
    return _part("code", text)


def style() -> Any:
    """Return matplotlib settings for figures of a page; use with ``rc_context``."""
    from cycler import cycler

    return {
        "figure.figsize": (4.6, 3.1),  # shown at most about this wide: text keeps its size
        "figure.constrained_layout.use": True,
        "font.size": 10.0,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": INK,
        "axes.titlesize": 10.5,
        "axes.prop_cycle": cycler(color=COLOURS),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "xtick.color": INK,
        "ytick.color": INK,
        "legend.frameon": False,
        "legend.fontsize": 9.0,
        "lines.linewidth": 1.8,
        "grid.color": LINE,
        "svg.fonttype": "none",  # text stays text: the page's font, selectable
    }


@contextmanager
def drawing(**options: Any) -> Iterator[tuple[Figure, Axes]]:
    """Give a figure and its axes in the page's style; `options` are those of the figure."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(style()):
        fig = Figure(**options)
        yield fig, fig.subplots()


def dots(ax: Axes, points: Any, size: float, **options: Any) -> None:
    """Draw points as lines without length and with round ends: one short path for all."""
    import numpy as np
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    path = Outline(np.repeat(points, 2, axis=0), [Outline.MOVETO, Outline.LINETO] * len(points))
    path.should_simplify = False  # or the lines would be left out
    ax.add_patch(PathPatch(path, fill=False, linewidth=size, capstyle="round", **options))


def svg(fig: Figure, label: str) -> Markup:
    """Return a figure drawn under :func:`style` as inline SVG.

    Parameters
    ----------
    fig : matplotlib Figure
        It is not changed; close it yourself where pyplot made it.
    label : str
        What it shows, for readers who cannot see it.
    """
    import matplotlib

    buffer = io.StringIO()
    # ids are derived from the salt: two figures of a page must not share them
    with matplotlib.rc_context({"svg.hashsalt": f"leansvm-{next(_numbers)}"}):
        fig.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = re.sub(r"\s+", " ", buffer.getvalue())
    box, drawn = re.findall(r'<svg [^>]*viewBox="([^"]+)".*?</metadata>(.*)</svg>', text)[0]
    drawn = re.sub(r"<defs> <style.*?</defs>|<!--.*?-->", "", drawn)  # the page has this style
    drawn = re.sub(r'<g id="[^"]*"', "<g", drawn)  # figure_1, axes_1, ...: in every picture
    drawn = re.sub(r' transform="rotate\(-0 [^"]*"', "", drawn)
    drawn = re.sub(r"font-family: [^;]*; ", "", drawn)
    drawn = re.sub(r' (d|x|y)="[^"]*"', lambda found: _shortened(found[0]), drawn)
    for colour, own in _PAGE_COLOURS.items():
        drawn = drawn.replace(colour, own)
    return _part("drawing", box, label, drawn.replace("> <", "><").strip())


def _shortened(coordinates: str) -> str:
    """Return coordinates to a tenth of a point, of markers (which have curves) to a hundredth."""
    digits = 2 if "C" in coordinates else 1
    text = re.sub(rf"(\.\d{{{digits}}})\d+", r"\1", coordinates)
    text = re.sub(r' ?([MLCz]) ?| (?=")', r"\1", text)
    return re.sub(r'M(\S+ \S+)L\1(?=[M"])', r"M\1h0", text)


def versions() -> str:
    """Return what this was run with, in one line."""
    import numpy
    import scipy
    import sklearn

    from leansvm._version import __version__

    return (
        f"leansvm {__version__}, scikit-learn {sklearn.__version__}, NumPy {numpy.__version__}, "
        f"SciPy {scipy.__version__}, Python {platform.python_version()}, "
        f"{os.cpu_count()} CPU cores, {platform.machine()}"
    )
