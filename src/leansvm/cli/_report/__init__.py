"""The report of a training run: one HTML page with everything a reader asks first.

This file has the most important numbers, the time of each phase and how to use the model in Python.
Each other question has a module: how accurate the model is, which columns matter, what it says
about rows and columns, what to know and to try next, and what the model looks like.
"""

from __future__ import annotations

import shlex
import sys
from datetime import datetime
from pathlib import Path

from scipy.sparse import issparse

from leansvm._extras import needs
from leansvm.cli._output import CommandError
from leansvm.cli._read import CATEGORY, NUMBER, TRUTH
from leansvm.cli._report._accuracy import accuracy, calibration
from leansvm.cli._report._advice import next_steps, worth_knowing
from leansvm.cli._report._answers import answers
from leansvm.cli._report._importance import importance, measured
from leansvm.cli._report._model import feature_scales, sparsity, tuning
from leansvm.cli._run import TrainingRun, support_size, support_word
from leansvm.cli._scores import first_scores, in_unit
from leansvm.plotting import html


def report_page(run: TrainingRun, model_file: Path) -> str:
    """Return the page of a run whose pipeline is fitted."""
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise CommandError(needs("--report", str(error.name), "cli")) from error
    columns = measured(run)
    answered = answers(run, columns.importance)
    sections = [_facts(run), _next(next_steps(run, columns.unneeded, answered.doubtful))]
    sections += [_notes(worth_knowing(run)), importance(columns)]
    if run.evaluation is not None:
        sections += [accuracy(run), calibration(run)]
    sections += [*answered.sections, feature_scales(run), sparsity(run), tuning(run)]
    sections += [_time(run), _data(run), _use(run, model_file)]
    name = run.target or run.data.path.name
    lead = (
        f"{type(run.model).__name__} trained on {run.data.X.shape[0]:,} rows of "
        f"{run.data.path.name}, {run.task}."
    )
    return html.page(f"Training report: {name}", lead, sections, _made_by())


def _made_by() -> list[str]:
    """Return the command and the time that made the page; the versions follow."""
    command = shlex.join(["leansvm", *sys.argv[1:]])
    now = datetime.now().astimezone()
    return [f"Made by: {command}", f"On {now:%Y-%m-%d at %H:%M %Z}, with:"]


def _facts(run: TrainingRun) -> str:
    """Return the scores that fit the task beside those of the baseline, and the sizes."""
    scores: list[tuple[str, object]] = []
    if run.evaluation is not None:
        found = run.evaluation
        for name in first_scores(found.scores, run.positive, run.metric and found.metric):
            without = in_unit(name, found.baseline[name])
            value = found.words() if name == found.metric else in_unit(name, found.scores[name])
            scores.append((f"{name} (without a model {without})", value))
    rows, columns = run.data.X.shape
    sizes: list[tuple[str, object]] = [
        ("rows", f"{rows:,}"),
        ("columns", f"{columns:,}"),
        (support_word(type(run.model).__name__), f"{support_size(run.model):,}"),
        ("fit time", _seconds(run.seconds["fit"])),
    ]
    return (html.facts(scores) if scores else "") + html.facts(sizes)


def _next(steps: list[str]) -> str:
    return html.section("What to try next", html.bullets(steps), "", "next") if steps else ""


def _notes(notes: list[str]) -> str:
    return html.section("Worth knowing", html.bullets(notes), "", "notes") if notes else ""


# ---------------------------------------------------------------------------- time, data, use


def _time(run: TrainingRun) -> str:
    rows = [[name, _seconds(value)] for name, value in run.seconds.items()]
    steps = getattr(run.model, "fit_report_", {}).get("seconds", {})
    rows += [[f"fit: {name}", _seconds(value)] for name, value in steps.items()]
    table = html.table(["phase", "time"], rows)
    report = getattr(run.model, "fit_report_", {})
    words = "" if report.get("converged", True) else "It did not converge: see the notes above."
    return html.section("Time by phase", table, words, "time")


def _data(run: TrainingRun) -> str:
    X = run.data.X
    if run.data.kinds is None:
        kind = "sparse" if issparse(X) else "dense"
        text = f"{X.shape[0]:,} × {X.shape[1]:,} numbers, {kind}."
        return html.section("Data", "", text, "data")
    shown = list(run.data.kinds.items())[:100]
    rows = [
        [name, kind, f"{int(X[name].isna().sum()):,}", f"{X[name].nunique():,}"]
        for name, kind in shown
    ]
    text = (
        "A missing number becomes the median, and an indicator marks it. Categories become "
        "indicator columns; a missing value is a category of its own. Dates become a number of "
        "days, and cycles such as hour and weekday."
    )
    table = html.table(["column", "kind", "missing", "distinct"], rows)
    return html.section("Data", table, text, "data")


def _use(run: TrainingRun, model_file: Path) -> str:
    suffix = run.data.path.suffix
    shell = f"leansvm predict {model_file.name} new{suffix} -o predictions.csv"
    text = "The preprocessing is part of the model: give it columns as they are in the file."
    load = f'model = persistence.load("{model_file.name}")\n'
    kinds = set((run.data.kinds or {}).values())
    if run.data.kinds is None:
        rows = "# X: array or CSR matrix with the training file's columns\n"
        python = f"from leansvm import persistence\n\n{load}{rows}model.predict(X)"
    elif kinds <= {CATEGORY, NUMBER, TRUTH} and not run.data.form:
        reader = "read_parquet" if suffix in (".parquet", ".pq") else "read_csv"
        rows = f'X = pd.{reader}("new{suffix}")\n'
        python = (
            f"import pandas as pd\nfrom leansvm import persistence\n\n{load}{rows}model.predict(X)"
        )
    else:  # pandas would have to be told about marks, dates and answers
        text = "The command reads decimal marks, dates and yes/no in the file as training did."
        rows = "# X: frame with these columns; dates as dates, yes/no as True and False\n"
        python = f"from leansvm import persistence\n\n{load}{rows}model.predict(X)"
    return html.section("Use the model", html.code(shell) + html.code(python), text, "use")


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.0f} ms"
