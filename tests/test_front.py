"""The pages say what the result files say."""

import json
import re
from pathlib import Path

import pytest

from benchmarks import front, goals, tabular_figures

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("page", front.PAGES)
def test_tables_are_those_of_the_results(page):
    text = (ROOT / page).read_text("utf-8")
    assert front.filled(text) == text, "run: python -m benchmarks.front"


def test_the_long_table_is_that_of_the_results():
    found = tabular_figures.markdown(front.read("tabular-cells"))
    assert found in _text("docs/benchmarks.md"), "run: python -m benchmarks.tabular_figures"


def test_the_first_page_has_the_example_of_the_readme():
    # it runs once, as the README's: tests/test_package.py
    (example,) = re.findall(r"^```python\n(.*?)^```", _text("README.md"), re.S | re.M)
    assert f"```py\n{example}```" in _text("docs/index.md")


def test_every_part_is_shown_somewhere():
    shown = re.findall(r"<!-- ([a-z0-9 ]+): begin -->", "".join(map(_text, front.PAGES)))
    assert set(front.PARTS) <= set(shown)


def test_a_page_that_says_something_else_is_noticed():
    text = _text("README.md")
    ours = "| **leansvm**, defaults | "
    wrong = re.sub(re.escape(ours) + r"[\d.]+", ours + "100.0", text)
    assert wrong != text and front.filled(wrong) == text


def test_every_missed_goal_is_listed_in_bold():
    section = _text("docs/benchmarks.md").partition("<!-- goals: begin -->")[2]
    before_the_list = section.partition("<details>")[0]
    found = [(report, target) for report in goals.reports() for target in goals.missed(report)]
    for report, target in found:
        measured = re.escape(goals._number(target["measured"]))
        row = rf"\| `{report['benchmark']}` \| {re.escape(target['what'])} \| \*\*{measured}\*\* \|"
        assert re.search(row, before_the_list)
    assert before_the_list.count("| **") == len(found)


def test_a_goal_that_becomes_missed_changes_the_page(tmp_path):
    met = {"what": "a | b", "measured": "1.2e+03", "goal": ">= 1000", "met": "True"}
    late = {"what": "seconds", "measured": "3", "goal": "<= 2", "met": False}
    report = {"benchmark": "one", "title": "two", "quick": False, "targets": [met, late]}
    (tmp_path / "one.json").write_text(json.dumps(report))
    (tmp_path / "one-quick.json").write_text(json.dumps(report | {"quick": True}))
    (tmp_path / "some-cells.json").write_text("{}")
    text = goals.shown(goals.reports(tmp_path))
    assert text.startswith("**1 of 2 goals are met**, in 1 benchmark")
    assert text.count("| `one` | seconds | **3** | ≤ 2 |") == 2
    assert text.count(r"| `one` | a \| b | 1,200 | ≥ 1000 |") == 1
    report["targets"] = [met]
    assert "No goal is missed." in goals.shown([report])


@pytest.mark.parametrize("both", [None, "3.21"])
def test_probabilities_of_both_are_compared_if_they_were_measured(monkeypatch, both):
    report, what = goals._read("l2svc_speed"), "L2SVC / SVC, both with probabilities"
    report["targets"] = [t for t in report["targets"] if not t["what"].startswith(what)]
    if both is not None:
        report["targets"].append({"what": f"{what}, median of the suite", "measured": both})
    monkeypatch.setattr(goals, "_read", lambda name: report)
    assert ("the median is 3.21 times" in " ".join(goals.against_svc().split())) == bool(both)


def test_the_picture_shows_every_table():
    differences = front.differences(front.read("tabular-cells"))
    assert len(differences) >= 28
    # one label and one name for each bar: glyphs drawn as paths keep their text as comments
    comments = set(re.findall(r"<!-- (.*?) -->", front.PICTURE.read_text("utf-8")))
    assert set(differences) <= comments
    shown = {f"{value:+.1f}".replace("-", "−") for value in differences.values()}
    assert shown <= {text.replace("-", "−") for text in comments}


def _text(page):
    return (ROOT / page).read_text("utf-8")
