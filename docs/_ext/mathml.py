"""Formulas as MathML, which browsers draw themselves: no script, no font, no network.

LaTeX that the converter does not know ends the build and is named with its page.
"""

import re

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.errors import ExtensionError

# "log x" with a space, "|x|" without
FUNCTION = re.compile(r"(<mi>[a-z]{2,}</mi>)(?!<mo|</)")
TRANSPOSED = "<mo>&#x022A4;</mo>"  # stands too high where there is no font for mathematics
BAR = re.compile(r"<mo[^>]*>(&#x0007C;|&#x02016;|&#x02225;)</mo>")


def to_mathml(latex, display, page):
    """Return a formula as a <math> element."""
    try:
        formula = convert(latex, display=display)
    except Exception as error:  # the converter's errors have no class in common
        raise ExtensionError(f"{page}: the formula {latex!r} cannot be read: {error!r}") from error
    if "<mi>\\" in formula:  # an unknown command is left as it is
        raise ExtensionError(f"{page}: a command of the formula {latex!r} is not known")
    formula = FUNCTION.sub(r'\1<mspace width="0.17em"/>', formula)
    formula = formula.replace(TRANSPOSED, '<mi mathvariant="normal">T</mi>')
    return BAR.sub(r'<mo stretchy="false" lspace="0" rspace="0">\1</mo>', formula)


def visit_inline(translator, node):
    """Write a formula inside a line."""
    formula = to_mathml(node.astext(), "inline", translator.builder.current_docname)
    translator.body.append(f'<span class="math">{formula}</span>')
    raise nodes.SkipNode


def visit_block(translator, node):
    """Write a formula of its own; a long one scrolls by itself, not with the page."""
    formula = to_mathml(node.astext(), "block", translator.builder.current_docname)
    translator.body.append(translator.starttag(node, "div", CLASS="math math-block"))
    translator.body.append(f"{formula}</div>")
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
