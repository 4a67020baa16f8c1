"""An experiment: a function that measures one row of a table, or draws a figure.

A paper's module marks its functions with :func:`reproduces` (``row, run -> figures by metric``)
and :func:`draws` (``run -> Drawing``). The runner calls them for every row that the paper prints.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from leansvm.papers._published import Row

#: Figures by metric, one number per trial.
Measured = Mapping[str, Sequence[float]]


class Skipped(Exception):
    """Raised by an experiment that does not run; the message says why."""


@dataclass(frozen=True)
class RunOptions:
    """What the user asked for.

    Parameters
    ----------
    quick : bool
        Few trials; what takes long is skipped.
    seeds : int or None
        Number of trials of what is random; None: each experiment's own number.
    """

    quick: bool = False
    seeds: int | None = None

    def trials(self, usual: int, quick: int = 1) -> range:
        """Return the seeds of the trials."""
        return range(self.seeds or (quick if self.quick else usual))

    def only_full(self, slow: bool = True) -> None:
        """Skip a slow experiment in a quick run."""
        if self.quick and slow:
            raise Skipped("takes too long for --quick")


@dataclass(frozen=True)
class Chart:
    """Draw a table: metric `y` over key `x`, a line per value of `by`, a panel per `each`."""

    x: str
    y: str
    by: str = "method"
    each: str | None = None
    log: str = ""  # "x", "y" or "xy"
    x_label: str = ""


@dataclass
class Drawing:
    """A figure: panels (see `leansvm.papers._panels`) and what can be read off them."""

    panels: list[dict[str, Any]] = field(default_factory=list)
    findings: list[tuple[str, bool]] = field(default_factory=list)


@dataclass(frozen=True)
class Experiment:
    """A function and the tables that it reproduces."""

    paper: str
    tables: tuple[str, ...]
    measure: Callable[[Row, RunOptions], Measured]
    charts: tuple[Chart, ...] = ()


@dataclass(frozen=True)
class Sketch:
    """A function and the figure that it draws."""

    paper: str
    figure: str
    draw: Callable[[RunOptions], Drawing]


def reproduces(
    *tables: str, charts: Sequence[Chart] = ()
) -> Callable[[Callable[[Row, RunOptions], Measured]], Experiment]:
    """Mark a function as the experiment of these tables."""

    def mark(function: Callable[[Row, RunOptions], Measured]) -> Experiment:
        return Experiment(_paper_of(function), tables, function, tuple(charts))

    return mark


def draws(figure: str) -> Callable[[Callable[[RunOptions], Drawing]], Sketch]:
    """Mark a function as the one that draws this figure."""

    def mark(function: Callable[[RunOptions], Drawing]) -> Sketch:
        return Sketch(_paper_of(function), figure, function)

    return mark


def experiments_of(paper: str) -> tuple[dict[str, Experiment], dict[str, Sketch]]:
    """Return a paper's experiments by table and sketches by figure."""
    module = importlib.import_module(f"leansvm.papers.{paper}")
    found = list(vars(module).values())
    tables = {t: e for e in found if isinstance(e, Experiment) for t in e.tables}
    return tables, {s.figure: s for s in found if isinstance(s, Sketch)}


def _paper_of(function: Callable[..., Any]) -> str:
    return function.__module__.rpartition(".")[2]
