"""The page of the example predicts in Chromium what the model predicts in Python."""

import html
import importlib
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        browser = importlib.import_module("browser")
    model, X, y = browser.fitted()
    path = tmp_path_factory.mktemp("page") / "digits.html"
    path.write_text(browser.page(model, X, y), encoding="utf-8")
    return model, X, path


def test_the_page_predicts(page, tmp_path):
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("chromium is not installed (on Debian: apt install chromium)")
    model, X, path = page
    switches = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=10000"]
    done = subprocess.run(
        [program, *switches, f"--user-data-dir={tmp_path}", "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    dom = html.unescape(done.stdout)
    assert "20 of 20 predictions are the same as in Python." in dom
    assert f'<output id="label">{model.predict(X[:1])[0]}</output>' in dom
    widths = [float(width) for width in re.findall(r'<i style="width: ?([\d.]+)%', dom)]
    assert np.abs(np.array(widths) / 100 - model.predict_proba(X[:1])[0]).max() < 0.05
    assert dom.count("<button") == 64 + 1 + 20


def test_it_fits_on_phones(page, browse):
    seen = browse(page[2], 400)
    assert seen["title"] == "Digits"
    assert seen["overflow"] <= 0
    assert not seen["wide"]
    assert not seen["loaded"]
    assert not seen["console"]


def test_the_page_is_small(page):
    assert page[2].stat().st_size < 60_000
