"""The shape of the source: sizes, names and imports. Who may import whom is in pyproject.toml."""

import ast
import re
from collections import Counter, defaultdict
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "leansvm"
FILES = sorted(PACKAGE.rglob("*.py"))
MAX_FILE, MAX_FUNCTION, MAX_FOLDER = 400, 60, 25  # lines, lines of a body, files
MAX_CORE = 31_200  # lines of all folders and files but those of BESIDE; the aim is 23,500
BESIDE = {"cli", "papers", "datasets", "export", "plotting", "persistence", "inspection"}
BESIDE |= {"model_selection", "tables"}
CORE = ("estimators", "learning", "ridge", "newton", "dual", "low_rank", "basis", "rows", "kernels")
SAME_NAME_ALLOWED: frozenset[str] = frozenset()  # class names that may occur twice


@cache
def tree(file):
    return ast.parse(file.read_text("utf-8"))


def module_name(file):
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def relative(file):
    return file.relative_to(PACKAGE).as_posix()


# ---------------------------------------------------------------------------- sizes


@cache
def lengths():
    return {relative(file): len(file.read_text("utf-8").splitlines()) for file in FILES}


def test_no_file_is_too_long():
    assert not {name: length for name, length in lengths().items() if length > MAX_FILE}


def test_no_folder_has_too_many_files():
    counts = Counter(file.parent for file in FILES)
    assert not {relative(folder): n for folder, n in counts.items() if n > MAX_FOLDER}


def test_the_core_stays_small():
    core = sum(n for name, n in lengths().items() if name.partition("/")[0] not in BESIDE)
    assert core <= MAX_CORE


def length_of_body(function):
    """Lines from the first statement after the docstring to the last one."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0


@pytest.mark.parametrize("folder", CORE)
def test_no_function_is_too_long(folder):
    files = [file for file in FILES if PACKAGE / folder in file.parents]
    assert files
    lengths = {
        f"{relative(file)}: {node.name}": length_of_body(node)
        for file in files
        for node in ast.walk(tree(file))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert not {name: length for name, length in lengths.items() if length > MAX_FUNCTION}


def test_the_length_of_a_body_leaves_out_signature_and_docstring():
    text = 'def f(\n  a,\n  b,\n):\n  """One.\n\n  Two.\n  """\n  c = a\n  return c + b\n'
    (function,) = ast.parse(text).body
    assert length_of_body(function) == 2


# ---------------------------------------------------------------------------- names


def test_a_class_name_has_one_meaning():
    places = defaultdict(list)
    for file in FILES:
        for node in ast.walk(tree(file)):
            if isinstance(node, ast.ClassDef):
                places[node.name.lstrip("_")].append(relative(file))
    repeated = {name: where for name, where in places.items() if len(where) > 1}
    assert not {name: repeated[name] for name in repeated.keys() - SAME_NAME_ALLOWED}
    assert repeated.keys() >= SAME_NAME_ALLOWED  # or it can go from the list


# ---------------------------------------------------------------------------- imports


def executed_on_import(nodes):
    """All statements but those in functions and those for type checkers alone."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from executed_on_import(node.orelse)
            continue
        yield node
        yield from executed_on_import(ast.iter_child_nodes(node))


def imported_modules(nodes, modules):
    """Modules of the package that these statements import."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in modules else node.module


def first_cycle(graph):
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def test_no_import_cycle():
    modules = {module_name(file) for file in FILES}
    graph = {
        module_name(file): set(imported_modules(executed_on_import(tree(file).body), modules))
        for file in FILES
    }
    assert graph["leansvm"] == {"leansvm._version"}  # the rest is loaded at its first use
    assert graph["leansvm.estimators"] > {"leansvm.estimators.sparse"}
    assert not first_cycle(graph)


def test_imports_are_absolute():
    found = [
        f"{relative(file)}:{node.lineno}"
        for file in FILES
        for node in ast.walk(tree(file))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert not found  # the other tests here read full names


def private_parts(node):
    """What an import takes from inside another layer: its private modules and names.

    The package's own modules with an underscore (`leansvm._phases`) are open to all layers.
    """
    if isinstance(node, ast.Import):
        paths = [alias.name for alias in node.names]
    else:
        paths = [f"{node.module}.{alias.name}" for alias in node.names]
    for path in paths:
        package, layer, *inside = [*path.split("."), ""]
        if package == "leansvm" and layer != "estimators":
            yield from (path for part in inside if part.startswith("_"))


def test_estimators_import_no_private_name_of_another_layer():
    found = [
        f"{relative(file)}:{node.lineno}: {path}"
        for file in FILES
        if PACKAGE / "estimators" in file.parents
        for node in ast.walk(tree(file))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for path in private_parts(node)
    ]
    assert not found


@pytest.mark.parametrize(
    ("statement", "private"),
    [
        ("from leansvm.dual._cg import solve", True),
        ("from leansvm.dual.cg import _solve", True),
        ("import leansvm.basis._draw", True),
        ("from leansvm.dual import _cg", True),
        ("from leansvm.dual.cg import solve", False),
        ("from leansvm.estimators._base import _check", False),
        ("from leansvm._phases import Phases", False),
        ("from numpy._core import _x", False),
    ],
)
def test_private_parts(statement, private):
    (node,) = ast.parse(statement).body
    assert bool(list(private_parts(node))) == private


# ---------------------------------------------------------------------------- documentation


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_files_that_a_page_names_exist(page):
    text = (ROOT / page).read_text("utf-8")
    named = re.findall(r"`([\w/]+(?:\.py|\.md|/))`", text)
    named += re.findall(
        r"(?<!/)\b((?:estimators|learning|ridge|newton|dual|low_rank|basis|rows)/\w+\.py)", text
    )
    folders = (PACKAGE, PACKAGE / "estimators", ROOT)
    assert len(named) > 5
    assert not {name for name in named if not any((folder / name).exists() for folder in folders)}


def test_the_page_names_functions_that_exist():
    """docs/architecture.md: the files, functions and values of the default fit."""
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    section = page.partition("### Where the lines of the default fit are")[2].partition("\n## ")[0]
    lines, _, values = section.partition("These values are handed")
    checked = 0
    for row in re.findall(r"^\| `\w+` \|.*$", lines, re.MULTILINE):
        text = ""
        for name in re.findall(r"`([\w./]+)`", row.partition("|")[2].partition("|")[2]):
            if name.endswith(".py"):
                text = (PACKAGE / name).read_text("utf-8")
            elif re.fullmatch(r"[A-Za-z_.]+", name) and name not in {"y", "basis", "n_basis"}:
                for part in name.split("."):
                    if part != "RowBlocks":
                        assert re.search(rf"(def|class) {part}\b", text), (row, name)
                        checked += 1
    assert checked > 10
    source = "\n".join(file.read_text("utf-8") for file in FILES)
    for row in re.findall(r"^\| (`.*?) \|", values, re.MULTILINE):
        for name in re.findall(r"`([A-Z]\w+)`", row):
            assert f"class {name}" in source, name
