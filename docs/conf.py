"""Sphinx configuration; `make docs` builds the site with warnings as errors."""

import inspect
import re
import shutil
import sys
from importlib import import_module
from operator import attrgetter
from pathlib import Path

from sphinx import addnodes

from leansvm import __version__

sys.path.append(str(Path(__file__).parent / "_ext"))

project = "leansvm"
author = "the leansvm developers"
copyright = "the leansvm developers"
version = release = __version__

extensions = [
    "mathml",
    "names",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
html_math_renderer = "mathml"
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates", "**sg_execution_times.rst"]
html_static_path = ["_static"]
html_css_files = ["site.css"]

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings say it
numpydoc_show_class_members = False
numpydoc_show_inherited_class_members = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "doc_module": "leansvm",
    "backreferences_dir": "generated/examples",  # which examples use a class: shown on its page
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "min_reported_time": 3600,
}

html_theme = "furo"
html_title = "leansvm"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def escape_norms(app, what, name, obj, options, lines):
    """Docstrings write |x| for absolute values and norms; reST would look for a substitution."""
    for i, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            parts = re.split(r"(``.*?``)", line)
            parts[::2] = [re.sub(r"(?<!\\)\|", r"\\|", part) for part in parts[::2]]
            lines[i] = "".join(parts)


def name_the_defining_class(app, doctree):
    """Inherited methods link to the source of the class that defines them."""
    for signature in doctree.findall(addnodes.desc_signature):
        if "." not in signature.get("fullname", ""):
            continue  # not a method
        method = attrgetter(signature["fullname"])(import_module(signature["module"]))
        method = inspect.unwrap(getattr(method, "fget", method))
        if getattr(method, "__module__", "").startswith("leansvm"):
            signature["module"], signature["fullname"] = method.__module__, method.__qualname__


def copy_the_report(app, error):
    """Put the report of the papers where the pages link to it, as it is in the repository."""
    if error is None and app.builder.format == "html":
        shutil.copytree(
            Path(__file__).parent / "reproduction", app.outdir / "reproduction", dirs_exist_ok=True
        )


def add_menu(app, docname, source):
    """Add the site's menu to a page; the page itself stays readable outside the site."""
    menu = Path(__file__).parent / "_templates" / f"menu_{docname}.md"
    if menu.exists():
        source[0] += "\n" + menu.read_text("utf-8")


def setup(app):
    app.connect("source-read", add_menu)
    app.connect("build-finished", copy_the_report)
    app.connect("doctree-read", name_the_defining_class, priority=100)  # before viewcode looks
    app.connect("autodoc-process-docstring", escape_norms, priority=100)
