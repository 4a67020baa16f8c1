"""Sphinx configuration; `make docs` builds the site with warnings as errors."""

import re
import sys
from pathlib import Path

from leansvm import __version__

sys.path.append(str(Path(__file__).parent / "_ext"))

project = "leansvm"
author = "the leansvm developers"
copyright = "the leansvm developers"
version = release = __version__

extensions = [
    "mathml",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
html_math_renderer = "mathml"
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates", "**sg_execution_times.rst"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
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


def setup(app):
    app.connect("autodoc-process-docstring", escape_norms, priority=100)
