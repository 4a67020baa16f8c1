"""The page: every row is on it, it needs nothing else, and a phone can show it."""

import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from leansvm.papers import PAPERS, _charts, write_report
from leansvm.papers._panels import curves, plane
from leansvm.papers._published import paper
from leansvm.papers._report import report, summary
from leansvm.papers._verdict import Verdict, judge, metric

COMMITTED = Path(__file__).parents[2] / "docs" / "reproduction" / "results.json"
_SQUARE = np.array([[1.0, 1.0], [-1.0, -1.0], [1.0, -1.0], [-1.0, 1.0]])


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
        plane("surface", lambda X: X[:, 0], _SQUARE, np.array([1, -1, 1, -1])),
    ]
    figure = {"status": "done", "panels": panels, "findings": [["it <holds>", True]]}
    return {"format": 1, "machine": {}, "rows": rows, "figures": {"fang2019/fig-1": figure}}


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
    assert "@import" not in page and not re.search(r"url\((?!#)", page)
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
    panel = curves("t", "x", "y", {"a": ([1, 10, 100], [0.0, 1.0, 2.0])}, log="y")
    assert _charts.draw(panel).count("h0") == 2


def test_pictures_have_the_colours_of_the_page(page):
    pictures = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    assert "currentColor" in pictures and "var(--pos)" in pictures and "var(--soft)" in pictures
    assert not re.search(r"#01020\d|#000000", pictures)


def test_labels_are_text_and_no_formulas():
    panel = curves("<t>", "$x^{$", "y & z", {"<a>": ([1, 2], [1, 2]), "b$": ([1], [1])}, log="x")
    drawn = _charts.draw(panel)
    assert ">$x^{$</text>" in drawn and ">y &amp; z</text>" in drawn
    assert ">&lt;a&gt;</text>" in drawn and ">b$</text>" in drawn
    assert (
        "<b>&lt;t&gt;</b>" in drawn and 'aria-label="&lt;t&gt;: y &amp; z against $x^{$"' in drawn
    )


CORNERS = np.array([[-2.0, -1.5], [2.0, 1.5]])


def _area(line):
    x, y = np.transpose(line)
    return 0.5 * float(np.sum(x[:-1] * y[1:] - x[1:] * y[:-1]))


def _drawn(function, **options):
    return plane("p", function, CORNERS, np.array([1, -1]), margin=0.0, **options)


def test_a_circle_is_one_closed_line_around_what_is_positive():
    panel = _drawn(lambda X: 1.0 - (X**2).sum(axis=1), levels=(0.0,))
    ((line,), (region,)) = [one["path"] for one in panel["lines"]], panel["positive"]
    np.testing.assert_allclose(line[0], line[-1])
    np.testing.assert_allclose(np.hypot(*np.transpose(line)), 1.0, atol=1e-3)
    assert abs(_area(line)) == pytest.approx(np.pi, rel=2e-3) == abs(_area(region))


def test_a_ring_has_two_lines_and_the_page_fills_between_them(page):
    panel = _drawn(lambda X: 0.25 - (np.hypot(*X.T) - 1.0) ** 2)
    areas = sorted(abs(_area(line)) for line in panel["positive"])
    assert areas == pytest.approx([np.pi * 0.25, np.pi * 2.25 - 0.0], rel=0.1)
    assert "fill-rule: evenodd" in page


def test_a_linear_function_has_a_straight_line_from_edge_to_edge():
    ((line,)) = [one["path"] for one in _drawn(lambda X: X @ [1.0, -0.3], levels=(0.1,))["lines"]]
    np.testing.assert_allclose(np.array(line) @ [1.0, -0.3], 0.1, atol=1e-3)
    assert {line[0][1], line[-1][1]} == {-1.5, 1.5}


@pytest.mark.parametrize(("sign", "area"), [(1.0, 12.0), (-1.0, 0.0)])
def test_one_sign_everywhere_fills_everything_or_nothing(sign, area):
    panel = _drawn(lambda X: np.full(len(X), sign), levels=(0.0,))
    assert panel["lines"] == []
    assert sum(abs(_area(line)) for line in panel["positive"]) == pytest.approx(area)
    assert "<svg" in _charts.draw(panel)


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
                if found.verdict == Verdict.BETTER:
                    assert found.text or row.notes, row.id


def test_every_committed_row_with_a_fit_says_what_was_called(committed):
    measured = {"n_train", "C", "loss_difference"}  # of rows without a fit
    for name, entry in committed["rows"].items():
        if entry["status"] == "done" and not measured & set(entry["metrics"]):
            assert re.match(r"\w*SV[CR]\(.*\)$", entry["called"]), name


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


def test_the_docs_page_begins_with_the_counts_of_the_committed_results(committed):
    page = COMMITTED.parents[1].joinpath("reproduction.md").read_text(encoding="utf-8")
    assert summary(committed) in page.partition("## Run it")[0]
    found = Counter(
        judge(row, table, committed["rows"].get(row.id)).verdict
        for name in PAPERS
        for table in paper(name).tables.values()
        for row in table.rows
    )
    assert found[Verdict.SHORT] == 15 and "Fifteen rows are short" in page
    assert found[Verdict.BETTER] == 31 and "Thirty-one rows are better" in page


def test_the_docs_page_counts_rows_that_are_worse_by_more_than_chance(committed):
    page = COMMITTED.parents[1].joinpath("reproduction.md").read_text(encoding="utf-8")
    within, repeated, worse = 0, 0, 0
    for table in (table for name in PAPERS for table in paper(name).tables.values()):
        for row in table.rows:
            entry = committed["rows"].get(row.id)
            if judge(row, table, entry).verdict != Verdict.WITHIN:
                continue
            (name,) = [m for m in row.published if metric(m).better and m in entry["metrics"]]
            ours = entry["metrics"][name]
            difference = metric(name).better * (row.published[name].mean - ours["mean"])
            within += 1
            if ours["std"] > 1e-9:  # several trials, and they differ
                repeated += 1
                # std * sqrt(n / (n - 1)) / sqrt(n): the standard error of the mean
                worse += difference > 2 * ours["std"] / (ours["n"] - 1) ** 0.5
    words = " ".join(page.split())
    assert f"{repeated} of the {within} rows within tolerance have several trials" in words
    assert f"In {worse} of these {repeated}, our mean is worse" in words
