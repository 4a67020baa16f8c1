"""Train leansvm's models beside scikit-learn's SVC; print a table and write one HTML page.

Two data sets, both embedded: a generated 4 x 4 checkerboard and scikit-learn's digits.
All models of a row group get the same gamma, and the same C unless they choose their own.

    python examples/demo.py --output demo.html
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from demo_page import page
from sklearn.base import ClassifierMixin
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

from leansvm import LSSVC, SparseLSSVC

# Each model: its name and how to make it from the data set's C and gamma. The first is the
# reference of the ratios. To show a new estimator, add a line.
MODELS: list[tuple[str, Callable[[float, float], ClassifierMixin]]] = [
    ("SVC (scikit-learn)", lambda C, gamma: SVC(C=C, gamma=gamma)),
    ("LSSVC", lambda C, gamma: LSSVC(C=C, gamma=gamma)),
    ('LSSVC C="loo" (tries 50)', lambda C, gamma: LSSVC(C="loo", gamma=gamma)),
    (
        "SparseLSSVC, 200 points",
        lambda C, gamma: SparseLSSVC(C, gamma=gamma, n_basis=200, random_state=0),
    ),
    (
        'SparseLSSVC C="gcv" (tries 50)',
        lambda C, gamma: SparseLSSVC("gcv", gamma=gamma, n_basis=200, random_state=0),
    ),
]


@dataclass
class Task:
    """A data set, split, and the parameters that all models share on it."""

    name: str
    X_train: np.ndarray
    X_test: np.ndarray
    y_train: np.ndarray
    y_test: np.ndarray
    C: float
    gamma: float


@dataclass
class Result:
    """What one model did on one task; times are medians over the runs."""

    task: Task
    model: str
    estimator: ClassifierMixin
    accuracy: float
    fit_seconds: float
    predict_seconds: float
    first_fit_seconds: float
    n_support: int
    fit_ratio: float = 1.0


def checkerboard(n_train: int = 2000, n_test: int = 2000, seed: int = 0) -> Task:
    """Points uniform on [0, 4]^2, the class is the colour of the unit square."""
    X = np.random.default_rng(seed).uniform(0, 4, size=(n_train + n_test, 2))
    y = np.floor(X).astype(int).sum(axis=1) % 2
    split = train_test_split(X, y, train_size=n_train, random_state=seed)
    return Task("checkerboard", *split, C=100.0, gamma=4.0)


def digits(seed: int = 0) -> Task:
    """Half of the 1797 digits for training, half for testing; pixels scaled to [0, 1]."""
    X, y = load_digits(return_X_y=True)
    split = train_test_split(X / 16, y, test_size=0.5, stratify=y, random_state=seed)
    return Task("digits", *split, C=10.0, gamma=0.25)


def seconds(function: Callable[[], object]) -> float:
    """Wall-clock seconds of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def measure(task: Task, name: str, make: Callable[..., ClassifierMixin], runs: int) -> Result:
    """Fit and predict `runs` times, each time with a fresh estimator; nothing is warmed up."""
    fits, predicts = [], []
    for _ in range(runs):
        model = make(task.C, task.gamma)
        fits.append(seconds(lambda m=model: m.fit(task.X_train, task.y_train)))
        predicts.append(seconds(lambda m=model: m.predict(task.X_test)))
    return Result(
        task=task,
        model=name,
        estimator=model,
        accuracy=float(model.score(task.X_test, task.y_test)),
        fit_seconds=statistics.median(fits),
        predict_seconds=statistics.median(predicts),
        first_fit_seconds=fits[0],
        n_support=len(model.support_),
    )


def run(tasks: list[Task], runs: int) -> list[Result]:
    """Every model on every task; ratios of fit times to the first model of the task."""
    results = []
    for task in tasks:
        group = [measure(task, name, make, runs) for name, make in MODELS]
        for result in group:
            result.fit_ratio = result.fit_seconds / group[0].fit_seconds
        results += group
    return results


def text_table(results: list[Result]) -> str:
    """Format the results with aligned columns, one block of rows per data set."""
    header = ("data", "model", "accuracy", "fit s", "predict s", "support vectors", "fit / SVC")
    rows = [
        (
            r.task.name,
            r.model,
            f"{r.accuracy:.2%}",
            f"{r.fit_seconds:.3f}",
            f"{r.predict_seconds:.3f}",
            f"{r.n_support} of {len(r.task.y_train)}",
            f"{r.fit_ratio:.2f}x",
        )
        for r in results
    ]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines, previous = [], None
    for row in [header, *rows]:
        if row[0] != previous:
            lines.append("  ".join("-" * w for w in widths) if previous else "")
        previous = row[0]
        names = [c.ljust(w) for c, w in zip(row[:2], widths[:2], strict=True)]
        numbers = [c.rjust(w) for c, w in zip(row[2:], widths[2:], strict=True)]
        lines.append("  ".join(names + numbers))
    return "\n".join([*lines, ""])


def timing_note(results: list[Result], runs: int) -> str:
    """Say how the times were taken and what the first, cold call cost."""
    cold = max(results, key=lambda r: r.first_fit_seconds - r.fit_seconds)
    return (
        f"Times are wall-clock medians of {runs} runs in one process; nothing is warmed up. "
        f"Slowest first run: {cold.model} on {cold.task.name}, {cold.first_fit_seconds:.2f} s "
        f"(median {cold.fit_seconds:.3f} s). "
        "C and gamma were set by hand after trying a few values on these same data, so differences "
        "in accuracy of a percent or so do not rank the models."
    )


def main() -> None:
    """Run the demo from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("demo.html"), help="the page to write")
    parser.add_argument("--runs", type=int, default=3, help="fits per model; the median is shown")
    args = parser.parse_args()
    if args.runs < 1:
        parser.error("--runs must be at least 1")

    results = run([checkerboard(), digits()], args.runs)
    note = timing_note(results, args.runs)
    print(text_table(results))
    print(note)
    args.output.write_text(page(results, note), encoding="utf-8")
    print(f"\nPicture and table: {args.output.resolve()}")


if __name__ == "__main__":
    main()
