"""``leansvm tune``: compare parameters, then train and save the best model."""

from __future__ import annotations

from typing import Annotated

import typer

from leansvm.cli import _options as opt
from leansvm.cli._output import Json, Printer, Quiet, guarded
from leansvm.cli._train import (
    AUTO_FOLDS,
    check_places,
    choose_scores,
    conventions_of,
    fit_and_finish,
    folds_of,
    prepare,
    set_pipeline,
    start_run,
)

Grid = Annotated[
    list[str] | None,
    typer.Option(
        "--grid",
        "-g",
        metavar="NAME=V1,V2,...",
        help="Values of a parameter to compare by cross-validation. Can be repeated. Default: "
        "values of gamma, and of C if the estimator does not choose it itself.",
        show_default=False,
    ),
]


@guarded
def tune(
    data: opt.DataFile,
    output_file: opt.ModelOutput,
    target: opt.Target = None,
    estimator: opt.Estimator = "auto",
    settings: opt.Set = None,
    grid: Grid = None,
    task: opt.Task = "auto",
    drop: opt.Drop = None,
    columns: opt.Columns = None,
    missing: opt.Missing = None,
    decimal: opt.Decimal = None,
    dates: opt.Dates = None,
    cv: opt.Cv = "auto",
    report: opt.Report = None,
    positive: opt.Positive = None,
    metric: opt.Metric = None,
    scale: opt.Scale = True,
    calibrate: opt.Calibrate = True,
    file_format: opt.FileFormat = None,
    seed: opt.Seed = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Compare parameter values, then train and save the best model."""
    from leansvm.cli._tune_search import (
        compares_by_leaving_out,
        metric_of_search,
        search_along_path,
        search_grid,
    )

    output = Printer(quiet, as_json)
    folds = folds_of(cv)
    check_places(output_file, report, inputs=[data])
    ways = conventions_of(decimal, dates, missing)
    run = start_run(data, target, drop or (), task, file_format, columns or (), ways, output)
    choose_scores(run, positive, metric)
    set_pipeline(run, estimator, settings or (), scale, calibrate, seed)
    prepare(run, folds, settings or (), grid or ())
    run.compared_by = metric_of_search(run)
    if not grid and compares_by_leaving_out(run.model):
        search_along_path(run, output)
    else:
        n_folds = folds if isinstance(folds, int) and folds > 1 else AUTO_FOLDS
        search_grid(run, grid or (), n_folds, seed, output)
    # other folds than those of the search, which the chosen parameters fit a little too well
    fit_and_finish(run, folds, seed + 1, output_file, report, output)
