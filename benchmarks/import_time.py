"""Start of a process: `import leansvm`, its estimators, and the command line, fresh each time.

Imports are compared with ``import sklearn.svm``, ``leansvm predict`` on 1,000 rows with a process
that imports scikit-learn's SVMs and reads the same file with pandas. Of imports the child reports
the seconds of the import alone; the interpreter's own start would hide part of the difference.
Compiled bytecode is there for all of them, as after an installation.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from ._harness import Options, Report, Summary, ratio, time_interleaved

IMPORTS = {
    "import leansvm": "import leansvm",
    "from leansvm import SparseLSSVC": "from leansvm import SparseLSSVC",
    "import sklearn.svm": "import sklearn.svm",
}
CODE = "import time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"
READS = "import sklearn.svm, pandas; pandas.read_csv('rows.csv')"
REFERENCE = "sklearn.svm and pandas.read_csv"


def run(options: Options) -> Report:
    """Time imports and commands in fresh interpreters, in turns."""
    repeats = options.pick(7, 3)
    report = Report("import_time", f"fresh interpreters, {repeats} each", options)
    with tempfile.TemporaryDirectory() as folder:
        _imports(report, repeats, Path(folder))
        _commands(report, repeats, Path(folder))
    return report


def _imports(report: Report, repeats: int, folder: Path) -> None:
    walls = time_interleaved(
        {name: lambda code=code: _import(code, folder) for name, code in IMPORTS.items()},
        repeats=repeats,
        keep=float,
    )
    imports = {name: Summary(wall.kept) for name, wall in walls.items()}
    report.add_timings("import", imports)
    report.add_timings("whole process", walls)
    for name, seconds in imports.items():
        relative = ratio(seconds, imports["import sklearn.svm"])
        report.rows.append(
            {
                "process": name,
                "import [s]": f"{seconds:.3f}",
                "whole process [s]": f"{walls[name]:.3f}",
                "ratio": f"{relative:.2f}",
            }
        )
    relative = ratio(imports["from leansvm import SparseLSSVC"], imports["import sklearn.svm"])
    report.at_most("estimators / import sklearn.svm", relative.median, 1.5)


def _commands(report: Report, repeats: int, folder: Path) -> None:
    _write_rows(folder / "rows.csv")
    leansvm = ["-m", "leansvm.cli"]
    train = ["train", "rows.csv", "-t", "y", "-o", "model.skops", "--cv", "0"]
    _python([*leansvm, *train, "-e", "sparse", "-s", "n_basis=200"], folder)
    commands = {
        "leansvm --help": [*leansvm, "--help"],
        "leansvm info": [*leansvm, "info", "model.skops"],
        "leansvm predict": [*leansvm, "predict", "model.skops", "rows.csv", "-o", "p.csv"],
        REFERENCE: ["-c", READS],
    }
    walls = time_interleaved(
        {
            name: lambda command=command: _python(command, folder)
            for name, command in commands.items()
        },
        repeats=repeats,
    )
    report.add_timings("commands", walls)
    for name, wall in walls.items():
        relative = ratio(wall, walls[REFERENCE])
        row = {"process": name, "whole process [s]": f"{wall:.3f}", "ratio": f"{relative:.2f}"}
        report.rows.append(row)
    relative = ratio(walls["leansvm predict"], walls[REFERENCE])
    report.at_most(f"leansvm predict, 1,000 rows / {REFERENCE}", relative.median, 1.5)
    report.at_most("leansvm --help, s", walls["leansvm --help"].median, 0.4)


def _write_rows(path: Path) -> None:
    """Write 1,000 rows of 20 features and two classes."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 20))
    labels = np.where(X[:, 0] * X[:, 1] + 0.2 * rng.standard_normal(1000) > 0, "yes", "no")
    header = ",".join([*(f"x{i}" for i in range(20)), "y"])
    lines = [
        ",".join([*(f"{v:.6g}" for v in x), label]) for x, label in zip(X, labels, strict=True)
    ]
    path.write_text("\n".join([header, *lines]) + "\n", "utf-8")


def _import(code: str, folder: Path) -> float:
    return float(_python(["-c", CODE.format(code)], folder))


def _python(arguments: list[str], folder: Path) -> str:
    """Run an interpreter in the folder, which also keeps the bytecode; return what it printed."""
    environment = os.environ | {"PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    source = str(Path(__file__).resolve().parent.parent / "src")
    environment["PYTHONPATH"] = os.pathsep.join([source, environment.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *arguments],
        check=True,
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
    )
    return done.stdout
