"""Sphinx configuration; `make docs` builds the site with warnings as errors."""

import re

from leansvm import __version__

project = "leansvm"
author = "the leansvm developers"
copyright = "the leansvm developers"
version = release = __version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates", "sg_execution_times.rst"]
html_extra_path = ["reproduction"]  # report.html and results.json, as they are

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings say it
numpydoc_show_class_members = False
numpydoc_show_inherited_class_members = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
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


def setup(app):
    app.connect("autodoc-process-docstring", escape_norms, priority=100)
