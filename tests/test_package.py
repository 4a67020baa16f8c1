"""The package as a whole: what an import pulls in, what is shipped, what the documentation says."""

import contextlib
import importlib.metadata
import io
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import leansvm

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = {"matplotlib", "jinja2", "pooch", "typer", "rich", "pyarrow", "dask", "distributed"}
EXTRAS |= {"torch", "skops", "onnx", "onnxruntime", "skl2onnx"}
LATE = {"pandas", "polars", "numba"}  # frames are the user's; numba compiles at its first use
SLOW = {"numpy", "scipy", "sklearn"}
IGNORED_FOLDERS = {".git", ".venv", "_build", "generated", "build", "dist", "__pycache__"}


def modules_after(*statements):
    """Modules that a fresh interpreter has loaded after each of the statements."""
    show = "import sys, json; print(json.dumps(sorted(sys.modules)))"
    code = "\n".join(f"{statement}; {show}" for statement in statements)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [set(json.loads(line)) for line in done.stdout.splitlines()]


def packages(modules):
    return {name.partition(".")[0] for name in modules}


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
    """Return the Python blocks of a Markdown page, each with the text block right below it."""
    pattern = r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?"
    return re.findall(pattern, page.read_text("utf-8"), re.S | re.M)


def differences(printed, shown):
    """Return what an output has other than a page shows: words, or numbers beyond rounding.

    Numbers may differ by 5 % or by two units of the last digit: linear algebra rounds in other
    ways on other processors.
    """
    number = r"(?<![A-Za-z_])\d+(?:\.\d+)?"
    words = [re.sub(number, "#", text).split() for text in (printed, shown)]
    found = [pair for pair in zip(*words, strict=False) if pair[0] != pair[1]]
    if found or len(words[0]) != len(words[1]):
        return found or [(printed, shown)]
    for a, b in zip(*(re.findall(number, text) for text in (printed, shown)), strict=True):
        unit = 10.0 ** -len(b.partition(".")[2])
        if abs(float(a) - float(b)) > max(0.05 * float(b), 2.01 * unit):
            found.append((a, b))
    return found


def number_said(code):
    """Return the number that the comment behind a last `print` promises; None without one."""
    found = re.search(r"^print\(.*\)  # (\d+\.\d+)\b.*\n\Z", code, re.M)
    return found and found[1]


def is_rounded(printed, said):
    """Whether a number is the printed one, but for a unit of its last digit (see above)."""
    return abs(float(printed) - float(said)) <= 10.0 ** -len(said.partition(".")[2])


def test_a_wrong_number_of_a_comment_is_seen():
    assert number_said('print("accuracy:", score)  # 0.88 on rows\n') == "0.88"
    assert number_said("print(score)  # about 3 rows\n") is None
    assert is_rounded("0.8766666666666667", "0.88") and not is_rounded("0.8766666666666667", "0.86")


def test_differences_of_outputs_are_seen():
    assert differences("80% of  3 rows\n", "81% of 3 rows") == []
    assert differences("age 0.52", "age 0.54") == []
    assert differences("age 0.52", "age 0.57") == [("0.52", "0.57")]
    assert differences("fee 0.5", "age 0.5") == [("fee", "age")]
    assert differences("", "age 0.5") and differences("age 0.5 yes", "age 0.5")


def test_commands_load_little():
    loaded = packages(modules_after("from leansvm.cli._app import app")[0])
    assert not loaded & (EXTRAS | LATE | SLOW) - {"typer", "rich"}


def test_what_is_loaded_and_when():
    import_, svm, names, plotting, inspection, kernels = modules_after(
        "import leansvm",
        "import sklearn.svm",
        "leansvm.kernels.Kernel; leansvm.LSSVC; dir(leansvm)",
        "import leansvm.plotting",
        "import leansvm.inspection, leansvm.export, leansvm.persistence",
        # kernels that can do without compiled loops
        "import numpy; X = numpy.ones((2, 2))\n"
        "from leansvm._compile import uncompiled\n"
        "with uncompiled():\n"
        "    for name in ('laplacian', 'matern32'): leansvm.kernels.Kernel(name).block(X, X)\n"
        "pass",
    )
    assert not packages(import_) & (EXTRAS | LATE | SLOW)
    # names and submodules are found at their first use
    assert {"leansvm.kernels", "leansvm.estimators"} <= names - svm
    # scikit-learn itself loads pandas when it is installed: only count what we add
    for loaded in (names, plotting, inspection, kernels):
        assert not (packages(loaded) - packages(svm)) & (EXTRAS | LATE)


def test_names_of_the_package():
    assert set(leansvm.__all__) <= set(dir(leansvm))
    with pytest.raises(AttributeError, match="module 'leansvm' has no attribute 'nothing'"):
        leansvm.nothing()
    with pytest.raises(AttributeError, match="_nothing"):
        leansvm._nothing()


