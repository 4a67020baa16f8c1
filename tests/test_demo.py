"""The demo on a few rows: every model runs, and the page shows them all."""

import importlib
import re
from pathlib import Path

import pytest

for module in ("matplotlib", "jinja2", "pandas"):
    pytest.importorskip(module)

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def demo():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        yield importlib.import_module("demo")


@pytest.fixture(scope="module")
def results(demo):
    tasks = [demo.customers(150), demo.irrelevant(150), demo.checkerboard(14), demo.steps(120)]
    return list(demo.run(tasks))


@pytest.fixture(scope="module")
def page(demo, results):
    return demo.page(results, "a note")


def test_every_task_has_scikit_learns_models_and_ours(results):
    ours = [result.model for result in results if result.ours]
    assert ours == ["SparseLSSVC()", "SparseLSSVR()", "SparseLSSVC()", "SparseLSSVR()"]
    assert [r.task.name for r in results].count("checkerboard") == 3
    for result in results:
        assert -100 < result.score <= 100 and result.n_bytes > 0
        assert (result.n_points is None) == (result.model == "HistGradientBoosting")


def test_the_table_names_every_model_and_score(demo, results):
    lines = [demo.table_row(result) for result in results]
    for result, text in zip(results, lines, strict=True):
        assert re.search(rf"{re.escape(result.model)} +{result.score:.1f} ", text)
        assert (result.task.name in text) == result.ours
    assert {len(line) for text in lines for line in text.split("\n")} == {
        len(demo.table_line(demo.COLUMNS))
    }


def test_the_first_sentence_counts_what_the_table_shows(demo, results):
    groups = [results[i : i + 3] for i in range(0, len(results), 3)]  # ours, SVC or SVR, trees
    best = sum(group[0].score >= max(r.score for r in group) for group in groups)
    even = sum(group[0].score >= group[2].score for group in groups)
    text = demo.headline(results)
    assert f"most accurate on {best} of 4 data sets" in text
    assert f"as good as HistGradientBoosting on {even}." in text
    trees = sum(group[2].predict_seconds for group in groups)
    assert f"HistGradientBoosting {trees:.2f}\N{NO-BREAK SPACE}s. Training" in text


def test_the_page_shows_importance_surfaces_and_scores(page, results):
    assert page.count("<figure>") == 3 + 1 + 3  # importance, training points, decision surfaces
    assert page.count("<image ") == 3
    assert 0 < page.index("when one column is shuffled") < page.index("<table>")
    for result in results:
        assert f"{result.score:.1f} %" in page


def test_the_page_needs_nothing_else(page):
    assert not re.search(r'(src|href)="(?!#|data:)', page)
    assert "@import" not in page and "url(http" not in page and "<script" not in page


def test_a_phone_shows_the_page(page, tmp_path, browse):
    (tmp_path / "demo.html").write_text(page, encoding="utf-8")
    seen = browse(tmp_path / "demo.html", 400)
    assert seen["overflow"] == 0 and seen["wide"] == []
    assert seen["tables"] == 1 and seen["drawings"] == 7
    assert seen["console"] == [] and seen["loaded"] == []
