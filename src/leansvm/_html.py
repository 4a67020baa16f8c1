"""The skeleton of the HTML pages leansvm writes: one file each, nothing loaded from elsewhere.

Light and dark by the reader's setting, wide and narrow: tables scroll inside their frame, figures
are inline SVG that shrink with the page.
"""

from __future__ import annotations

import io
import os
import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours of classes and curves that read well on light and on dark paper.
NEGATIVE, POSITIVE = "#d95f0d", "#2663eb"
COLOURS = (POSITIVE, NEGATIVE, "#0f9d6b", "#a855c7", "#c79a00", "#64748b")

_INK = "#010203"  # stands for the page's text colour while matplotlib draws
_numbers = count()


def page(title: str, lead: str, body: str, footer: Iterable[str] = (), *, style: str = "") -> str:
    """Return a whole page.

    Parameters
    ----------
    title, lead : str
        Heading and the sentence below it, plain text.
    body : str
        HTML between heading and footer.
    footer : iterable of str
        Paragraphs of plain text; the versions in use come after them.
    style : str
        CSS of this page alone.
    """
    paragraphs = "".join(f"<p>{escape(text)}</p>" for text in (*footer, versions()))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title><style>{STYLE}{style}</style></head><body>\n"
        f'<h1>{escape(title)}</h1>\n<p class="lead">{escape(lead)}</p>\n'
        f"{body}\n<footer>{paragraphs}</footer>\n</body></html>\n"
    )


def section(heading: str, body: str, text: str = "", anchor: str = "") -> str:
    """Return a section; `body` is HTML, `heading` and `text` are plain."""
    attribute = f' id="{escape(anchor)}"' if anchor else ""
    paragraph = f"<p>{escape(text)}</p>" if text else ""
    return f"<section{attribute}><h2>{escape(heading)}</h2>{paragraph}{body}</section>\n"


def table(header: Sequence[object], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """Return a table that scrolls sideways where the page is narrow; the cells are plain text.

    The first cell of every row is its heading. A cell may be a :class:`Cell` to have a class.
    """
    head = "".join(f'<th scope="col">{_cell(name)}</th>' for name in header)
    lines = []
    for first, *others in rows:
        cells = "".join(f"<td{_class(cell)}>{_cell(cell)}</td>" for cell in others)
        lines.append(f'<tr><th scope="row"{_class(first)}>{_cell(first)}</th>{cells}</tr>')
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f'<div class="scroll" tabindex="0"><table>{title}<thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


class Cell(str):
    """Text of a table cell with a CSS class, such as "good" or "bad"."""

    kind: str

    def __new__(cls, text: object, kind: str) -> Cell:
        """Make a cell of any value."""
        cell = super().__new__(cls, str(text))
        cell.kind = kind
        return cell


def _cell(value: object) -> str:
    return escape(str(value))


def _class(value: object) -> str:
    return f' class="{escape(value.kind)}"' if isinstance(value, Cell) else ""


def figures(items: Iterable[str]) -> str:
    """Return figures side by side where there is room."""
    return f'<div class="grid wide">{"".join(items)}</div>'


def figure(picture: str, title: str, caption: str = "") -> str:
    """Return a figure: `picture` is SVG (see :func:`svg`), the rest plain text."""
    text = f"<br>{escape(caption)}" if caption else ""
    return f"<figure>{picture}<figcaption><b>{escape(title)}</b>{text}</figcaption></figure>"


def facts(items: Iterable[tuple[str, object]]) -> str:
    """Return the page's most important numbers, large: (label, value) pairs."""
    cells = "".join(f"<div><dt>{escape(k)}</dt><dd>{_cell(v)}</dd></div>" for k, v in items)
    return f'<dl class="facts">{cells}</dl>'


def code(text: str) -> str:
    """Return a block of code that can be selected as a whole."""
    return f"<pre><code>{escape(text)}</code></pre>"


def style() -> Any:
    """Return matplotlib settings for figures of a page; use with ``rc_context``."""
    from cycler import cycler

    return {
        "figure.figsize": (4.6, 3.1),  # shown at most about this wide: text keeps its size
        "figure.constrained_layout.use": True,
        "font.size": 10.0,
        "text.color": _INK,
        "axes.labelcolor": _INK,
        "axes.edgecolor": _INK,
        "axes.titlesize": 10.5,
        "axes.prop_cycle": cycler(color=COLOURS),
        "axes.spines.top": False,
        "axes.spines.right": False,
        "xtick.color": _INK,
        "ytick.color": _INK,
        "legend.frameon": False,
        "legend.fontsize": 9.0,
        "lines.linewidth": 1.8,
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


def svg(fig: Figure, label: str) -> str:
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
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'^<svg[^>]*?viewBox="([^"]+)"[^>]*>', rf'<svg viewBox="\1" {_LABEL}>', text)
    text = text.replace(_INK, "currentColor")
    return text.replace(_LABEL, f'role="img" aria-label="{escape(label)}"', 1).strip()


_LABEL = "@@label@@"


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


STYLE = """
:root { color-scheme: light dark; --ink: #1c2333; --soft: #5b6477; --line: #dfe3ea;
  --paper: #ffffff; --panel: #f7f8fa; --neg: #d95f0d; --pos: #2663eb; --good: #0a7f54;
  --bad: #b42318; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8ebf2; --soft: #9aa4b8; --line: #303748;
  --paper: #12151d; --panel: #191d28; --neg: #fb923c; --pos: #6ea0ff; --good: #4cc38a;
  --bad: #ff8f85; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 3rem; max-width: 68rem; color: var(--ink);
  background: var(--paper); font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: clamp(1.6rem, 5vw, 2.3rem); letter-spacing: -.02em; margin: 0;
  overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 .5rem; } h3 { font-size: 1rem; margin: 1.5rem 0 .4rem; }
p, ul { max-width: 46rem; } ul { padding-left: 1.2rem; } a { color: var(--pos); }
.lead, small, footer { color: var(--soft); }
.grid { display: grid; gap: 1.25rem; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); }
.grid.wide { grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); }
figure { margin: 0; max-width: 34rem; }
.grid + .scroll, .scroll + .scroll { margin-top: 1.25rem; }
figcaption { margin-top: .45rem; font-size: .9rem; color: var(--soft); }
figcaption b { color: var(--ink); }
svg { display: block; width: 100%; height: auto; background: var(--panel); border-radius: 10px;
  border: 1px solid var(--line); color: var(--ink); }
svg text { font-family: system-ui, -apple-system, "Segoe UI", sans-serif !important; }
.facts { display: flex; flex-wrap: wrap; gap: .75rem 2.25rem; margin: 1.25rem 0; }
.facts dt { font-size: .85rem; color: var(--soft); }
.facts dd { margin: 0; font-size: 1.6rem; font-weight: 650; letter-spacing: -.02em;
  font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); font-size: .9rem; padding-bottom: .4rem; }
th, td { padding: .45rem .75rem; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; vertical-align: top; }
th:first-child { text-align: left; padding-left: 0; } th { font-weight: 500; }
thead th { font-size: .85rem; color: var(--soft); }
.good { color: var(--good); } .bad { color: var(--bad); } .left { text-align: left; }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 10px;
  padding: .8rem 1rem; overflow-x: auto; }
code { font-size: .92em; } footer { margin-top: 2.5rem; font-size: .85rem; max-width: 46rem; }
"""
