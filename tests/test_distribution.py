"""The sdist is complete; the wheel built from it has every file and works where nothing else is."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

import leansvm

ROOT = Path(__file__).resolve().parents[1]
# run inside the empty environment, far from the checkout
FIRST_STEPS = """
import sys
from pathlib import Path
import leansvm
from leansvm.papers._published import PAPERS, paper

home = Path(leansvm.__file__).resolve().parent
assert Path(sys.prefix).resolve() in home.parents, home
assert leansvm.LSSVC().fit([[0.0], [1.0]], [0, 1]).predict([[0.9]]) == 1
assert all(paper(name).tables for name in PAPERS)
print(leansvm.__version__)
"""


def run(*command, cwd):
    environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "PYTHONHOME"}}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the sdist of the checkout, and the wheel from that sdist; return their paths."""
    pytest.importorskip("hatchling", reason="hatchling builds the package")
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder), "--target"]
    run(*build, "sdist", cwd=ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    run(*build, "wheel", cwd=folder / sdist.name.removesuffix(".tar.gz"))
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def shipped(folder):
    """Files of a folder of the repository, without what running them leaves behind."""
    ours = (p for p in (ROOT / folder).rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return {path.relative_to(ROOT).as_posix() for path in ours}


def test_the_wheel_has_every_file_of_the_package(built):
    with zipfile.ZipFile(built[1]) as archive:
        names = archive.namelist()
    package = {f"src/{name}" for name in names if name.startswith("leansvm/")}
    assert package == shipped("src/leansvm")
    assert "leansvm/py.typed" in names
    assert {Path(name).suffix for name in names} >= {".py", ".json"}  # the papers' numbers
    rest = {name.partition("/")[2] for name in names if not name.startswith("leansvm/")}
    assert rest == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}


def test_the_sdist_has_what_the_tests_need(built):
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert shipped("src") | shipped("tests") | shipped("examples") <= names
    assert {"pyproject.toml", "Makefile", "README.md", "LICENSE", "CHANGELOG.md"} <= names


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_environment(built, tmp_path):
    pytest.importorskip("pip", reason="pip installs the wheel")
    empty = tmp_path / "empty"
    run(sys.executable, "-m", "venv", "--without-pip", str(empty), cwd=tmp_path)
    scripts = empty / ("Scripts" if os.name == "nt" else "bin")
    python = str(scripts / "python")
    offline = ["--no-deps", "--no-index", "--disable-pip-version-check", "--quiet"]
    pip = [sys.executable, "-m", "pip", "--python", python, "install", *offline]
    run(*pip, str(built[1]), cwd=tmp_path)
    # the packages that leansvm needs are taken from here: a path, so that no package of this
    # environment is installed there, and none of its .pth files (an editable leansvm) is read
    (home,) = empty.rglob("site-packages")
    paths = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    (home / "needed.pth").write_text("\n".join(sorted(paths)), encoding="utf-8")
    assert run(python, "-I", "-c", FIRST_STEPS, cwd=tmp_path).split() == [leansvm.__version__]
    if find_spec("typer") is not None:
        command = str(scripts / "leansvm")
        assert run(command, "--version", cwd=tmp_path).split() == [leansvm.__version__]
