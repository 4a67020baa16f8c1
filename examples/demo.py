"""Compare leansvm's default models with scikit-learn's; print a table and write one HTML page.

The seven data sets come with scikit-learn and leansvm. Each was chosen for what it can show, before
any model was fitted; on one of them trees should win. All models have default parameters. The first
data set is a data frame with text and missing values: leansvm gets it as it is, the other models
need preprocessing. The demo takes under a minute on two idle cores, and prints a line of the table
whenever a model is ready.

    python examples/demo.py --output demo.html
"""

from __future__ import annotations

import argparse
import pickle
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from demo_page import headline, page
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.datasets import load_diabetes, load_digits, make_classification, make_friedman1
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.svm import SVC, SVR

from leansvm import Predictor, SparseLSSVC, SparseLSSVR
from leansvm.datasets import make_checkerboard, make_customers


@dataclass
class Task:
    """A data set, split 70/30, and what it is here to show."""

    name: str
    shows: str
    X_train: Any  # an array, or a data frame
    X_test: Any
    y_train: np.ndarray
    y_test: np.ndarray
    feature_names: list[str]
    classes: bool

    @property
    def metric(self) -> str:
        """What the scores are."""
        return "accuracy" if self.classes else "R²"


@dataclass
class Result:
    """What one model did on one task."""

    task: Task
    model: str
    estimator: Any
    ours: bool
    score: float  # in percent
    fit_seconds: float
    predict_seconds: float
    n_bytes: int
    n_points: int | None


# --- data ------------------------------------------------------------------


def _task(name: str, shows: str, X: Any, y: Any, names: list[str], **kind: Any):
    stratify = y if kind["classes"] else None
    split = train_test_split(X, y, test_size=0.3, random_state=0, stratify=stratify)
    return Task(name, shows, *split, names, **kind)


def customers(n_rows: int = 2000) -> Task:
    """A data frame: numbers, two columns of text, missing values. Who leaves?"""
    table = make_customers(n_rows, random_state=0)
    leaves = table.pop("leaves")
    return _task("customers", "text, missing values", table, leaves, list(table), classes=True)


def irrelevant(n_rows: int = 4000) -> Task:
    """Friedman's function of five features among twenty-five."""
    X, y = make_friedman1(n_rows, n_features=25, noise=1.0, random_state=0)
    names = [f"{'signal' if i < 5 else 'noise'} {i + 1}" for i in range(25)]
    return _task("friedman", "5 of 25 features matter", X, y, names, classes=False)


def diabetes() -> Task:
    """442 patients and a noisy target: little to learn and much to overfit."""
    data = load_diabetes()
    return _task(
        "diabetes",
        "few rows, much noise",
        data.data,
        data.target,
        data.feature_names,
        classes=False,
    )


def checkerboard(n_side: int = 64) -> Task:
    """Points of a 4 x 4 checkerboard on [0, 4]^2."""
    X, y = make_checkerboard(n_side, extent=4.0)
    return _task("checkerboard", "clean classes", X, y, ["x", "y"], classes=True)


def digits(n_rows: int = 1797) -> Task:
    """Handwritten digits, 8 x 8 pixels."""
    X, y = load_digits(return_X_y=True)
    names = [f"pixel {i // 8},{i % 8}" for i in range(64)]
    return _task("digits", "ten classes", X[:n_rows], y[:n_rows], names, classes=True)


def clusters(n_rows: int = 10_000) -> Task:
    """Two classes of several clusters; 12 of 20 features are noise, 5 % of the labels wrong."""
    X, y = make_classification(
        n_rows, 20, n_informative=6, n_redundant=2, n_clusters_per_class=4, flip_y=0.05,
        shuffle=False, random_state=0,
    )  # fmt: skip
    kinds = ["signal"] * 6 + ["mixture"] * 2 + ["noise"] * 12
    names = [f"{kind} {i + 1}" for i, kind in enumerate(kinds)]
    return _task("clusters", "noisy labels, useless features", X, y, names, classes=True)


def steps(n_rows: int = 4000) -> Task:
    """Jumps along single features, which suit trees and not smooth kernels."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n_rows, 10))
    y = 3.0 * ((X[:, 0] > 0.3) & (X[:, 1] > 0.6)) + 2.0 * (X[:, 2] > 0.5) - 2.0 * (X[:, 3] > 0.7)
    y += rng.normal(scale=0.3, size=n_rows)
    names = [f"{'signal' if i < 4 else 'noise'} {i + 1}" for i in range(10)]
    return _task("steps", "jumps: trees should win", X, y, names, classes=False)


# --- models ----------------------------------------------------------------


TEXTS = ["plan", "region"]


def as_categories(table: Any) -> Any:
    """Return the frame with categories instead of text, which HistGradientBoosting refuses."""
    return table.astype(dict.fromkeys(TEXTS, "category"))


def peers_for_frames() -> list[tuple[str, Any]]:
    """Return the classifiers with the preprocessing that they need for `customers`."""
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    columns = make_column_transformer((OneHotEncoder(), TEXTS), remainder=numbers)
    trees = HistGradientBoostingClassifier(categorical_features="from_dtype", random_state=0)
    return [
        ("SVC, preprocessed", make_pipeline(columns, SVC())),
        ("HistGradientBoosting", make_pipeline(FunctionTransformer(as_categories), trees)),
    ]


def peers(task: Task) -> list[tuple[str, Any]]:
    """Return scikit-learn's models with their defaults; the SVM gets standardised data."""
    if hasattr(task.X_train, "columns"):
        return peers_for_frames()
    if task.classes:
        return [
            ("SVC, standardised", make_pipeline(StandardScaler(), SVC())),
            ("HistGradientBoosting", HistGradientBoostingClassifier(random_state=0)),
        ]
    svr = make_pipeline(StandardScaler(), SVR())
    return [
        ("SVR, standardised", TransformedTargetRegressor(svr, transformer=StandardScaler())),
        ("HistGradientBoosting", HistGradientBoostingRegressor(random_state=0)),
    ]


