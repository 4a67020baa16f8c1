"""The page: every row is on it, it needs nothing else, and a phone can show it."""

import json
import re
from pathlib import Path

import pytest

from leansvm.papers import PAPERS, _charts, write_report
from leansvm.papers._panels import curves, plane
from leansvm.papers._published import paper
from leansvm.papers._report import report
from leansvm.papers._verdict import Verdict, judge

COMMITTED = Path(__file__).parents[2] / "docs" / "reproduction" / "results.json"


def _results():
    """Every row as the paper prints it, and one figure."""
    rows = {}
    for name in PAPERS:
        for table in paper(name).tables.values():
            for row in table.rows:
                metrics = {
                    m: {"mean": p.mean, "std": 0.1, "n": 3} for m, p in row.published.items()
                }
                rows[row.id] = {"status": "done", "metrics": metrics, "seconds": 1.0, "run": {}}
    panels = [
        curves("lines", "x", "y", {"a": ([1, 10, 100], [1, 0.1, 0.01]), "b": ([1], [0])}, log="xy"),
        plane("surface", lambda X: X[:, 0], _square(), [1, -1, 1, -1] @ _eye()),
    ]
    figure = {"status": "done", "panels": panels, "findings": [["it <holds>", True]]}
    return {"format": 1, "machine": {}, "rows": rows, "figures": {"fang2019/fig-1": figure}}


def _square():
    import numpy as np

    return np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])


def _eye():
    import numpy as np

    return np.eye(4)


@pytest.fixture(scope="module")
def page():
    return report(_results())


def test_every_table_is_there(page):
    n_tables = sum(len(paper(name).tables) for name in PAPERS)
    assert page.count("<table>") == n_tables + 1
    n_rows = sum(len(t.rows) for name in PAPERS for t in paper(name).tables.values())
    assert page.count('<span class="badge') >= n_rows
    for name in PAPERS:
        for figure in paper(name).figures:
            assert f'id="{name}-{figure}-drawing"' in page


def test_the_page_needs_nothing_else(page):
    assert not re.search(r'(src|href)="(?!#|data:)', page)
    assert "@import" not in page and "url(" not in page
    assert "<script" not in page


def test_every_verdict_has_a_button_and_every_row_a_verdict(page):
    buttons = set(re.findall(r'id="show-([\w-]+)"', page))
    rules = set(re.findall(r"body:has\(#show-([\w-]+):checked\)", page))
    verdicts = set(re.findall(r'<tr data-verdict="([\w-]+)">', page))
    assert rules == buttons - {"all"}
    assert {"reached", "measured", "quoted"} <= verdicts <= rules | {"beside"}
    n_rows = sum(len(t.rows) for name in PAPERS for t in paper(name).tables.values())
    assert page.count("<tr data-verdict=") == n_rows


def test_text_is_escaped(page):
    assert "it &lt;holds&gt;" in page


def test_ids_are_unique(page):
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    for target in re.findall(r'href="#([^"]+)"', page):
        assert target in ids


def test_an_empty_folder_gives_a_page(tmp_path):
    path = write_report(tmp_path)
    assert "Not run yet." in path.read_text(encoding="utf-8")


def test_logarithmic_axes_leave_out_what_they_cannot_show():
    panel = curves("t", "x", "y", {"a": ([1, 10], [0.0, 1.0])}, log="y")
    assert _charts.draw(panel).count("h0") == 1


def test_the_page_in_a_browser(browse, page, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(page, encoding="utf-8")
    for width in (400, 1200):
        seen = browse(path, width)
        assert seen["console"] == []
        assert seen["overflow"] == 0, seen["wide"]
        assert seen["wide"] == []
        assert seen["tables"] == page.count("<table>")
        assert seen["drawings"] == page.count("<svg")
        assert seen["smallest"] >= 12
        assert seen["loaded"] == []


# ------------------------------------------------------------------ the committed results


@pytest.fixture(scope="module")
def committed():
    if not COMMITTED.exists():
        pytest.skip("docs/reproduction is not part of this installation")
    return json.loads(COMMITTED.read_text(encoding="utf-8"))


def test_every_committed_row_is_reached_or_explained(committed):
    for name in PAPERS:
        for table in paper(name).tables.values():
            for row in table.rows:
                found = judge(row, table, committed["rows"].get(row.id))
                assert found.verdict != Verdict.FAILED, row.id
                if found.verdict in (Verdict.SHORT, Verdict.NOT_RUN):
                    assert found.text and found.text != "Not run yet.", row.id


def test_every_committed_figure_is_drawn(committed):
    for name in PAPERS:
        for figure in paper(name).figures.values():
            assert committed["figures"][figure.id]["status"] == "done", figure.id


def test_the_committed_page_in_a_browser(browse, committed):
    path = COMMITTED.with_name("report.html")
    seen = browse(path, 400)
    assert seen["console"] == []
    assert seen["overflow"] == 0, seen["wide"]
    assert seen["drawings"] > 40
    assert seen["loaded"] == []