def test_version_is_consistent():
    assert leansvm.__version__ == importlib.metadata.version("leansvm")
    line = re.compile(r'^(?:__version__|version)\s*[=:]\s*"?(\d[^"\s]*)', re.MULTILINE)
    files = [file for file in repository_files() if file.suffix in {".py", ".toml", ".cff"}]
    found = {f.relative_to(ROOT).as_posix(): line.findall(f.read_text("utf-8")) for f in files}
    assert {name: versions for name, versions in found.items() if versions} == {
        "CITATION.cff": [leansvm.__version__],  # which people read without the build
        "src/leansvm/_version.py": [leansvm.__version__],
    }
    assert f"## [{leansvm.__version__}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


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


def test_no_page_or_message_installs_leansvm_from_an_index():
    # it is in none: `pip install '.[cli]'` in a checkout is what works
    pattern = re.compile(r"pip install\s+(?:-\S+\s+)*[\"'`]*leansvm\b")
    assert pattern.search("pip install --upgrade '" + "leansvm[cli]'")
    texts = [file for file in repository_files() if file.suffix in {".py", ".md", ".toml", ".html"}]
    found = [file for file in texts if pattern.search(file.read_text("utf-8"))]
    assert found == []


def test_messages_about_missing_packages_name_extras_that_have_them():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    call = re.compile(r'\bneeds\("[^"]*", "?([\w.]+)"?, "(\w+)"\)')
    files = sorted((ROOT / "src").rglob("*.py"))
    calls = [found for file in files for found in call.findall(file.read_text("utf-8"))]
    assert len(calls) >= 7
    for package, extra in calls:
        named = [re.match(r"\w+", line).group() for line in project["optional-dependencies"][extra]]
        assert package in named or package == "error.name"  # of a package that was imported


MISSING = {  # what is called without a package, and the extra that the error must name
    "pandas": ("leansvm.datasets.make_customers(10)", "cli"),
    "torch": ("leansvm.to_device(model, 'cuda')", "torch"),
    "pyarrow": ("leansvm.open_dataset('rows.parquet', target='y')", "files"),
    "kmedoids": ("leansvm.SparseLSSVC(basis='medoids', n_basis=2, gamma=1.0).fit(X, y)", "medoids"),
    "onnx": ("leansvm.export.to_onnx(model)", "onnx"),
    "skl2onnx": ("leansvm.export.register_onnx()", "onnx"),
    "matplotlib": ("leansvm.plotting.ImportanceDisplay.from_estimator(model, X, y)", "plot"),
    "jinja2": ("leansvm.plotting.html.render(pathlib.Path('page.html.j2'))", "cli"),
    "pooch": ("leansvm.datasets.download('a1a')", "cli"),
}


def test_a_missing_package_is_an_error_that_names_its_extra():
    code = f"""
import pathlib, sys
import leansvm, leansvm.export, leansvm.plotting.html
X, y = [[0.0], [1.0], [2.0], [3.0]], [0, 1, 1, 0]
model = leansvm.SparseLSSVC(1.0, kernel="rbf", gamma=1.0, n_basis=2).fit(X, y)
for package, (call, extra) in {MISSING!r}.items():
    found, sys.modules[package] = sys.modules.get(package), None  # it cannot be imported now
    try:
        exec(call)
    except ImportError as error:
        print(error)
    del sys.modules[package]
    if found is not None:
        sys.modules[package] = found
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    lines = answer.stdout.splitlines()
    assert len(lines) == len(MISSING), answer.stderr
    for line, (package, (_, extra)) in zip(lines, MISSING.items(), strict=True):
        assert f"needs {package}: run `pip install '.[{extra}]'`" in line


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if python_blocks(page)],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
@pytest.mark.usefixtures("own_folder")
def test_examples_in_the_documentation_run(page, request):
    names, blocks = {"__name__": "example"}, python_blocks(page)
    if not any(shown or number_said(code) for code, shown in blocks):
        request.getfixturevalue("short_search")  # no number of the page depends on them
        request.getfixturevalue("few_points")
    for code, shown in blocks:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, str(page), "exec"), names)
        # a missing text is None with pandas 2 and NaN with pandas 3
        output = printed.getvalue().replace("region_None", "region_nan ")
        assert not shown or differences(output, shown) == []
        said = number_said(code)
        assert not said or is_rounded(output.split()[-1], said)


def test_at_least_forty_snippets_of_the_documentation_run():
    assert sum(len(python_blocks(page)) for page in PAGES) >= 40


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_between_pages_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text("utf-8"))
    local = [link for link in links if not re.match(r"\w+:", link)]
    assert not [link for link in local if not (page.parent / link).exists()]
