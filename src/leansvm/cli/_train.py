"""``leansvm train``: from a data file to a model file and a report."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leansvm.cli import _options as opt
from leansvm.cli._output import (
    CommandError,
    Json,
    Printer,
    Quiet,
    UsageError,
    file_problem,
    guarded,
    table,
)
from leansvm.cli._run import TrainingRun, chosen_rows, support_size, support_word
from leansvm.cli._wait import fit_with_bar

if TYPE_CHECKING:
    from leansvm.cli._read import Conventions

AUTO_FOLDS = 5  # of --cv auto, if leave-one-out has no closed form or rows are few


@guarded
def train(
    data: opt.DataFile,
    output_file: opt.ModelOutput,
    target: opt.Target = None,
    estimator: opt.Estimator = "auto",
    settings: opt.Set = None,
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
    """Train a model on a data file and save it."""
    output = Printer(quiet, as_json)
    folds = folds_of(cv)
    check_places(output_file, report, inputs=[data])
    ways = conventions_of(decimal, dates, missing)
    run = start_run(data, target, drop or (), task, file_format, columns or (), ways, output)
    choose_scores(run, positive, metric)
    set_pipeline(run, estimator, settings or (), scale, calibrate, seed)
    prepare(run, folds, settings or ())
    fit_and_finish(run, folds, seed, output_file, report, output)


def conventions_of(
    decimal: str | None, dates: str | None, missing: Sequence[str] | None
) -> Conventions:
    """Return the conventions of the file that the user gave; imports what reads files."""
    from leansvm.cli._read import Conventions

    return Conventions(decimal, dates, tuple(missing or ()))


def folds_of(text: str) -> int | str:
    """Return a number of folds, "loo" or "auto"."""
    if text in ("loo", "auto"):
        return text
    if not text.isdigit() or text == "1":
        raise UsageError(f"--cv {text}: give a number of folds (2 or more), loo, auto, or 0")
    return int(text)


def prepare(
    run: TrainingRun, folds: int | str, settings: Sequence[str], grid: Sequence[str] = ()
) -> None:
    """Ask the machine for left-out residuals if the evaluation uses them."""
    if folds == "loo":
        from leansvm.cli._evaluate import prepare_leave_one_out

        prepare_leave_one_out(run.model, settings, grid)
    elif isinstance(folds, int) and folds > AUTO_FOLDS:  # so few folds become fewer, with a note
        from leansvm.cli._evaluate import check_folds

        check_folds(folds, run.y, run.task == "classification")


def check_places(*outputs: Path | None, inputs: Sequence[Path] = ()) -> None:
    """Check before the work, not after it, that the files can be written and replace no input."""
    taken = list(inputs)
    for path in outputs:
        if path is None:
            continue
        if path.is_dir():
            raise UsageError(f"{path}: this is a folder; name a file")
        if not path.parent.is_dir():
            raise UsageError(f"{path}: there is no folder {path.parent}")
        if path.exists() and not path.is_file():
            continue  # a device, which keeps nothing
        for other in taken:
            if _same_file(path, other):
                role = "an input" if other in inputs else "another output"
                raise UsageError(f"{path}: this file is {role}; choose another name")
        taken.append(path)


def _same_file(a: Path, b: Path) -> bool:
    """Whether two names mean one file, also by links or capital letters."""
    if a.exists() and b.exists():
        return a.samefile(b)
    return os.path.realpath(a) == os.path.realpath(b)


def start_run(
    path: Path,
    target: str | None,
    drop: Sequence[str],
    task: str,
    file_format: str | None,
    columns: Sequence[str],
    ways: Conventions,
    output: Printer,
) -> TrainingRun:
    """Read the file and say what was recognised."""
    from leansvm.cli._pipeline import asked_kinds, decide_task, target_words
    from leansvm.cli._read import read

    start = time.perf_counter()
    data = read(
        path,
        target=target,
        drop=drop,
        file_format=file_format,
        columns=asked_kinds(columns),
        conventions=ways,
    )
    assert data.y is not None
    notes = list(data.notes)
    task = decide_task(data.y, task, notes)
    if task == "classification" and (data.y == data.y[0]).all():
        raise CommandError(f"{path}: the target has only one class, {data.y[0]}")
    run = TrainingRun(
        data, task, target, None, notes, seconds={"read": time.perf_counter() - start}
    )
    n_rows, n_columns = data.X.shape
    output.say(f"{path.name}: {n_rows:,} rows, {n_columns:,} features, {task}")
    form = f" ({', '.join(data.form)})" if data.form else ""
    output.say(f"{data.words()}; target: {target_words(data.y, task)}{form}")
    return run


def choose_scores(run: TrainingRun, positive: str | None, metric: str | None = None) -> None:
    """Give the run its positive class and its metric; refuse those that do not fit the task."""
    import numpy as np

    from leansvm.cli._scores import baseline, score_name

    classes, counts = None, None
    if run.task == "classification":
        classes, counts = np.unique(run.y, return_counts=True)
    if classes is not None and counts is not None and len(classes) == 2:
        run.positive = classes[0] if counts[0] < counts[1] else classes[1]
        if positive is not None:
            named = [value for value in classes if str(value) == positive]
            if not named:
                known = " and ".join(str(value) for value in classes)
                raise UsageError(f"--positive {positive}: the classes are {known}")
            run.positive = named[0]
    elif positive is not None:
        raise UsageError(f"--positive {positive} needs a target of two classes")
    if metric is not None:
        score_name(metric, baseline(run.y, classes, run.positive))
    run.metric = metric


def set_pipeline(
    run: TrainingRun,
    estimator: str,
    settings: Sequence[str],
    scale: bool,
    calibrate: bool,
    seed: int,
) -> None:
    """Give the run its pipeline, not fitted."""
    from leansvm.cli._pipeline import make_estimator, make_pipeline

    model = make_estimator(estimator, run.task, settings, seed=seed, calibrate=calibrate)
    run.pipeline = make_pipeline(run.data, model, scale)


def clone_with(pipeline: Any, **parameters: Any) -> Any:
    """Return a copy, not fitted, with other parameters of the machine if it has them."""
    from sklearn.base import clone

    copy = clone(pipeline)
    known = copy[-1].get_params(deep=True)
    copy[-1].set_params(**{k: v for k, v in parameters.items() if k in known})
    return copy


def fit_and_finish(
    run: TrainingRun,
    folds: int | str,
    seed: int,
    output_file: Path,
    report: Path | None,
    output: Printer,
) -> None:
    """Fit on all rows and save; then estimate accuracy, write the report, print the summary.

    A pipeline that a search left fitted is not fitted again. What fails after the fit is told at
    the end: the model is saved whatever happens. It is saved before what takes long, folds and a
    report, and again with what they found; leave-one-out in closed form is short.
    """
    if not hasattr(run.model, "fit_report_"):
        fit(run, output)
    if folds == "auto":
        folds = _auto_folds(run)
    takes_long = folds != "loo" or report is not None
    if takes_long:
        _save(run, run.metadata(), output_file)
    kept = f"{support_size(run.model):,} {support_word(type(run.model).__name__)}"
    output.say(f"fitted in {run.seconds['fit']:.2f} s, {kept}")
    failed: list[str] = []
    try:
        _evaluate(run, folds, seed, output)
    except CommandError as error:
        failed.append(f"the accuracy cannot be estimated: {error}")
    except BaseException:  # also Ctrl-C
        if not takes_long:
            _save(run, run.metadata(), output_file)
        raise
    written = None
    if report is not None:
        try:
            _write_report(run, output_file, report)
            written = report
        except CommandError as error:
            failed.append(f"the report could not be written: {error}")
        except OSError as error:
            failed.append(f"the report could not be written: {file_problem(error)}")
    metadata = run.metadata()
    if folds or report is not None:  # which the facts that are saved do not have yet
        _save(run, metadata, output_file)
    _summarise(metadata, run, output_file, written, failed, output)
    if failed:
        raise CommandError("\n".join([*failed, f"the model itself is saved as {output_file}"]))


def fit(run: TrainingRun, output: Printer) -> None:
    """Fit the pipeline on all rows, under a bar."""
    from leansvm.cli._pipeline import encoder_of
    from leansvm.cli._read._words import quoted

    with run.phase("fit"), output.progress() as bars:
        fit_with_bar(run.pipeline, run.data.X, run.y, bars, "fit")
    reasons: dict[str, list[str]] = {}
    for name, why in getattr(encoder_of(run.pipeline), "left_out_", {}).items():
        reasons.setdefault(why, []).append(name)
    for why, names in reasons.items():
        words = "columns {} are" if len(names) > 1 else "column {} is"
        run.notes.append(f"{words.format(quoted(names))} left out: {why}")


def _auto_folds(run: TrainingRun) -> int | str:
    from leansvm.cli._evaluate import closed_form_is_enough

    enough = closed_form_is_enough(run.model, len(run.y), len(run.feature_names()))
    return "loo" if enough else AUTO_FOLDS


def _save(run: TrainingRun, metadata: dict[str, Any], output_file: Path) -> None:
    from leansvm import persistence

    # a machine that reads the table itself is saved alone: in Python it can do more than a pipeline
    model = run.model if run.pipeline[0] == "passthrough" else run.pipeline
    try:
        persistence.save(model, output_file, metadata=metadata)
    except persistence.ModelFileError as error:
        raise CommandError(str(error)) from error


def _evaluate(run: TrainingRun, folds: int | str, seed: int, output: Printer) -> None:
    """Predict every row by a model that did not see it."""
    from leansvm.cli._evaluate import MANY_COPIES, copies, cross_validate, leave_one_out

    if not folds:
        return
    with run.phase("evaluate"):
        if folds == "loo":
            run.evaluation = leave_one_out(run.pipeline, run.y, run.metric, run.positive)
            same, _ = copies(run)
            if same > MANY_COPIES * len(run.y):
                run.evaluation.notes = [
                    f"{same:,} rows are copies of earlier rows, and leave-one-out leaves out a row "
                    f"together with its copies: the scores are too low for new rows like these "
                    f"(--cv 5 does not do this)"
                ]
        else:
            model, n = run.pipeline, len(run.y)
            if run.model.get_params().get("n_basis") == "auto":  # the folds need no search for it
                fewest = n - math.ceil(n / int(folds))  # rows of a fold
                model = clone_with(model, n_basis=min(support_size(run.model), fewest))
            run.evaluation = cross_validate(
                model, run.data.X, run.y, int(folds), seed, output, run.metric, run.positive
            )
    run.notes += run.evaluation.notes


def _write_report(run: TrainingRun, output_file: Path, report: Path) -> None:
    from leansvm.cli._report import report_page
    from leansvm.persistence import write_atomically

    with run.phase("report"):
        page = report_page(run, output_file)
    write_atomically(report, page.encode())


def _score_rows(run: TrainingRun) -> list[list[str]]:
    """Return the most important scores beside those of the baseline."""
    from leansvm.cli._scores import first_scores, in_unit

    found = run.evaluation
    rows: list[list[str]] = []
    if found is None:
        return rows
    for name in first_scores(found.scores, run.positive, run.metric and found.metric):
        value = found.words() if name == found.metric else in_unit(name, found.scores[name])
        rows.append([name, f"{value} (without a model {in_unit(name, found.baseline[name])})"])
    return [*rows, ["estimated by", found.method]]


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
    rows.append([support_word(metadata["estimator"]), f"{metadata['support']:,}"])
    rows += _score_rows(run)
    rows.append(["seconds", ", ".join(f"{k} {v:.2f}" for k, v in run.seconds.items())])
    rows.append(["saved as", str(output_file)])
    if report is not None:
        rows.append(["report", str(report)])
    result = {**metadata, "model_file": output_file, "report_file": report, "failed": failed}
    output.finish(result, table(["", ""], rows))
