"""docs/equations.md: names and files that it gives exist, and no numbered equation is forgotten."""

import importlib
import re
from pathlib import Path

import pytest

import leansvm

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(leansvm.__file__).resolve().parent
PAGE = (ROOT / "docs" / "equations.md").read_text("utf-8")
# the number of the last equation of each paper
LAST = {"zhou2013": 28, "zhou2016": 30, "peng2016": 64, "fang2019": 35, "joshi": 61}
NAME = re.compile(r"`(leansvm(?:\.\w+)+)`")
PLACE = re.compile(r"(`leansvm[\w.]+`(?:, `leansvm[\w.]+`)*) in `([\w/]+\.py)`")


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


def wrong_place(name, file):
    """Return what is wrong with a name and the file it is said to be in, None if nothing is."""
    try:
        module, thing = look_up(name)
    except (AttributeError, ModuleNotFoundError) as error:
        return f"{name}: {error}"
    path = PACKAGE / file
    if not path.is_file():
        return f"{name}: there is no file {file}"
    if Path(module.__file__).resolve() != path:
        return f"{name}: is found in {module.__name__}, not in {file}"
    defined_in = getattr(thing, "__module__", None) or module.__name__
    if defined_in.startswith("leansvm") and defined_in != module.__name__:
        return f"{name}: is defined in {defined_in}, not in {file}"
    return None


PAPERS = sections(PAGE)


def test_the_page_has_a_part_for_each_paper():
    assert list(PAPERS) == list(LAST)


@pytest.mark.parametrize("paper", LAST)
def test_names_are_where_the_page_says(paper):
    rows = table_rows(PAPERS[paper])
    assert rows
    wrong = []
    for equation, _, code in rows:
        places = PLACE.findall(code)
        # nothing but names with their file, so that none goes unchecked
        assert "; ".join(f"{names} in `{file}`" for names, file in places) == code, equation
        for names, file in places:
            wrong += [wrong_place(name, file) for name in NAME.findall(names)]
    assert not [problem for problem in wrong if problem]


def test_names_in_the_text_exist():
    names = NAME.findall(re.sub(r"^\|.*", "", PAGE, flags=re.MULTILINE))
    assert names
    for name in names:
        look_up(name)


@pytest.mark.parametrize(("paper", "last"), LAST.items())
def test_every_equation_is_listed_once_or_left_out(paper, last):
    (left_out,) = re.findall(r"^Not in the code: (.*)$", PAPERS[paper], re.MULTILINE)
    in_table = numbers("\n".join(row[0] for row in table_rows(PAPERS[paper])))
    everything = sorted(in_table + numbers(left_out))
    assert everything == list(range(1, last + 1))


@pytest.mark.parametrize(
    ("name", "file", "problem"),
    [
        ("leansvm.ridge.primal.solve", "solvers/primal.py", None),
        ("leansvm.ridge.primal.no_such_thing", "solvers/primal.py", "no attribute"),
        ("leansvm.no_such_module.solve", "solvers/primal.py", "no_such_module"),
        ("leansvm.ridge.primal.solve", "solvers/nowhere.py", "no file"),
        ("leansvm.ridge.primal.solve", "solvers/sums.py", "not in solvers/sums.py"),
        ("leansvm.ridge.primal.Sums", "solvers/primal.py", "defined in leansvm.ridge.sums"),
    ],
)
def test_a_wrong_name_or_file_is_noticed(name, file, problem):
    found = wrong_place(name, file)
    assert found == problem if problem is None else problem in found


def test_ranges_of_equations_are_read():
    assert numbers("(1), (3)\u2013(5) and Algorithm 2") == [1, 3, 4, 5]
