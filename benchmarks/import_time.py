"""Time of `import leansvm` against `import sklearn.svm`, each in fresh interpreters.

The child reports the seconds of the import alone; the interpreter's own start would hide part of
the difference. The wall time of the whole process is shown beside it.
"""

import subprocess
import sys

from ._harness import Options, Report, Summary, ratio, time_interleaved

MODULES = ("leansvm", "sklearn.svm")
CODE = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"


def run(options: Options) -> Report:
    """Import each module in fresh interpreters, in turns."""
    repeats = options.pick(7, 3)
    walls = time_interleaved(
        {module: lambda module=module: _import(module) for module in MODULES},
        repeats=repeats,
        keep=float,
    )
    imports = {module: Summary(wall.kept) for module, wall in walls.items()}
    report = Report("import_time", f"fresh interpreters, {repeats} each", options)
    report.add_timings("import", imports)
    report.add_timings("whole process", walls)
    for module in MODULES:
        relative = ratio(imports[module], imports["sklearn.svm"])
        report.rows.append(
            {
                "module": module,
                "import [s]": f"{imports[module]:.3f}",
                "whole process [s]": f"{walls[module]:.3f}",
                "ratio to sklearn.svm": f"{relative:.2f}",
            }
        )
    relative = ratio(imports["leansvm"], imports["sklearn.svm"])
    report.at_most("import leansvm / import sklearn.svm", relative.median, 1.5)
    return report


def _import(module: str) -> float:
    command = [sys.executable, "-c", CODE.format(module)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
