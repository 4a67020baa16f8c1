"""The package as a whole: what an import pulls in, what is shipped, what the documentation says."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import leansvm

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = {"matplotlib", "jinja2", "pooch", "typer", "rich", "pyarrow", "dask", "distributed"}
EXTRAS |= {"torch", "skops", "onnx", "onnxruntime", "skl2onnx"}
LATE = {"pandas", "polars", "numba"}  # frames are the user's; numba compiles at its first use
IGNORED_FOLDERS = {".git", ".venv", "_build", "generated", "build", "dist", "__pycache__"}


def modules_after(statement):
    """Top-level modules loaded by a fresh interpreter that runs one statement."""
    code = f"{statement}; import sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in json.loads(done.stdout)}


def repository_files():
    """Files under version control or about to be; all files where git is not at hand."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        files = [ROOT / line for line in listed.stdout.splitlines()]
    except (OSError, subprocess.CalledProcessError):
        files = []
    if not files:
        for folder, subfolders, names in os.walk(ROOT):
            hidden = {name for name in subfolders if name.endswith(("_cache", ".egg-info"))}
            subfolders[:] = sorted(set(subfolders) - IGNORED_FOLDERS - hidden)
            files += [Path(folder, name) for name in names]
    return [file for file in files if file.is_file()]


def python_blocks(page):
    """Return the Python code blocks of a Markdown page, joined."""
    return "\n".join(re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.S | re.M))


def test_import_loads_nothing():
    slow = {"numpy", "scipy", "sklearn"}
    assert not modules_after("import leansvm") & (EXTRAS | LATE | slow)
    assert not modules_after("from leansvm.cli._app import app") & (EXTRAS | LATE | slow) - {
        "typer",
        "rich",
    }


def test_estimators_load_no_extra():
    # scikit-learn itself loads pandas when it is installed: only count what we add.
    added = modules_after("from leansvm import LSSVC") - modules_after("import sklearn.svm")
    assert not added & (EXTRAS | LATE)


def test_names_and_submodules_are_found_at_their_first_use():
    code = "import leansvm; leansvm.kernels.Kernel; leansvm.LSSVC; dir(leansvm)"
    assert "sklearn" in modules_after(code)
    assert set(leansvm.__all__) <= set(dir(leansvm))
    with pytest.raises(AttributeError, match="module 'leansvm' has no attribute 'nothing'"):
        leansvm.nothing()
    with pytest.raises(AttributeError, match="_nothing"):
        leansvm._nothing()


def test_version_is_consistent():
    assert leansvm.__version__ == importlib.metadata.version("leansvm")
    definitions = [
        file.relative_to(ROOT).as_posix()
        for file in repository_files()
        if file.suffix in {".py", ".toml", ".cff"}
        and re.search(
            r'^(__version__|version)\s*[=:]\s*"?\d', file.read_text("utf-8"), re.MULTILINE
        )
    ]
    assert definitions == ["src/leansvm/_version.py"]


def test_type_marker_is_shipped():
    assert (Path(leansvm.__file__).parent / "py.typed").is_file()


@pytest.mark.parametrize("name", sorted(set(leansvm.__all__) - {"__version__"}))
def test_public_names_have_a_docstring_with_examples(name):
    documentation = getattr(leansvm, name).__doc__ or ""
    assert re.search(r"^\s*Examples\n\s*-{8}$", documentation, re.MULTILINE), name
    assert ">>> " in documentation


def test_no_machine_specific_paths():
    pattern = re.compile(r"(?<![\w.])/(?:home|Users|root|work)/\w|\b[A-Z]:\\Users\\|file://")
    found = []
    for file in repository_files():
        try:
            text = file.read_text("utf-8")
        except UnicodeDecodeError:
            continue  # not text
        if file != Path(__file__).resolve() and (match := pattern.search(text)):
            found.append(f"{file.relative_to(ROOT)}: {match.group()}")
    assert not found


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if python_blocks(page)],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
@pytest.mark.usefixtures("own_folder")
def test_examples_in_the_documentation_run(page):
    exec(compile(python_blocks(page), str(page), "exec"), {"__name__": "example"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_between_pages_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text("utf-8"))
    local = [link for link in links if not re.match(r"\w+:", link)]
    assert not [link for link in local if not (page.parent / link).exists()]
