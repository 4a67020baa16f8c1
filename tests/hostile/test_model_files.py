"""Crafted model and state files are refused: no crash, no foreign code, little memory and time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("skops")

from tests.hostile import bombs, cases  # noqa: F401  (fill CASES)
from tests.hostile.craft import CASES, save_models
from tests.loops import case

MOST_BYTES, MOST_SECONDS = 100_000_000, 6.0  # an idle processor takes less than one


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What loading each of the files did, all in one process."""
    folder = tmp_path_factory.mktemp("good")
    models = save_models(folder)
    bad = tmp_path_factory.mktemp("bad")
    for name, write in CASES.items():
        write(models, bad / name)
    loader = Path(__file__).with_name("loader.py")
    command = [sys.executable, str(loader), str(models["lssvc"]), str(bad)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    lines = [json.loads(line) for line in run.stdout.splitlines()]
    assert run.returncode == 0, (lines[-1:], run.stderr[-2000:])
    names = [line["file"] for line in lines[::2]]
    return dict(zip(names, lines[1::2], strict=True))


def test_there_are_enough_of_them(found):
    assert found.keys() == CASES.keys() and len(found) >= 250


def test_refused(found):
    for name in CASES:
        with case(file=name):
            outcome = found[name]
            assert outcome["model"].startswith("refused: ")
            assert outcome["facts"].startswith("refused: ") or outcome["facts"] == "taken"
            assert outcome["model"].isprintable()  # nothing that a terminal would obey
            assert outcome["seconds"] <= MOST_SECONDS
            assert outcome["bytes"] <= MOST_BYTES
