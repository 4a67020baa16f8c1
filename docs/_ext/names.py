"""Names of public classes and functions link to their API pages.

Pages write `SparseLSSVC` or `inspection.effects` as plain code, so that they also read well
outside the site. The first place of a page where a name stands becomes a link.
"""

import re
from pathlib import Path

from docutils import nodes
from sphinx import addnodes

LISTED = re.compile(r"^   ([A-Za-z][\w.]+)$", re.MULTILINE)


def public_names(folder):
    """Return the full name of everything on an API page by what pages call it."""
    found = {}
    for page in sorted(Path(folder, "api").glob("*.md")):
        for name in LISTED.findall(page.read_text("utf-8")):
            last = name.rpartition(".")[2]
            spelled = {name, f"leansvm.{name}"} | ({last} if re.search("[A-Z_]", last) else set())
            found |= {each: f"leansvm.{name}" for each in spelled}
    return found


def link_names(app, doctree):
    """Turn names into references; a name without a page stays as it is."""
    if Path(app.env.doc2path(app.env.docname)).suffix != ".md":
        return
    names, seen = app.env.leansvm_names, set()
    for literal in list(doctree.findall(nodes.literal)):
        owner, _, method = literal.astext().rpartition(".")
        target = names.get(literal.astext()) or (names.get(owner) and f"{names[owner]}.{method}")
        inside = isinstance(literal.parent, nodes.reference | nodes.title | addnodes.pending_xref)
        if target and not inside and target not in seen:
            seen.add(target)
            place = {"refdomain": "py", "reftype": "obj", "reftarget": target}
            reference = addnodes.pending_xref("", refdoc=app.env.docname, refexplicit=True, **place)
            literal.replace_self(reference)
            reference += literal


def setup(app):
    app.connect("env-before-read-docs", remember_names)
    app.connect("doctree-read", link_names)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def remember_names(app, env, docnames):
    """Read the API pages once."""
    env.leansvm_names = public_names(app.srcdir)
