"""Run experiments row by row: keep finished rows, store each new row, say which are left out."""

from __future__ import annotations

import difflib
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from leansvm.datasets import DatasetNotFoundError
from leansvm.papers._experiment import RunOptions, Skipped, experiments_of
from leansvm.papers._fits import called
from leansvm.papers._published import PAPERS, Row, paper
from leansvm.papers._store import Store
from leansvm.papers._verdict import metric, summarise

Outcome = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One row or one figure to work out."""

    section: str  # of results.json: "rows" or "figures"
    id: str
    work: Callable[[], Outcome]


class Observer:
    """What happens during a run; the command line draws it."""

    def start(self, n_jobs: int, n_kept: int) -> None:
        """The run starts; `n_kept` of the `n_jobs` are done already."""

    def begin(self, job: Job) -> None:
        """A job begins."""

    def end(self, job: Job, entry: Mapping[str, Any]) -> None:
        """A job has ended and is stored."""


def jobs(
    papers: Iterable[str],
    tables: Sequence[str] | None,
    run: RunOptions,
    rows: Sequence[str] | None = None,
) -> list[Job]:
    """Return the jobs of these papers, in order; `tables` may also name figures.

    With `rows`, only the rows of these tables that they name (see `named`).
    """
    found = []
    for name in papers:
        published = paper(name)
        experiments, sketches = experiments_of(name)
        for table in published.tables.values():
            if tables is None or table.name in tables:
                experiment = experiments[table.name]
                for row in table.rows:
                    work = partial(_measure, experiment.measure, row, run)
                    found.append(Job("rows", row.id, work))
        for figure in published.figures.values():
            if figure.name in sketches and (tables is None or figure.name in tables):
                work = partial(_draw, sketches[figure.name].draw, run)
                found.append(Job("figures", figure.id, work))
    if rows is None:
        return found
    names = [job.id for job in found if job.section == "rows"]
    chosen = {name for text in rows for name in named(text, names)}
    return [job for job in found if job.id in chosen]


def row_names(
    papers: Sequence[str] = PAPERS,
    *,
    tables: Sequence[str] | None = None,
    rows: Sequence[str] | None = None,
) -> list[str]:
    """Return the full names of rows; the parameters are those of `reproduce`.

    Examples
    --------
    >>> row_names(["peng2016"], tables=["table-1"], rows=["rls"])
    ['peng2016/table-1/RLSSVM, 4-point toy']
    """
    check_names(papers, tables)
    found = jobs(papers, tables, RunOptions(False, None), rows)
    return [job.id for job in found if job.section == "rows"]


def named(text: str, ids: Sequence[str]) -> list[str]:
    """Return the rows with this text as their id or name, or else the rows that contain it.

    >>> named("toy", ["peng2016/table-1/RLSSVM, 4-point toy", "zhou2013/table-1/Hinge"])
    ['peng2016/table-1/RLSSVM, 4-point toy']
    """
    wanted = text.casefold()
    exact = [one for one in ids if wanted in (one.casefold(), one.split("/", 2)[2].casefold())]
    found = exact or [one for one in ids if wanted in one.casefold()]
    if not found:
        names = dict.fromkeys(one.split("/", 2)[2] for one in ids)
        near = difflib.get_close_matches(text, names, 3, 0.4)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
        raise ValueError(
            f"no row {text!r}{hint} A full name is {ids[0]!r}; `leansvm reproduce ... --list` "
            f"prints the names."
            if ids
            else f"no row {text!r}: these are only figures."
        )
    return found


def check_names(papers: Sequence[str], tables: Sequence[str] | None) -> None:
    """Raise ValueError for a paper or a table that does not exist."""
    for name in papers:
        if name not in PAPERS:
            raise ValueError(f"unknown paper {name!r}; choose from {', '.join(PAPERS)}, all")
    known = [t for name in papers for t in (*paper(name).tables, *paper(name).figures)]
    for table in tables or ():
        if table not in known:
            names = ", ".join(dict.fromkeys(known))
            where = ", ".join(papers)
            raise ValueError(f"no table or figure {table!r} in {where}; choose from {names}")


def reproduce(
    papers: Sequence[str] = PAPERS,
    *,
    tables: Sequence[str] | None = None,
    rows: Sequence[str] | None = None,
    quick: bool = False,
    seeds: int | None = None,
    out: str | os.PathLike[str] = "reproduction",
    fresh: bool = False,
    observer: Observer | None = None,
    command: str | None = None,
) -> Store:
    """Compute the papers' tables and figures again; results are in ``out/results.json``.

    Rows that were measured before with the same options are kept: an interrupted run continues
    where it stopped. A row with more trials is kept as well, and one of a full run if this run is
    quick. `compare` returns the rows beside the published ones.

    Parameters
    ----------
    papers : sequence of str, default=all five
        Short names, such as "fang2019".
    tables : sequence of str, default=None
        Only these, such as "table-1" or "fig-2".
    rows : sequence of str, default=None
        Only these rows. A name is "RLSSVM, 4-point toy", also with paper and table in front
        ("peng2016/table-1/RLSSVM, 4-point toy"). A part of a name means all rows whose names
        contain it. `row_names` lists the names.
    quick : bool, default=False
        Run fewer trials, and leave out rows and figures that take long.
    seeds : int, default=None
        Number of random trials; None means each experiment's own number.
    out : path, default="reproduction"
        Folder of the results.
    fresh : bool, default=False
        Measure finished rows again. The new row replaces the old one unless it has fewer trials.
    observer : Observer, default=None
        Its methods are called before and after every row.
    command : str, default=None
        The command that the report names; None means the call of this function.

    Returns
    -------
    Store
        The results.
    """
    check_names(papers, tables)
    observer = observer or Observer()
    run = RunOptions(quick, seeds)
    todo = jobs(papers, tables, run, rows)
    store = Store(Path(out))
    command = command or f"leansvm.papers.reproduce({list(papers)!r}, quick={quick}, seeds={seeds})"
    store.content["machine"] = machine() | {
        "command": command,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "seeds": _seeds_in_words(run),
    }
    kept = [] if fresh else [job for job in todo if _is_done(store, job, run)]
    observer.start(len(todo), len(kept))
    for job in todo:
        if job in kept:
            continue
        observer.begin(job)
        entry = job.work() | {"run": asdict(run)}
        old = store.content[job.section].get(job.id)
        if old is None or _worth(entry) >= _worth(old):
            store.put(job.section, job.id, entry)
        else:
            n = _worth(old)[0]
            why = f"this run has {_worth(entry)[0]} (quick={run.quick}); another folder stores it"
            entry = {"status": "kept", "reason": f"the stored one has {n} trials, {why}"}
        observer.end(job, entry)
    return store


def _worth(entry: Mapping[str, Any]) -> tuple[int, bool]:
    """Return what decides which of two results stays: trials (0: no result), and not quick."""
    if entry["status"] != "done":
        return 0, False
    trials = max((one["n"] for one in entry.get("metrics", {}).values()), default=1)
    return trials, not entry["run"]["quick"]


def _seeds_in_words(run: RunOptions) -> str:
    """Return the seeds of what is random."""
    if run.seeds is None:
        return "0, 1, 2, ..., as many as the table says under trials"
    return "0" if run.seeds == 1 else f"0 to {run.seeds - 1}"


def _is_done(store: Store, job: Job, run: RunOptions) -> bool:
    """Whether this run would measure what is stored already, or less."""
    entry = store.content[job.section].get(job.id)
    if entry is None or entry["status"] != "done":
        return False
    trials, full = _worth(entry)
    if run.seeds and trials > run.seeds:
        return True
    before = entry["run"]
    return before == asdict(run) or (run.quick and full and not (run.seeds or before["seeds"]))


def _measure(
    measure: Callable[[Row, RunOptions], Mapping[str, Any]], row: Row, run: RunOptions
) -> Outcome:
    def work() -> Outcome:
        if row.source is not None:
            raise Skipped(f"quoted by the paper from {row.source}")
        called.clear()
        values = measure(row, run)
        figures = {
            name: summarise(v, seconds=metric(name).unit == "s") for name, v in values.items()
        }
        return {"metrics": figures} | ({"called": called[0]} if called else {})

    return _guarded(work)


def _draw(draw: Callable[[RunOptions], Any], run: RunOptions) -> Outcome:
    return _guarded(lambda: asdict(draw(run)))


def _guarded(work: Callable[[], Outcome]) -> Outcome:
    """Return what was found, or why there is nothing; only an interruption is raised."""
    start = time.perf_counter()
    try:
        entry = work()
    except Skipped as reason:
        return {"status": "skipped", "reason": str(reason)}
    except DatasetNotFoundError as error:  # keeps the names of local folders out of the results
        what, _, _ = str(error).partition(":")
        return {"status": "skipped", "reason": what, "needs": error.dataset}
    except Exception as error:
        return {"status": "failed", "reason": f"{type(error).__name__}: {error}"}
    return {"status": "done", **entry, "seconds": round(time.perf_counter() - start, 2)}


def machine() -> dict[str, Any]:
    """Return what the measured times depend on: processor, threads and versions."""
    import numpy
    import scipy
    import sklearn
    from threadpoolctl import threadpool_info

    import leansvm

    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "blas threads": max((pool["num_threads"] for pool in threadpool_info()), default=1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "leansvm": leansvm.__version__,
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or "unknown"
