"""What several test modules share."""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.versions import skip_refused_arrays

try:
    import psutil
except ImportError:  # a plain installation
    psutil = None
try:
    from hypothesis import settings
except ImportError:
    pass
else:  # the same examples in every run, however busy the machine is; `make fuzz` draws its own
    settings.register_profile("same", derandomize=True, deadline=None, database=None)
    settings.load_profile("same")

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


# what takes longest, that first: sum up `--durations=0` by file to see what has to be added
_LONG_FILES = (
    "tests/test_common.py",
    "tests/test_package.py",
    "tests/cli/test_commands.py",
    "tests/cli/test_report.py",
    "tests/learning/test_learn.py",
    "tests/sources/test_dask.py",
    "tests/newton/test_solver.py",
    "tests/sources/test_sparse_sources.py",
    "tests/hostile/test_model_files.py",
    "tests/basis/cholesky/test_greedy.py",
    "tests/fuzz/test_fuzz.py",
    "tests/estimators/test_defaults.py",
    "tests/kernels/test_layouts.py",
    "tests/sources/test_reads.py",
    "tests/estimators/test_low_rank.py",
    "tests/test_gallery.py",
    "tests/basis/test_random_pivoted.py",
    "tests/export/test_extremes.py",
    "tests/estimators/test_l2svc.py",
    "tests/dual/test_smo.py",
    "tests/estimators/test_calibration.py",
    "tests/estimators/test_lssvm_memory.py",
    "tests/inspection/test_effects.py",
    "tests/test_budgets.py",
    "tests/test_compile.py",
    "tests/papers/test_runner.py",
    "tests/estimators/test_rare_classes.py",
)
ROOT = Path(__file__).resolve().parents[1]
_started: dict[str, float] = {}  # clock, processor time of all programs, and ours


def _clocks() -> dict[str, float]:
    """Seconds so far: on the clock, of the processors for all programs, and of them for us."""
    times = psutil.cpu_times()
    busy = times.user + times.system + getattr(times, "nice", 0.0) + getattr(times, "steal", 0.0)
    return {"clock": time.monotonic(), "all": busy, "ours": sum(os.times()[:4])}


def pytest_configure(config: pytest.Config) -> None:
    if psutil is not None and not hasattr(config, "workerinput"):
        _started.update(_clocks())
    if hasattr(config.option, "loadscopereorder"):  # pytest-xdist 3.7 or newer
        config.option.loadscopereorder = False


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the files that take longest: else one process waits for them at the end.

    pytest-xdist would start with the files of most tests, and short tests are the many ones.
    """
    places = {name: place for place, name in enumerate(_LONG_FILES)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    with skip_refused_arrays():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    with skip_refused_arrays():
        return (yield)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how much of the machine others had: the seconds of a busy one are no measurement."""
    if not _started:
        return
    spent = {name: now - _started[name] for name, now in _clocks().items()}
    processors = os.cpu_count() or 1
    others = max(spent["all"] - spent["ours"], 0.0) / (processors * spent["clock"])
    text = f"{spent['ours']:.0f} s of processor time; other programs had {others:.0%} of the"
    terminalreporter.write_line(f"{text} {processors} processors meanwhile")
    if others > 0.2:
        terminalreporter.write_line("the machine was busy: alone, this takes less time")


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
def short_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """End every search for a kernel after one step: for tests of all but what it finds."""
    from leansvm.learning import search

    full = search.descend
    monkeypatch.setattr(
        search, "descend", lambda goal, x, steps, pairs: full(goal, x, min(steps, 1), pairs)
    )


@pytest.fixture
def few_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``n_basis="auto"`` end at 300 points: for tests of all but what is found."""
    monkeypatch.setattr("leansvm.ridge.primal._MOST_POINTS", 300)


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
