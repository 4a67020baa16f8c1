"""What several test modules share."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--virtual-time-budget=20000",
)
# The page lies in a frame of the width to test: a window cannot be made narrower than 500 pixels.
_PROBE = """<!doctype html><meta charset="utf-8">
<iframe id="f" style="border:0;height:900px"></iframe>
<pre id="found"></pre><script>
const frame = document.getElementById("f");
frame.style.width = WIDTH + "px";
frame.onload = () => {
  const page = frame.contentDocument, root = page.documentElement;
  const visible = (e) => e.getBoundingClientRect().width * e.getBoundingClientRect().height > 0;
  const wide = [...page.querySelectorAll("body *")].filter((e) => !e.closest(".scroll, pre, svg")
    && e.getBoundingClientRect().right > WIDTH + 1).map((e) => e.outerHTML.slice(0, 80));
  document.getElementById("found").textContent = JSON.stringify({
    title: page.title, overflow: root.scrollWidth - root.clientWidth, wide,
    tables: [...page.querySelectorAll("table")].filter(visible).length,
    drawings: [...page.querySelectorAll("svg")].filter(visible).length,
    smallest: Math.min(...[...page.querySelectorAll("p, td, li")].map(
      (e) => parseFloat(frame.contentWindow.getComputedStyle(e).fontSize))),
    loaded: frame.contentWindow.performance.getEntriesByType("resource").map((e) => e.name),
  });
};
frame.srcdoc = PAGE;
</script>"""


ROOT = Path(__file__).resolve().parents[1]
_NOT_OURS = {"__pycache__", "_build", "generated", "gallery", "build", "dist"}


def _files_of_the_repository() -> dict[str, int]:
    """When each file was changed last; without hidden folders and what builds leave behind."""
    found = {}
    for folder, subfolders, names in os.walk(ROOT):
        subfolders[:] = [n for n in subfolders if n not in _NOT_OURS and not n.startswith(".")]
        for name in names:
            found[os.path.join(folder, name)] = os.stat(os.path.join(folder, name)).st_mtime_ns
    return found


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Run an example in an empty folder; fail when it wrote into the repository all the same."""
    before = _files_of_the_repository()
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    after = _files_of_the_repository()
    written = [name for name, changed in after.items() if before.get(name) != changed]
    assert not written, "an example wrote into the repository"


@pytest.fixture
def browse(tmp_path: Path) -> Callable[[Path, int], dict[str, Any]]:
    """Open a page in headless Chromium at a width; return what is seen there.

    Keys: title, overflow (pixels beyond the width), wide (elements that stick out), tables and
    drawings (visible), smallest (font size), loaded (resources), console (messages).
    """
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("chromium is not installed (on Debian: apt install chromium)")

    def look(page: Path, width: int) -> dict[str, Any]:
        content = json.dumps(page.read_text(encoding="utf-8")).replace("</", "<\\/")
        probe = tmp_path / f"probe-{width}.html"
        text = _PROBE.replace("WIDTH", str(width)).replace("PAGE", content)
        probe.write_text(text, encoding="utf-8")
        profile = tmp_path / f"profile-{width}"
        done = subprocess.run(
            [program, *_SWITCHES, f"--user-data-dir={profile}", "--dump-dom", probe.as_uri()],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        found = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, flags=re.DOTALL)
        assert found is not None and found[1], f"the page did not load: {done.stderr[-2000:]}"
        messages = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
        unescaped = found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        return {**json.loads(unescaped), "console": messages}

    return look
