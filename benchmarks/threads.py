"""What a second thread of BLAS costs and gains: small systems, CPU seconds, large bases.

Four questions, each a ratio of two measurements that take turns in one process:

- `L2SVC` on 1,200 digits with all threads of BLAS and with one, on the machine as it is and with
  one core kept busy by a process that only counts.
- CPU seconds of every estimator's default fit with two threads, by those with one: threads that
  wait for work and spin are counted here, and in no wall clock.
- `SparseLSSVC` with 2,000 points and C="loo": the seconds of the solution by those of the pass
  over the rows.
- `cross_val_score` with two processes, which are there already, and with one: seconds, and CPU
  seconds of all processes. Four folds, so that both processes have equally many.
"""

import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from ._harness import Options, Report, Summary, ratio, time_interleaved

THREADS = 2
IDLE, BUSY, CPU, SOLVE, FOLDS = 1.05, 1.3, 1.3, 1.5, 1.0
ESTIMATORS = (
    "SparseLSSVC",
    "SparseLSSVR",
    "LSSVC",
    "LSSVR",
    "L2SVC",
    "ReducedSVC",
    "ReducedSVR",
    "LowRankLSSVC",
    "LowRankLSSVR",
)
SLOW = ("Sparse", "Reduced")  # a few rounds will do


def run(options: Options) -> Report:
    """Measure the ratios."""
    report = Report("threads", "Threads: wall clock, CPU seconds, and large bases", options)
    warnings.simplefilter("ignore")
    with at_most_threads(THREADS):
        _digits(report)
        _busy_digits(report)
        _large_basis(report)
        _folds(report)
        for name in ESTIMATORS:
            _cpu_seconds(report, name)
    return report


