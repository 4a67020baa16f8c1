"""Timing, targets and reports shared by the benchmarks.

A benchmark is a module with ``run(options) -> Report``. It times its candidates with
:func:`time_interleaved`, compares them with :func:`ratio` and states its goals as targets.
"""

import gc
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ._machine import machine_facts

RESULTS = Path(__file__).parent / "results"

# OpenBLAS worker threads spin for some milliseconds after a call; without a rest they take
# a core from whatever is timed next.
REST_SECONDS = 0.06

# Interquartile range, as a share of the median, above which a timing is called noisy.
NOISY_SHARE = 0.2


class SkipBenchmark(Exception):
    """Raised by a benchmark that cannot run here; the message says what is missing."""


@dataclass(frozen=True)
class Options:
    """What the command line asked for.

    Parameters
    ----------
    quick : bool
        Small sizes and few repetitions: shows that everything runs, judges no target.
    peer_python : str or None
        Interpreter that has the optional peers; None: the running one.
    splits : int or None
        Random splits of `mixed` and `tabular`; None: three.
    sets, models : tuple of str
        Their tables and models by name; empty: all.
    jobs : int
        Their fits at a time, each in a process of its own.
    threads : int or None
        Threads of each of these processes; None: no limit.
    rows : int or None
        Rows of one more generated table of `many_rows` (None: no such table), and of the files of
        `out_of_core` (None: 20,000,000).
    """

    quick: bool = False
    peer_python: str | None = None
    splits: int | None = None
    sets: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    jobs: int = 1
    threads: int | None = None
    rows: int | None = None

    def pick(self, full: Any, quick: Any) -> Any:
        """Return `quick` in quick mode, otherwise `full`."""
        return quick if self.quick else full


@dataclass
class Summary:
    """Median and quartiles of a sample.

    Parameters
    ----------
    values : list of float
        One number per round.
    kept : list
        What was kept of each round's result, in the same order.
    """

    values: list[float]
    kept: list[Any] = field(default_factory=list)

    def _quartiles(self) -> list[float]:
        if len(self.values) == 1:
            return self.values * 3
        return statistics.quantiles(self.values, n=4, method="inclusive")

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def iqr(self) -> float:
        """Interquartile range."""
        first, _, third = self._quartiles()
        return third - first

    def as_dict(self) -> dict[str, Any]:
        """Return what goes into the JSON file."""
        first, _, third = self._quartiles()
        return {"median": self.median, "q1": first, "q3": third, "rounds": self.values}

    def __format__(self, spec: str) -> str:
        """Show ``median ±half the interquartile range``, both in the format `spec`."""
        return f"{self.median:{spec}} ±{self.iqr / 2:{spec}}"


def time_interleaved(
    candidates: dict[str, Callable[[], Any]],
    *,
    repeats: int = 7,
    warmup: int = 1,
    rest: float = REST_SECONDS,
    keep: Callable[[Any], Any] | None = None,
) -> dict[str, Summary]:
    """Time several callables in turns.

    Every round calls each candidate once, so slow drifts of the machine meet all of them; the
    order rotates by one from round to round, so none always follows the same other one.

    Parameters
    ----------
    candidates : dict of str to callable
        Functions without arguments. Their results are released after the clock stops.
    repeats : int, default=7
        Timed rounds.
    warmup : int, default=1
        Untimed rounds before them (compilation, page cache).
    rest : float, default=0.06
        Seconds of sleep before each timed call.
    keep : callable, default=None
        ``keep(result)`` of each timed call is stored in `Summary.kept`.

    Returns
    -------
    dict of str to Summary
        Seconds by candidate, one value per round.
    """
    names = list(candidates)
    timings = {name: Summary([]) for name in names}
    for number in range(-warmup, repeats):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            seconds, result = _time_once(candidates[name], rest)
            if number < 0:
                continue
            timings[name].values.append(seconds)
            if keep is not None:
                timings[name].kept.append(keep(result))
            del result
    return timings


