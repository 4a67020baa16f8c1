"""Versions of scikit-learn and Python: one place knows them, and what is promised is tested."""

import inspect
import re
import tomllib
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement
from sklearn.base import BaseEstimator

import leansvm
from leansvm import LSSVC, _sklearn, basis, model_selection
from leansvm.papers import baselines

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_one_module_knows_the_versions():
    inside = re.compile(r"sklearn\.(callback|externals)|__version__\s*[<>]|parse_version")
    files = [f for f in (ROOT / "src").rglob("*.py") if inside.search(f.read_text("utf-8"))]
    assert [file.name for file in files] == ["_sklearn.py"]


# ---------------------------------------------------------------------------- callbacks


class Without(_sklearn._NoCallbacks):
    """Goes before the mixin that the installed version has."""


class WithoutCallbacks(Without, LSSVC):
    """As `LSSVC` is where scikit-learn has no callbacks."""


def test_callbacks_are_refused_with_the_version_that_has_them():
    model = WithoutCallbacks()
    assert not hasattr(model, "set_callbacks")
    with pytest.raises(AttributeError) as refusal:
        model.set_callbacks()
    assert "Callbacks need scikit-learn 1.9" in str(refusal.value.__cause__)


@pytest.mark.parametrize("solver", ["cholesky", "cg"])
def test_fits_without_callbacks_are_the_same(solver):
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = X[:, 0] > 0
    expected = LSSVC(solver=solver).fit(X, y)
    model = WithoutCallbacks(solver=solver).fit(X, y)
    np.testing.assert_array_equal(model.dual_coef_, expected.dual_coef_)
    assert model.n_iter_ == expected.n_iter_


def test_steps_without_callbacks_never_stop():
    context = WithoutCallbacks()._init_callback_context(max_subtasks=None)
    task = context.subcontext(task_name="step")
    task.call_on_fit_task_begin(estimator=None)
    assert task.call_on_fit_task_end(estimator=None) is False


# ---------------------------------------------------------------------------- array API


def test_other_array_libraries_are_refused_with_the_version_that_has_them(monkeypatch):
    monkeypatch.setattr(_sklearn, "VERSION", (1, 6))
    with pytest.raises(ImportError, match=r"Arrays of other libraries need scikit-learn 1\.7"):
        _sklearn.array_api_compat()


# ---------------------------------------------------------------------------- links


def documented():
    """Estimators and selectors, each with the module from which it is imported."""
    places = {"leansvm": leansvm, "leansvm.basis": basis, "leansvm.papers.baselines": baselines}
    for module, place in {**places, "leansvm.model_selection": model_selection}.items():
        for name in place.__all__:
            thing = getattr(place, name)
            public = inspect.isclass(thing) and issubclass(thing, BaseEstimator)
            if public and not inspect.isabstract(thing) and name != "BasisSelector":
                yield module, thing


@pytest.mark.parametrize(("module", "thing"), list(documented()), ids=lambda value: str(value))
def test_the_html_view_links_to_a_page_of_the_documentation(module, thing, monkeypatch):
    monkeypatch.setattr(_sklearn, "documentation", lambda: "https://docs.example/{x}")
    estimator = thing()
    link = f"https://docs.example/{{x}}/generated/{module}.{thing.__name__}.html"
    assert estimator._get_doc_link() == link
    assert link in estimator._repr_html_()
    page = f"{module}.{thing.__name__}".removeprefix("leansvm.")
    pages = (ROOT / "docs" / "api").glob("*.md")
    assert any(f"\n   {page}\n" in file.read_text("utf-8") for file in pages)


def test_no_documentation_no_link(monkeypatch):
    monkeypatch.setattr(_sklearn, "documentation", lambda: "")
    assert LSSVC()._get_doc_link() == ""


def test_the_address_is_that_of_the_package_or_of_the_built_pages(monkeypatch, tmp_path):
    class Facts:
        found: list[str] | None = None

        def get_all(self, name):
            return self.found if name == "Project-URL" else None

    facts = Facts()
    monkeypatch.setattr(_sklearn, "metadata", lambda name: facts)
    monkeypatch.setattr(_sklearn, "__file__", str(tmp_path / "src" / "leansvm" / "_sklearn.py"))
    assert _sklearn.documentation() == ""
    pages = tmp_path / "docs" / "_build" / "html"
    pages.mkdir(parents=True)
    (pages / "index.html").touch()
    assert _sklearn.documentation() == pages.resolve().as_uri()
    facts.found = ["Source, https://code.example", "Documentation, https://docs.example/en/"]
    assert _sklearn.documentation() == "https://docs.example/en"


# ---------------------------------------------------------------------------- what is promised


def test_the_oldest_versions_are_those_of_the_tests():
    project = PYPROJECT["project"]
    tools = {"hatchling", "import-linter", "mypy", "ruff"}
    extras = dict(project["optional-dependencies"])
    del extras["docs"], extras["torch"]  # the latter needs a later scikit-learn
    promised = {}
    for line in [*project["dependencies"], *chain(*extras.values())]:
        needed = Requirement(line)
        (bound,) = needed.specifier
        assert bound.operator == ">=", line
        assert promised.setdefault(needed.name, bound.version) == bound.version, line
    tested = {}
    for line in (ROOT / "tests" / "oldest.txt").read_text("utf-8").splitlines():
        if not line.startswith("#"):
            name, _, version = line.partition("==")
            tested[name] = re.sub(r"(\.0)+$", "", version)
    ours = {name: re.sub(r"(\.0)+$", "", v) for name, v in promised.items() if name not in tools}
    assert tested == ours


def test_workflows_cover_the_promised_versions_of_python():
    name = "Programming Language :: Python :: 3."
    promised = [c for c in PYPROJECT["project"]["classifiers"] if c.startswith(name)]
    (matrix,) = re.findall(r"python: \[(.*)\]", (WORKFLOWS[0]).read_text("utf-8"))
    assert [f'"3.{c.removeprefix(name)}"' for c in promised] == matrix.split(", ")
    assert PYPROJECT["project"]["requires-python"] == ">=" + matrix.split('"')[1]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_and_there_are_no_secrets(workflow):
    text = workflow.read_text("utf-8")
    used = re.findall(r"uses: (.*)", text)
    assert used
    pinned = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v.*")
    assert not [line for line in used if not pinned.fullmatch(line)]
    assert "secrets." not in text and "password" not in re.sub(r"#.*", "", text)
