"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

DataFile = Annotated[
    Path, typer.Argument(help="CSV, Parquet, LIBSVM/SVMlight or npz file.", show_default=False)
]
ModelFile = Annotated[Path, typer.Argument(help="File that train or tune wrote.")]
Target = Annotated[
    str | None,
    typer.Option("--target", "-t", help="Column to predict (CSV, Parquet).", show_default=False),
]
Task = Annotated[
    Literal["auto", "classification", "regression"],
    typer.Option(help="auto takes text and few whole numbers as classes."),
]
Estimator = Annotated[
    str,
    typer.Option(
        "--estimator",
        "-e",
        help="auto, lssvm, sparse, reduced, low-rank, l2, or a class name such as SparseLSSVC.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="NAME=VALUE",
        help="Parameter of the estimator; repeat it for more.",
        show_default=False,
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(help="Column to leave out; repeat it for more.", show_default=False),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="NAME=KIND",
        help="Kind of a column: number, category, date, time or yes/no. Repeat it for more.",
        show_default=False,
    ),
]
Missing = Annotated[
    list[str] | None,
    typer.Option(
        "--missing",
        metavar="TEXT",
        help="Text that stands for a missing value, beside NA, ?, - and the like.",
        show_default=False,
    ),
]
Decimal = Annotated[
    Literal[".", ","] | None,
    typer.Option(help="Decimal mark; default: as the file shows.", show_default=False),
]
Dates = Annotated[
    Literal["day-first", "month-first"] | None,
    typer.Option(help="Order of 03/04/2024; default: as the file shows.", show_default=False),
]
Cv = Annotated[
    str,
    typer.Option(
        "--cv",
        help="How to estimate accuracy: a number of folds, loo (exact leave-one-out) or 0 (not at "
        "all). auto takes loo for many rows, where the estimator has it, else 5 folds.",
    ),
]
FileFormat = Annotated[
    Literal["csv", "parquet", "svmlight", "npz"] | None,
    typer.Option("--format", help="Format of DATA; default: by its name.", show_default=False),
]
Scale = Annotated[
    bool,
    typer.Option(help="Standardise numbers; with text or dates the estimator does so itself."),
]
Calibrate = Annotated[bool, typer.Option(help="Fit class probabilities.")]
Report = Annotated[
    Path | None,
    typer.Option(help="Write a report of the run to this HTML file.", show_default=False),
]
Positive = Annotated[
    str | None,
    typer.Option(help="Positive class of two; default: the rarer one.", show_default=False),
]
Metric = Annotated[
    Literal[
        "mae",
        "rmse",
        "r2",
        "accuracy",
        "balanced-accuracy",
        "recall",
        "precision",
        "f1",
        "average-precision",
        "auc",
        "log-loss",
    ]
    | None,
    typer.Option(
        help="Score shown first and used for importance; default: one that fits the task.",
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of every random choice.")]
ModelOutput = Annotated[
    Path, typer.Option("--output", "-o", help="Model file to write.", show_default=False)
]