def ours(task: Task) -> Any:
    """Return leansvm's model: raw features, no argument but the seed."""
    return (SparseLSSVC if task.classes else SparseLSSVR)(random_state=0)


def n_points(model: Any) -> int | None:
    """Return how many training rows `predict` compares with; None for trees."""
    model = getattr(model, "regressor_", model)
    model = model[-1] if hasattr(model, "steps") else model
    return len(model.support_) if hasattr(model, "support_") else None


# --- measuring -------------------------------------------------------------


def seconds(function: Callable[..., object], *arguments: Any) -> float:
    """Wall-clock seconds of one call."""
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def measure(task: Task, name: str, model: Any, is_ours: bool) -> Result:
    """Fit once, predict once."""
    fit = seconds(model.fit, task.X_train, task.y_train)
    predict = seconds(model.predict, task.X_test)
    return Result(
        task=task,
        model=name,
        estimator=model,
        ours=is_ours,
        score=100.0 * float(model.score(task.X_test, task.y_test)),
        fit_seconds=fit,
        predict_seconds=predict,
        n_bytes=len(pickle.dumps(Predictor(model) if is_ours else model)),
        n_points=n_points(model),
    )


def run(tasks: list[Task]) -> Iterator[Result]:
    """Every model on every task, ours first; each is given out when it is measured."""
    for task in tasks:
        model = ours(task)
        yield measure(task, f"{type(model).__name__}()", model, True)
        for name, peer in peers(task):
            yield measure(task, name, peer, False)


def warm_up() -> float:
    """Fit every kind of model once on a few rows; return the seconds of leansvm's compilation."""
    rng = np.random.default_rng(0)
    X, total = rng.normal(size=(120, 3)), 0.0
    for classes in (True, False):
        y = X[:, 0] > 0 if classes else X[:, 0]
        task = _task("warm-up", "", X, y, ["a", "b", "c"], classes=classes)
        for _, model in peers(task):
            model.fit(X, y)
        total += seconds(ours(task).fit, X, y)
    return total


# --- table -----------------------------------------------------------------

COLUMNS = ("data", "model", "score %", "fit s", "predict s", "size kB", "points kept")
WIDTHS = (23, 20, 7, 6, 9, 8, 14)


def table_line(cells: tuple[str, ...]) -> str:
    """Align the cells of a row: names to the left, numbers to the right."""
    names = [cell.ljust(w) for cell, w in zip(cells[:2], WIDTHS[:2], strict=True)]
    numbers = [cell.rjust(w) for cell, w in zip(cells[2:], WIDTHS[2:], strict=True)]
    return "  ".join(names + numbers)


def table_row(r: Result) -> str:
    """One result as a line; the data set is named beside our model, which comes first."""
    points = "trees" if r.n_points is None else f"{r.n_points:,} of {len(r.task.y_train):,}"
    cells = (
        f"{r.task.name} ({r.task.metric})" if r.ours else "",
        r.model,
        f"{r.score:.1f}",
        f"{r.fit_seconds:.2f}",
        f"{r.predict_seconds:.3f}",
        f"{r.n_bytes / 1000:,.0f}",
        points,
    )
    rule = "  ".join("-" * w for w in WIDTHS) + "\n" if r.ours else ""
    return rule + table_line(cells)


def timing_note(compilation: float) -> str:
    """Say how the numbers were made."""
    return (
        "Higher scores are better; lower times and sizes are better. All models have default "
        "parameters. SVC and SVR get standardised features (SVR also a standardised target), the "
        "others raw features. On customers, leansvm gets the raw data frame, SVC gets imputed and "
        "one-hot encoded columns, and HistGradientBoosting gets categories instead of text. The "
        "size is that of a pickle; for leansvm it is the pickle of a "
        "Predictor, which has all that prediction needs. The data sets were chosen before any "
        "model was fitted. Each model was fitted once on one split, so differences of one percent "
        "mean little. Compilation by a first small fit is not included in the fit times "
        f"({compilation:.1f} s)."
    )


def main() -> None:
    """Run the demo from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("demo.html"), help="the page to write")
    args = parser.parse_args()

    print(
        "Training default models on seven data sets; this takes one to several minutes.\n",
        flush=True,
    )
    note = timing_note(warm_up())
    print(table_line(COLUMNS), flush=True)
    results = []
    tasks = [customers(), irrelevant(), diabetes(), checkerboard(), digits(), clusters(), steps()]
    for result in run(tasks):
        results.append(result)
        print(table_row(result), flush=True)
    print(f"\n{textwrap.fill(headline(results), 100)}")
    print(f"\n{textwrap.fill(note, 100)}")
    args.output.write_text(page(results, note), encoding="utf-8")
    print(f"\nTable and pictures: {args.output.resolve()}")


if __name__ == "__main__":
    main()
