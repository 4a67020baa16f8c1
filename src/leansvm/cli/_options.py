"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

DataFile = Annotated[
    Path, typer.Argument(help="CSV, Parquet, LIBSVM/SVMlight or npz file.", show_default=False)
]
ModelFile = Annotated[
    Path, typer.Argument(help="Model file of train, tune or model.save.", show_default=False)
]
TrainedFile = Annotated[
    Path, typer.Argument(help="Model file of train or tune.", show_default=False)
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        metavar="COLUMN",
        help="Column to predict; needed for CSV and Parquet files.",
        show_default=False,
    ),
]
Task = Annotated[
    Literal["auto", "classification", "regression"],
    typer.Option(
        metavar="TASK",
        help="classification, regression or auto: classification if the target is text or has few "
        "different whole numbers.",
    ),
]
Estimator = Annotated[
    str,
    typer.Option(
        "--estimator",
        "-e",
        metavar="NAME",
        help="auto (the same as sparse), sparse, lssvm, reduced, l2, low-rank, or a class name "
        "such as SparseLSSVC.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="NAME=VALUE",
        help="Set a parameter of the estimator, such as n_basis=200. Can be repeated.",
        show_default=False,
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="Column to ignore. Can be repeated.", show_default=False),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="NAME=KIND",
        help="Read a column as number, category, date, time or yes/no. Can be repeated.",
        show_default=False,
    ),
]
Missing = Annotated[
    list[str] | None,
    typer.Option(
        "--missing",
        metavar="TEXT",
        help="Read this text as a missing value, like NA, ? and -. Can be repeated.",
        show_default=False,
    ),
]
Decimal = Annotated[
    Literal[".", ","] | None,
    typer.Option(
        metavar="MARK",
        help="Decimal mark, a point or a comma. Default: recognised from the file.",
        show_default=False,
    ),
]
Dates = Annotated[
    Literal["day-first", "month-first"] | None,
    typer.Option(
        metavar="ORDER",
        help="day-first or month-first: how to read 03/04/2024. Default: recognised from the file.",
        show_default=False,
    ),
]
Cv = Annotated[
    str,
    typer.Option(
        "--cv",
        metavar="FOLDS",
        help="How to estimate the accuracy: a number of folds, loo (leave-one-out), or 0 for no "
        "estimate. auto: loo from 1,000 rows and 50 rows per feature on, if the estimator supports "
        "it; otherwise 5.",
    ),
]
FileFormat = Annotated[
    Literal["csv", "parquet", "svmlight", "npz"] | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="Format of the data file: csv, parquet, svmlight or npz. Default: from its name.",
        show_default=False,
    ),
]
Scale = Annotated[
    bool,
    typer.Option(help="Standardise numbers (always done if the file has text or dates)."),
]
Calibrate = Annotated[bool, typer.Option(help="Compute class probabilities.")]
Report = Annotated[
    Path | None,
    typer.Option(help="Write an HTML report to this file.", show_default=False),
]
Positive = Annotated[
    str | None,
    typer.Option(
        metavar="CLASS",
        help="Which of two classes is the positive one. Default: the rarer one.",
        show_default=False,
    ),
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
        metavar="SCORE",
        help="Score to show first and to use for column importance: mae, rmse, r2, accuracy, "
        "balanced-accuracy, recall, precision, f1, average-precision, auc or log-loss. Default: "
        "depends on the task.",
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option(help="Random seed.")]
ModelOutput = Annotated[
    Path, typer.Option("--output", "-o", help="Model file to write.", show_default=False)
]