def _time_once(function: Callable[[], Any], rest: float) -> tuple[float, Any]:
    gc.collect()
    time.sleep(rest)
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def ratio(numerator: Summary, denominator: Summary) -> Summary:
    """Return the round-by-round ratios; their median is steadier than a ratio of medians."""
    pairs = zip(numerator.values, denominator.values, strict=True)
    return Summary([above / below for above, below in pairs])


@dataclass
class Target:
    """One goal and what was measured.

    Parameters
    ----------
    what : str
        What is measured, for a reader of the table.
    measured, goal : object
        Shown side by side.
    met : bool or None
        None: not judged (quick mode).
    """

    what: str
    measured: Any
    goal: str
    met: bool | None


@dataclass
class Report:
    """What a benchmark found.

    Parameters
    ----------
    name : str
        Name of the module, and of the result file.
    title : str
        One line for the reader.
    options : Options
        How it was run.
    """

    name: str
    title: str
    options: Options
    rows: list[dict[str, Any]] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    timings: dict[str, Any] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=machine_facts)

    def add_row(self, row: dict[str, Any]) -> None:
        """Add a row of the table, and print it at once: a long run shows how far it is."""
        self.rows.append(row)
        print("  " + ", ".join(f"{key} {_cell(value)}" for key, value in row.items()), flush=True)

    def at_least(self, what: str, measured: float, goal: float) -> None:
        """Add the target ``measured >= goal``."""
        self._judge(what, f"{measured:.3g}", f">= {goal:g}", measured >= goal)

    def at_most(self, what: str, measured: float, goal: float) -> None:
        """Add the target ``measured <= goal``."""
        self._judge(what, f"{measured:.3g}", f"<= {goal:g}", measured <= goal)

    def equals(self, what: str, measured: str, goal: str) -> None:
        """Add the target ``measured == goal``."""
        self._judge(what, measured, goal, measured == goal)

    def _judge(self, what: str, measured: str, goal: str, met: bool) -> None:
        self.targets.append(Target(what, measured, goal, None if self.options.quick else bool(met)))

    def add_timings(self, label: str, timings: dict[str, Summary]) -> None:
        """Store every round under `label` and note the timings that are noisy."""
        self.timings[label] = {name: summary.as_dict() for name, summary in timings.items()}
        for name, summary in timings.items():
            share = summary.iqr / summary.median
            if share > NOISY_SHARE and not self.options.quick:
                self.notes.append(f"noisy: {label}, {name}: IQR is {share:.0%} of the median")

    def show(self) -> None:
        """Print the tables."""
        print(f"\n== {self.name}: {self.title}", end="\n\n")
        print_table(self.rows)
        if self.targets:
            print()
            print_table([_target_row(target) for target in self.targets])
        for note in self.notes:
            print(f"  note: {note}")

    def save(self) -> Path:
        """Write ``results/<name>.json`` (``<name>-quick.json`` in quick mode)."""
        RESULTS.mkdir(exist_ok=True)
        path = RESULTS / f"{self.name}{'-quick' if self.options.quick else ''}.json"
        content = {
            "benchmark": self.name,
            "title": self.title,
            "quick": self.options.quick,
            "machine": self.machine,
            "rows": self.rows,
            "targets": [asdict(target) for target in self.targets],
            "notes": self.notes,
            "seconds": self.timings,
        }
        path.write_text(json.dumps(content, indent=2, default=str) + "\n", encoding="utf-8")
        return path


def _target_row(target: Target) -> dict[str, Any]:
    verdict = {True: "met", False: "MISSED", None: "not judged (quick)"}[target.met]
    return {
        "target": target.what,
        "measured": target.measured,
        "goal": target.goal,
        "verdict": verdict,
    }


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print dictionaries as aligned columns: numbers right, text left."""
    if not rows:
        return
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[_cell(row.get(column, "")) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    right = [all(_is_numeric(row[i]) for row in cells) for i in range(len(columns))]
    for line in [columns, ["-" * width for width in widths], *cells]:
        parts = zip(line, widths, right, strict=True)
        text = "  ".join(c.rjust(w) if numeric else c.ljust(w) for c, w, numeric in parts)
        print(f"  {text}".rstrip())


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _is_numeric(text: str) -> bool:
    return not text or text[0].isdigit() or text in {"-", "nan", "inf"}
