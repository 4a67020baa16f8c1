"""README, first page and benchmarks say what the result files say."""

import re
from pathlib import Path

import pytest

from benchmarks import front, tabular_figures

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/index.md", "docs/benchmarks.md")


@pytest.mark.parametrize("page", PAGES)
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
    shown = re.findall(r"<!-- ([a-z ]+): begin -->", "".join(map(_text, PAGES)))
    assert set(front.PARTS) <= set(shown)


def test_a_page_that_says_something_else_is_noticed():
    text = _text("README.md")
    ours = "| **leansvm**, defaults | "
    wrong = re.sub(re.escape(ours) + r"[\d.]+", ours + "100.0", text)
    assert wrong != text and front.filled(wrong) == text


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