@contextmanager
def at_most_threads(threads: int) -> Iterator[None]:
    """Let BLAS have so many threads."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(threads):
        yield


@contextmanager
def busy_core() -> Iterator[None]:
    """Keep one core busy with a process of its own."""
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.2)
        yield
    finally:
        child.terminate()
        child.wait()


def _digits(report: Report) -> None:
    _compare_threads(report, "1,200 digits, idle", IDLE)


def _busy_digits(report: Report) -> None:
    with busy_core():
        _compare_threads(report, "1,200 digits, one core busy", BUSY)


def _compare_threads(report: Report, label: str, goal: float) -> None:
    from sklearn.datasets import load_digits

    from leansvm import L2SVC

    X, y = load_digits(return_X_y=True)
    X, y = X[:1200] / 16, y[:1200]
    times = time_interleaved(
        {"two": lambda: L2SVC().fit(X, y), "one": partial(_with_one, L2SVC().fit, X, y)},
        repeats=report.options.pick(9, 2),
    )
    report.add_timings(label, times)
    found = ratio(times["two"], times["one"])
    report.rows.append(
        {
            "case": f"L2SVC, {label}",
            "two threads [s]": times["two"].median,
            "one thread [s]": times["one"].median,
            "ratio": f"{found:.2f}",
        }
    )
    report.at_most(f"L2SVC, {label}: two threads / one", found.median, goal)


def _with_one(function: Callable[..., Any], *args: Any) -> Any:
    with at_most_threads(1):
        return function(*args)


def _large_basis(report: Report) -> None:
    """10,000 × 20 rows, 2,000 points, every C by leave-one-out: where the seconds go."""
    from sklearn.base import clone

    from leansvm import SparseLSSVC

    m, r = report.options.pick((10_000, 2000), (3000, 600))
    X, y = rows_of(m, 20)
    model = SparseLSSVC(n_basis=r, C="loo", gamma="scale", kernel="rbf", random_state=0)
    clone(model).set_params(n_basis=600).fit(X[:1400], y[:1400])  # compilation is not the fit's
    phases = []
    for _ in range(report.options.pick(3, 1)):
        time.sleep(0.1)
        phases.append(model.fit(X, y).fit_report_["seconds"])
    solve, sums = (Summary([phase[name] for phase in phases]) for name in ("solve", "sums"))
    found = ratio(solve, sums)
    report.rows.append(
        {
            "case": f"SparseLSSVC, {m} × 20, {r} points, C='loo': C={model.C_:.3g}",
            "solve [s]": solve.median,
            "sums [s]": sums.median,
            "ratio": f"{found:.2f}",
        }
    )
    report.at_most("SparseLSSVC(n_basis=2000, C='loo'): solve / sums", found.median, SOLVE)


def rows_of(m: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows with two classes that a curved boundary parts, and noise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(m, d))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=m)
    return X, (y > 0).astype(int)


def _folds(report: Report) -> None:
    """Four folds of a default fit on 4,000 × 20 rows, by one process and by two."""
    from sklearn.model_selection import cross_val_score

    from leansvm import SparseLSSVC

    X, y = rows_of(report.options.pick(4000, 600), 20)
    seconds: dict[int, list[float]] = {1: [], 2: []}

    def scores(n_jobs: int) -> Any:
        before = _cpu_of_all()
        found = cross_val_score(SparseLSSVC(random_state=0), X, y, cv=4, n_jobs=n_jobs)
        seconds[n_jobs].append(_cpu_of_all() - before)
        return found

    # the first round starts the processes, which import and compile
    walls = time_interleaved(
        {"one": partial(scores, 1), "two": partial(scores, 2)},
        repeats=report.options.pick(3, 1),
        keep=lambda found: found,
    )
    report.add_timings("cross_val_score", walls)
    found = ratio(walls["two"], walls["one"])
    report.rows.append(
        {
            "case": f"cross_val_score(SparseLSSVC(), cv=4), {len(X)} × 20, processes: two / one",
            "two processes [s]": walls["two"].median,
            "one process [s]": walls["one"].median,
            "two processes [CPU s]": Summary(seconds[2][1:]).median,
            "one process [CPU s]": Summary(seconds[1][1:]).median,
            "ratio": f"{found:.2f}",
        }
    )
    report.at_most("cross_val_score: n_jobs=2 / n_jobs=1", found.median, FOLDS)
    one, two = walls["one"].kept[-1], walls["two"].kept[-1]
    report.at_most("cross_val_score: difference of the scores", np.abs(one - two).max(), 1e-3)


def _cpu_of_all() -> float:
    """Return CPU seconds of this process and of those that it has started and that still run."""
    import psutil

    this = psutil.Process()
    times = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return sum(time.user + time.system for time in times)


def _cpu_seconds(report: Report, name: str) -> None:
    """The default fit on 5,000 × 50 rows: CPU seconds of the process, all of its threads."""
    import leansvm

    X, y = rows_of(report.options.pick(5000, 600), 50)
    estimator = getattr(leansvm, name)()
    if "random_state" in estimator.get_params():
        estimator.set_params(random_state=0)  # the same work with one thread and with two
    target = y if name.endswith("C") else X[:, 1] * X[:, 2] + 0.3 * y
    estimator.fit(X[:300], target[:300])  # compilation is not the fit's
    seconds: dict[int, list[float]] = {1: [], THREADS: []}
    walls: dict[int, list[float]] = {1: [], THREADS: []}
    rounds = report.options.pick(2 if name.startswith(SLOW) else 5, 1)
    for number in range(rounds):
        for threads in (1, THREADS) if number % 2 else (THREADS, 1):
            with at_most_threads(threads):
                cpu, wall = seconds_of(estimator.fit, X, target)
            seconds[threads].append(cpu)
            walls[threads].append(wall)
    found = ratio(Summary(seconds[THREADS]), Summary(seconds[1]))
    report.rows.append(
        {
            "case": f"{name}(), {len(X)} × 50",
            "two threads [s]": Summary(walls[THREADS]).median,
            "one thread [s]": Summary(walls[1]).median,
            "two threads [CPU s]": Summary(seconds[THREADS]).median,
            "one thread [CPU s]": Summary(seconds[1]).median,
            "ratio": f"{found:.2f}",
        }
    )
    report.at_most(f"{name}(): CPU seconds, two threads / one", found.median, CPU)


def seconds_of(function: Callable[..., Any], *args: Any) -> tuple[float, float]:
    """Return CPU seconds, with those of threads that spin after the call, and wall seconds."""
    time.sleep(0.1)
    start, cpu = time.perf_counter(), time.process_time()
    function(*args)
    wall = time.perf_counter() - start
    time.sleep(0.1)
    return time.process_time() - cpu, wall
