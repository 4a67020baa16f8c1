"""docs/api: every public name has its page, once, and every page is that of a public name."""

import importlib
import re
from collections import Counter
from inspect import isclass
from operator import attrgetter
from pathlib import Path

import leansvm
import leansvm.papers.baselines  # loaded at its first use

DOCS = Path(__file__).resolve().parents[1] / "docs"
GROUPS = sorted((DOCS / "api").glob("*.md"))
LISTED = [
    name
    for page in GROUPS
    for name in re.findall(r"^   ([A-Za-z][\w.]+)$", page.read_text("utf-8"), re.MULTILINE)
]
MODULES = ["datasets", "export", "inspection", "model_selection", "papers.baselines", "plotting"]
MODULES += ["tables"]


def test_every_page_is_that_of_something():
    assert [name for name in LISTED if not attrgetter(name)(leansvm).__doc__] == []


def test_public_names_have_a_page():
    assert set(leansvm.__all__) - {"__version__"} <= set(LISTED)
    modules = {name: importlib.import_module(f"leansvm.{name}") for name in MODULES}
    wanted = {f"{name}.{each}" for name, module in modules.items() for each in module.__all__}
    assert wanted <= set(LISTED)


def test_no_two_classes_have_the_same_name():
    things = {name: attrgetter(name)(leansvm) for name in LISTED}
    names = Counter(name.rpartition(".")[2] for name, thing in things.items() if isclass(thing))
    assert "Dataset" in names and max(names.values()) == 1


def test_groups_are_in_the_sidebar():
    menu = (DOCS / "_templates" / "menu_api.md").read_text("utf-8")
    sidebar = re.findall(r"^api/(\w+)$", menu, re.MULTILINE)
    assert sorted(sidebar) == [page.stem for page in GROUPS]
