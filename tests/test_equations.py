"""docs/equations.md: the names that it gives exist, and no numbered equation is forgotten."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "equations.md").read_text("utf-8")
# the number of the last equation of each paper
LAST = {"zhou2013": 28, "zhou2016": 30, "peng2016": 64, "fang2019": 35, "joshi": 61}
NAME = re.compile(r"`(leansvm(?:\.\w+)+)`")


def sections(page):
    """Return the text of each paper's part of the page."""
    parts = re.split(r"^## (\w+):.*\n", page, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def table_rows(section):
    """Return the cells of the rows of a table, less its head."""
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def numbers(text):
    """Return the numbers of equations, as "(3)" or "(5)-(8)" with an en dash, in order."""
    found = []
    for first, last in re.findall(r"\((\d+)\)(?:\u2013\((\d+)\))?", text):
        found += range(int(first), int(last or first) + 1)
    return found


def look_up(name):
    """Import a dotted name; return the module that it is in and the thing itself."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        module_name = ".".join(parts[:length])
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if not f"{module_name}.".startswith(f"{error.name}."):
                raise  # a package that the module needs is missing
            continue
        thing = module
        for attribute in parts[length:]:
            thing = getattr(thing, attribute)
        return module, thing
    raise ModuleNotFoundError(name)


def problem_of(name):
    """Return what is wrong with a name of the page, None if nothing is."""
    try:
        module, thing = look_up(name)
    except (AttributeError, ModuleNotFoundError) as error:
        return f"{name}: {error}"
    defined_in = getattr(thing, "__module__", None) or module.__name__
    if defined_in.startswith("leansvm") and defined_in != module.__name__:
        return f"{name}: is defined in {defined_in}"
    return None


PAPERS = sections(PAGE)


def test_the_page_has_a_part_for_each_paper():
    assert list(PAPERS) == list(LAST)


@pytest.mark.parametrize("paper", LAST)
def test_names_of_the_page_exist(paper):
    rows = table_rows(PAPERS[paper])
    assert rows
    for equation, _, code in rows:
        names = NAME.findall(code)
        # nothing but names, so that none goes unchecked
        assert ", ".join(f"`{name}`" for name in names) == code, equation
        assert not [problem for name in names if (problem := problem_of(name))]


def test_names_in_the_text_exist():
    names = NAME.findall(re.sub(r"^\|.*", "", PAGE, flags=re.MULTILINE))
    assert names
    for name in names:
        look_up(name)


@pytest.mark.parametrize(("paper", "last"), LAST.items())
def test_every_equation_is_listed_once_or_left_out(paper, last):
    left_out = "".join(re.findall(r"^Not in the code: (.*)$", PAPERS[paper], re.MULTILINE))
    in_table = numbers("\n".join(row[0] for row in table_rows(PAPERS[paper])))
    everything = sorted(in_table + numbers(left_out))
    assert everything == list(range(1, last + 1))


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("leansvm.ridge.primal.solve_sums", None),
        ("leansvm.ridge.primal.no_such_thing", "no attribute"),
        ("leansvm.no_such_module.solve", "no_such_module"),
        ("leansvm.ridge.primal.RowBlocks", "defined in leansvm.rows"),
    ],
)
def test_a_wrong_name_is_noticed(name, problem):
    found = problem_of(name)
    assert found == problem if problem is None else problem in found


def test_ranges_of_equations_are_read():
    assert numbers("(1), (3)\u2013(5) and Algorithm 2") == [1, 3, 4, 5]
