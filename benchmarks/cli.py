"""Seconds of `leansvm train` and `leansvm tune` as a user waits for them, and of Ctrl-C.

Whole processes on files: reading, fit, estimate of accuracy, model file. They find bytecode, as an
installed package has it. The estimate is compared with rows that were held back, since it is that
of left-out rows of the fit itself.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import make_classification

from ._harness import Options, Report, time_interleaved

_INTERRUPTS = (0.5, 1.5, 3.0, 5.0)  # seconds after the file was read


def run(options: Options) -> Report:
    """Train on 5,000 rows of 53 columns, tune on 3,000 of 8, interrupt a fit."""
    big, middle = options.pick((5000, 53), (400, 8)), options.pick((3000, 8), (300, 4))
    report = Report("cli", f"whole processes, {options.pick(3, 1)} each", options)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        _write(folder, "big", *big)
        _write(folder, "middle", *middle)
        walls = time_interleaved(
            {
                "train": lambda: _estimate(folder, "train", "big"),
                "tune": lambda: _estimate(folder, "tune", "middle"),
                "--help": lambda: len(_process(folder, "--help").communicate()[0]),
            },
            repeats=options.pick(3, 1),
            keep=float,
        )
        report.add_timings("whole process", walls)
        for command, name, shape in (("train", "big", big), ("tune", "middle", middle)):
            estimate, held = walls[command].kept[-1], _held_back(folder, name)
            report.rows.append(
                {
                    "what": f"{command}, {shape[0]:,} x {shape[1]}",
                    "seconds": f"{walls[command]:.2f}",
                    "estimate, held-back rows [%]": f"{estimate:.1f}, {held:.1f}",
                }
            )
        answers = [_interrupt(folder, wait) for wait in options.pick(_INTERRUPTS, (0.5,))]
    shown = ", ".join(f"{seconds:.2f}" for seconds in answers)
    report.rows.append({"what": "answer to Ctrl-C", "seconds": shown})
    report.at_most(f"train on {big[0]:,} x {big[1]} rows [s]", walls["train"].median, 6.0)
    report.at_most(f"tune on {middle[0]:,} x {middle[1]} rows [s]", walls["tune"].median, 20.0)
    report.at_most("start: --help [s]", walls["--help"].median, 0.4)
    report.at_most("longest answer to Ctrl-C [s]", max(answers), 1.0)
    return report


def _write(folder: Path, name: str, n_rows: int, n_columns: int) -> None:
    """Write a file to train on and one of held-back rows."""
    X, y = make_classification(
        2 * n_rows,
        n_columns,
        n_informative=n_columns // 4 + 2,
        n_redundant=0,
        flip_y=0.05,
        random_state=0,
    )
    table = np.column_stack([X.round(4).astype(str), np.where(y, "yes", "no")])
    header = ",".join([f"x{j}" for j in range(n_columns)] + ["y"])
    for part, rows in (("", table[:n_rows]), ("-new", table[n_rows:])):
        text = "\n".join([header, *map(",".join, rows)]) + "\n"
        (folder / f"{name}{part}.csv").write_text(text)


def _process(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "leansvm.cli", *arguments]
    environment = os.environ | {"PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True
    )


def _estimate(folder: Path, command: str, name: str) -> float:
    """Return the accuracy that the command estimates, in per cent."""
    arguments = (command, f"{name}.csv", "-t", "y", "-o", f"{name}.model", "--json")
    result, errors = _process(folder, *arguments).communicate()
    assert result, errors
    return 100 * json.loads(result)["evaluation"]["score"]


def _held_back(folder: Path, name: str) -> float:
    """Return the accuracy on rows that were held back, in per cent."""
    arguments = ("predict", f"{name}.model", f"{name}-new.csv", "--json")
    result, errors = _process(folder, *arguments).communicate()
    assert result, errors
    return 100 * json.loads(result)["accuracy"]


def _interrupt(folder: Path, wait: float) -> float:
    """Return seconds between Ctrl-C and the end of the process."""
    process = _process(folder, "train", "big.csv", "-t", "y", "-o", "no.model")
    assert process.stderr is not None
    process.stderr.readline()
    time.sleep(wait)
    start = time.perf_counter()
    process.send_signal(signal.SIGINT)
    process.communicate()
    return time.perf_counter() - start
