"""``leansvm train`` and ``leansvm tune``: from a data file to a model file and a report."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from leansvm.cli import _options as opt
from leansvm.cli._output import (
    CommandError,
    Json,
    Printer,
    Quiet,
    file_problem,
    guarded,
    table,
)
from leansvm.cli._run import TrainingRun, chosen_rows, in_words, support_size

Cv = Annotated[
    str,
    typer.Option(
        "--cv", help="Folds of the cross-validation that estimates accuracy, loo, or 0 for none."
    ),
]
Grid = Annotated[
    list[str] | None,
    typer.Option(
        "--grid",
        "-g",
        metavar="NAME=V1,V2,...",
        help="Values to try; repeat it for more parameters. Default: gamma, and C where the "
        "estimator does not choose it by itself.",
        show_default=False,
    ),
]


@guarded
def train(
    data: opt.DataFile,
    output_file: opt.ModelOutput,
    target: opt.Target = None,
    estimator: opt.Estimator = "auto",
    settings: opt.Set = None,
    task: opt.Task = "auto",
    drop: opt.Drop = None,
    cv: Cv = "5",
    report: opt.Report = None,
    scale: opt.Scale = True,
    calibrate: opt.Calibrate = True,
    file_format: opt.FileFormat = None,
    seed: opt.Seed = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a model on a data file and save it."""
    output = Printer(quiet, as_json)
    folds = _folds(cv)
    check_places(output_file, report)
    run = _start(data, target, drop or (), task, file_format, output)
    _make_pipeline(run, estimator, settings or (), scale, calibrate, seed)
    if folds == "loo":
        from leansvm.cli._evaluate import prepare_leave_one_out

        prepare_leave_one_out(run.model)
    _fit_and_finish(run, folds, seed, output_file, report, output)


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
    cv: Annotated[int, typer.Option("--cv", min=2, help="Folds of the cross-validation.")] = 5,
    report: opt.Report = None,
    scale: opt.Scale = True,
    calibrate: opt.Calibrate = True,
    file_format: opt.FileFormat = None,
    seed: opt.Seed = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Try parameters by cross-validation, then train and save the best model."""
    output = Printer(quiet, as_json)
    check_places(output_file, report)
    run = _start(data, target, drop or (), task, file_format, output)
    _make_pipeline(run, estimator, settings or (), scale, calibrate, seed)
    _search(run, grid or (), cv, seed, output)
    # other folds than those of the search, which the chosen parameters fit a little too well
    _fit_and_finish(run, cv, seed + 1, output_file, report, output)


def _folds(text: str) -> int | str:
    if text == "loo":
        return text
    if not text.isdigit() or text == "1":
        raise typer.BadParameter(f"{text} is neither a number of folds, nor loo, nor 0", None)
    return int(text)


def check_places(*paths: Path | None) -> None:
    """Find out before the work, not after it, that a file cannot be written."""
    for path in paths:
        if path is None:
            continue
        if path.is_dir():
            raise CommandError(f"{path}: this is a folder; name a file")
        if not path.parent.is_dir():
            raise CommandError(f"{path}: there is no folder {path.parent}")


def _start(
    path: Path,
    target: str | None,
    drop: Sequence[str],
    task: str,
    file_format: str | None,
    output: Printer,
) -> TrainingRun:
    from leansvm.cli._pipeline import decide_task
    from leansvm.cli._read import read

    start = time.perf_counter()
    data = read(path, target=target, drop=drop, file_format=file_format)
    assert data.y is not None
    notes = list(data.notes)
    task = decide_task(data.y, task, notes)
    if task == "classification" and (data.y == data.y[0]).all():
        raise CommandError(f"{path}: the target has one class only, {data.y[0]}")
    run = TrainingRun(
        data, task, target, None, notes, seconds={"read": time.perf_counter() - start}
    )
    rows, columns = data.X.shape
    output.say(f"{path.name}: {rows:,} rows, {columns} features, {task}")
    return run


def _make_pipeline(
    run: TrainingRun,
    estimator: str,
    settings: Sequence[str],
    scale: bool,
    calibrate: bool,
    seed: int,
) -> None:
    from leansvm.cli._pipeline import make_estimator, make_pipeline

    model = make_estimator(estimator, run.task, settings, seed=seed, calibrate=calibrate)
    run.pipeline = make_pipeline(run.data, model, scale)


def _search(
    run: TrainingRun, grid: Sequence[str], n_folds: int, seed: int, output: Printer
) -> None:
    """Score every combination by cross-validation; give the best to the pipeline."""
    from leansvm.cli._evaluate import candidates, cross_validate

    space = _grid(run, grid)
    tried = list(candidates(space))
    with run.phase("search"), output.progress() as bars:
        silent = Printer(quiet=True)
        # probabilities take no part in the choice
        probe = clone_with(run.pipeline, calibrate=False)
        for values in bars.track(tried, description="search"):
            model = clone_with(probe, **values)
            found = cross_validate(model, run.data.X, run.y, n_folds, seed, silent)
            run.trials.append({**values, "score": found.score, "spread": found.spread})
    # of equal scores the one nearest to the middle of the grid
    middle = (len(tried) - 1) / 2
    ranked = [(trial["score"], -abs(i - middle)) for i, trial in enumerate(run.trials)]
    best = run.trials[ranked.index(max(ranked))]
    run.pipeline = clone_with(run.pipeline, **{name: best[name] for name in space})
    chosen = ", ".join(f"{name} = {in_words(best[name])}" for name in space)
    output.say(f"{len(tried)} candidates tried; best: {chosen}")
    run.notes += _at_the_edge(space, best)


def clone_with(pipeline: Any, **parameters: Any) -> Any:
    """Return a copy, not fitted, with other parameters of the machine where it has them."""
    from sklearn.base import clone

    copy = clone(pipeline)
    known = copy[-1].get_params(deep=True)
    copy[-1].set_params(**{k: v for k, v in parameters.items() if k in known})
    return copy


def _grid(run: TrainingRun, grid: Sequence[str]) -> dict[str, list[Any]]:
    from leansvm.cli._pipeline import parse_settings, parse_value

    known, name = run.model.get_params(deep=True), type(run.model).__name__
    if grid:
        texts = [item.partition("=") for item in grid]
        parse_settings([f"{key}{sign}0" for key, sign, _ in texts], known, name)
        return {key: [parse_value(v) for v in values.split(",")] for key, _, values in texts}
    space: dict[str, list[Any]] = {}
    if "gamma" in known:
        with run.phase("search"):
            X = run.pipeline[:-1].fit_transform(run.data.X, run.y)
        variance = float(X.multiply(X).mean() - X.mean() ** 2 if hasattr(X, "nnz") else X.var())
        scale = 1.0 / (X.shape[1] * variance) if variance > 0 else 1.0
        space["gamma"] = [float(f"{scale * 4.0**k:.3g}") for k in range(-3, 4)]
        if known["gamma"] == "learn":  # one for each feature, beside one for all
            space["gamma"].append("learn")
    else:
        space["n_basis"] = [3, 5, 10, 20]
    if not isinstance(run.model.C, str):
        space["C"] = [0.1, 1.0, 10.0, 100.0]
    return space


def _at_the_edge(space: dict[str, list[Any]], best: dict[str, Any]) -> list[str]:
    notes = []
    for name, values in space.items():
        numbers = sorted(value for value in values if isinstance(value, (int, float)))
        if len(numbers) > 2 and best[name] in (numbers[0], numbers[-1]):
            end = "smallest" if best[name] == numbers[0] else "largest"
            notes.append(
                f"the best {name}, {in_words(best[name])}, is the {end} that was tried: "
                f"a wider --grid may do better"
            )
    return notes


def _fit_and_finish(
    run: TrainingRun,
    folds: int | str,
    seed: int,
    output_file: Path,
    report: Path | None,
    output: Printer,
) -> None:
    """Fit on all rows and save; then estimate accuracy, write the report, print the summary.

    What fails after the fit is told at the end: the model is saved whatever happens.
    """
    with run.phase("fit"), output.progress() as bars:
        bars.add_task("fit", total=None)
        run.pipeline.fit(run.data.X, run.y)
    _save(run, run.metadata(), output_file)
    output.say(f"fitted in {run.seconds['fit']:.2f} s, {support_size(run.model):,} support vectors")
    failed: list[str] = []
    try:
        _evaluate(run, folds, seed, output)
    except CommandError as error:
        failed.append(f"the accuracy is not known: {error}")
    written = None
    if report is not None:
        try:
            _write_report(run, output_file, report)
            written = report
        except CommandError as error:
            failed.append(f"there is no report: {error}")
        except OSError as error:
            failed.append(f"there is no report: {file_problem(error)}")
    metadata = run.metadata()
    if folds or report is not None:  # which the facts that are saved do not have yet
        _save(run, metadata, output_file)
    _summarise(metadata, run, output_file, written, failed, output)
    if failed:
        raise CommandError("\n".join([*failed, f"the model itself is saved as {output_file}"]))


def _save(run: TrainingRun, metadata: dict[str, Any], output_file: Path) -> None:
    from leansvm import persistence

    try:
        persistence.save(run.pipeline, output_file, metadata=metadata)
    except persistence.ModelFileError as error:
        raise CommandError(str(error)) from error


def _evaluate(run: TrainingRun, folds: int | str, seed: int, output: Printer) -> None:
    """Predict every row by a model that did not see it."""
    from leansvm.cli._evaluate import cross_validate, leave_one_out

    if not folds:
        return
    with run.phase("evaluate"):
        if folds == "loo":
            run.evaluation = leave_one_out(run.pipeline, run.y)
        else:
            model, n = run.pipeline, len(run.y)
            if run.model.get_params().get("n_basis") == "auto":  # the folds need no search for it
                fewest = n - math.ceil(n / int(folds))  # rows of a fold
                model = clone_with(model, n_basis=min(len(run.model.support_), fewest))
            run.evaluation = cross_validate(model, run.data.X, run.y, int(folds), seed, output)
    run.notes += run.evaluation.notes


def _write_report(run: TrainingRun, output_file: Path, report: Path) -> None:
    from leansvm.cli._report import report_page
    from leansvm.persistence import write_atomically

    with run.phase("report"):
        page = report_page(run, output_file)
    write_atomically(report, page.encode())


def _summarise(
    metadata: dict[str, Any],
    run: TrainingRun,
    output_file: Path,
    report: Path | None,
    failed: list[str],
    output: Printer,
) -> None:
    for note in run.notes:
        output.say(f"note: {note}")
    rows = [["model", metadata["estimator"]]]
    rows += chosen_rows(metadata)
    rows.append(["support vectors", f"{metadata['support']:,}"])
    if run.evaluation is not None:
        rows.append([run.evaluation.metric, f"{run.evaluation.words()} ({run.evaluation.method})"])
    rows.append(["seconds", ", ".join(f"{k} {v:.2f}" for k, v in run.seconds.items())])
    rows.append(["saved as", str(output_file)])
    if report is not None:
        rows.append(["report", str(report)])
    result = {**metadata, "model_file": output_file, "report_file": report, "failed": failed}
    output.finish(result, table(["", ""], rows))
