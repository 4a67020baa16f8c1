"""Command line: ``python -m benchmarks [name ...] [--quick] [--peer-python PYTHON]``.

`mixed` and `tabular` also take ``[--splits 1] [--sets NAME ...] [--models NAME ...]`` and
``[--jobs 8] [--threads 2]``: so many fits at a time, each with so many threads.
"""

import argparse
import importlib
import sys
import traceback
from collections.abc import Sequence

from ._harness import Options, Report, SkipBenchmark

# In running order; the last five take long: "large" and "criterion" minutes, "coverage" and "mixed"
# half an hour, "tabular" hours.
NAMES = (
    "import_time",
    "latency",
    "cli",
    "gaussian_block",
    "lssvc_cholesky",
    "lssvc_cg",
    "smo",
    "smo_scaling",
    "smo_memory",
    "budgets",
    "pivoting",
    "backfitting",
    "sparse_speed",
    "selectors",
    "covtype",
    "reduced_speed",
    "low_rank_classes",
    "multiclass",
    "low_rank_scaling",
    "l2svc_speed",
    "threads",
    "out_of_core",
    "dask_scaling",
    "cluster_model",
    "cluster_faults",
    "roofline",
    "phases",
    "text",
    "merging",
    "export",
    "exports",
    "reading",
    "peers",
    "answers",
    "sanity",
    "many_rows",
    "large",
    "criterion",
    "coverage",
    "classes",
    "mixed",
    "tabular",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen benchmarks; return 1 when one of them broke, otherwise 0."""
    chosen = _parse(arguments)
    names = chosen.__dict__.pop("names")
    options = Options(**vars(chosen))
    outcomes = {name: _run(name, options) for name in NAMES if name in names}
    print("\n== summary")
    for name, outcome in outcomes.items():
        print(f"  {name:<16} {outcome}")
    return int(any(outcome.startswith("error") for outcome in outcomes.values()))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"any of: {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="small sizes; judges no target")
    parser.add_argument(
        "--peer-python", metavar="PYTHON", help="interpreter that has the optional peers"
    )
    suites = parser.add_argument_group("mixed and tabular")
    suites.add_argument("--splits", type=int, metavar="N", help="random splits (default: 3)")
    suites.add_argument("--sets", nargs="+", default=(), metavar="NAME", help="these tables only")
    suites.add_argument("--models", nargs="+", default=(), metavar="NAME", help="these models only")
    suites.add_argument("--jobs", type=int, default=1, metavar="N", help="fits at a time")
    suites.add_argument("--threads", type=int, metavar="N", help="threads of each fit")
    rows = "many_rows: also a table of N rows; out_of_core: N rows in files"
    parser.add_argument("--rows", type=int, metavar="N", help=rows)
    chosen = parser.parse_args(arguments)
    chosen.sets, chosen.models = tuple(chosen.sets), tuple(chosen.models)
    unknown = set(chosen.names) - set(NAMES)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(NAMES)}")
    chosen.names = chosen.names or NAMES
    return chosen


def _run(name: str, options: Options) -> str:
    """Run one benchmark and return its line in the summary."""
    try:
        report: Report = importlib.import_module(f"benchmarks.{name}").run(options)
    except SkipBenchmark as reason:
        print(f"\n== {name}: skipped: {reason}")
        return f"skipped: {reason}"
    except Exception as error:
        traceback.print_exc()
        return f"error: {type(error).__name__}: {error}"
    report.show()
    path = report.save()
    print(f"  saved to benchmarks/results/{path.name}")
    return _verdict(report)


def _verdict(report: Report) -> str:
    judged = [target for target in report.targets if target.met is not None]
    if not judged:
        return "done, no target judged"
    missed = [target.what for target in judged if not target.met]
    line = f"{len(judged) - len(missed)} of {len(judged)} targets met"
    return line + (f"; missed: {'; '.join(missed)}" if missed else "")


if __name__ == "__main__":
    sys.exit(main())
