"""``leansvm predict`` and ``leansvm info``: use a model file, and see what is in it."""

from __future__ import annotations

import csv
import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leansvm.cli import _options as opt
from leansvm.cli._output import CommandError, Json, Printer, Quiet, UsageError, guarded, table
from leansvm.cli._run import chosen_rows, in_words, support_word
from leansvm.cli._train import check_places

if TYPE_CHECKING:
    import numpy as np

    from leansvm.cli._read import FileData

_LITTLE_WORK = 2**27  # rows x points x features that take less time than to load numba


@guarded
def predict(
    model: opt.TrainedFile,
    data: opt.DataFile,
    output_file: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="CSV or Parquet file to write. Default: CSV to stdout.",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Column to copy to the output, such as an id. Can be repeated.",
            show_default=False,
        ),
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(
            metavar="LEVEL",
            help="For predicted numbers: add the columns lower and upper. About this share of "
            "the targets lies between them, for example 0.9.",
            show_default=False,
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse categories that did not occur in training.")
    ] = False,
    safe_csv: Annotated[
        bool,
        typer.Option(help="Put ' in front of labels that a spreadsheet would take for a formula."),
    ] = True,
    file_format: opt.FileFormat = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Predict every row of a data file; if the file has the target, print the score, too."""
    from leansvm.cli._read import read_like
    from leansvm.cli._scores import in_unit

    output = Printer(quiet, as_json)
    check_places(output_file, inputs=[model, data])
    facts = _facts_of_training(model)
    width = None if interval is None else _width(facts, interval, model)
    rows = read_like(
        data,
        facts["columns"],
        facts["n_features"],
        target=facts["target"],
        file_format=file_format,
        reading=facts.get("reading"),
        keep=keep or (),
    )
    with output.notes():
        pipeline = _load(model)
    try:
        _check_categories(pipeline, rows, strict, output)
        with output.notes():
            result = _predictions(pipeline, rows, facts.get("support"))
        if width is not None:
            result |= {"lower": result["prediction"] - width, "upper": result["prediction"] + width}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CommandError(f"{model} cannot predict the rows of {data}: {error}") from error
    summary: dict[str, Any] = {"rows": len(result["prediction"])}
    written = _with_kept(rows, result)
    if output_file is not None:  # before the score, which may fail
        _write(written, output_file, safe_csv)
    elif not as_json:
        output.data(_csv(written, safe_csv).decode())
    if rows.y is not None:
        summary.update(_score(pipeline, rows.y, result["prediction"], data))
        for name in ("accuracy", "R²"):
            if name in summary:
                output.say(f"{name} {summary[name]:.4f} on {summary['rows']:,} rows")
        found = _more_scores(pipeline, rows.y, result, facts)
        if found:
            summary["scores"] = found
            output.say(", ".join(f"{name} {in_unit(name, v)}" for name, v in found.items()))
    elif rows.no_score:
        output.say(f"note: no score: {rows.no_score}")
    if output_file is not None:
        output.finish({**summary, "output_file": output_file}, f"wrote {output_file}")
    elif as_json:
        kept = {name: column.to_pylist() for name, column in rows.kept.items()}
        output.finish({**summary, **kept, **result})


@guarded
def info(model: opt.ModelFile, as_json: Json = False) -> None:
    """Show what a model file contains, without loading the model."""
    facts = _facts(model)
    try:
        rows = _info_rows(facts, model)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise CommandError(f"{model}: its metadata was not written by leansvm train") from error
    Printer(as_json=as_json).finish(facts, table(["", ""], rows))


def _info_rows(facts: dict[str, Any], model: Path) -> list[list[str]]:
    """Return a name and a text for everything worth knowing about a model file."""
    known = facts["metadata"]
    rows = [["model", known.get("estimator", facts["model"])]]
    for name in ("task", "target", "data", "rows", "n_features", "support", "created"):
        if known.get(name) is not None:
            words = {"n_features": "columns", "support": support_word(rows[0][1])}
            rows.append([words.get(name, name), str(known[name])])
    if known.get("classes"):
        rows.append(["classes", ", ".join(str(value) for value in known["classes"])])
    rows += chosen_rows(known)
    evaluation = known.get("evaluation")
    if evaluation:
        shown = {evaluation["metric"]: evaluation["score"]}
        known_scores = evaluation.get("scores", {})
        of_class = [name for name in known_scores if name.startswith(("recall of ", "average pr"))]
        shown |= {name: known_scores[name] for name in (*of_class, "AUC") if name in known_scores}
        rows += [[name, in_words(score)] for name, score in shown.items()]
        rows.append(["estimated by", evaluation["method"]])
    changed = {k: v for k, v in known.get("parameters", {}).items() if v is not None}
    if changed:
        rows.append(["parameters", ", ".join(f"{k}={v}" for k, v in changed.items())])
    if known.get("columns"):
        rows.append(["columns used", ", ".join(f"{k} ({v})" for k, v in known["columns"].items())])
    rows.append(["written by", f"leansvm {facts['leansvm']}, scikit-learn {facts['scikit-learn']}"])
    load = f'leansvm.load("{model}")'
    rows.append(["load it with", load])
    return rows


def _facts(path: Path) -> dict[str, Any]:
    from leansvm import persistence

    try:
        return persistence.read_metadata(path)
    except persistence.ModelFileError as error:
        raise CommandError(str(error)) from error


def _facts_of_training(path: Path) -> dict[str, Any]:
    """Return the facts that train stores with a model; check them, as anybody may write a file."""
    from leansvm.cli._read import KINDS

    facts = _facts(path)["metadata"]
    if "n_features" not in facts:
        raise CommandError(
            f"{path}: this model was saved in Python and does not say how to read data files: "
            f"predict in Python, with leansvm.load({str(path)!r}).predict(frame)"
        )
    columns, target = facts.get("columns"), facts.get("target")
    named = isinstance(columns, dict) and all(
        isinstance(kind, str) and kind in KINDS for kind in columns.values()
    )
    known = type(facts["n_features"]) is int and isinstance(facts.get("reading") or {}, dict)
    if not known or not (columns is None or named) or not isinstance(target, str | None):
        raise CommandError(f"{path}: its metadata was not written by leansvm train")
    return {**facts, "columns": columns, "target": target}


def _load(path: Path) -> Any:
    from leansvm import persistence

    try:
        return persistence.load(path)
    except persistence.ModelFileError as error:
        raise CommandError(str(error)) from error


def _check_categories(pipeline: Any, rows: FileData, strict: bool, output: Printer) -> None:
    from leansvm.cli._pipeline import unknown_categories

    for column, values in unknown_categories(pipeline, rows).items():
        shown = ", ".join(repr(value) for value in values[:5])
        more = f" and {len(values) - 5} more" if len(values) > 5 else ""
        text = f"{rows.path}, column '{column}': {shown}{more} did not occur in training"
        if strict:
            raise CommandError(text)
        output.say(f"note: {text}; treated as a rare value")


def _predictions(pipeline: Any, rows: FileData, n_points: Any) -> dict[str, np.ndarray]:
    from leansvm._compile import uncompiled

    n_values = rows.X.shape[0] * rows.X.shape[1]
    little = isinstance(n_points, int) and n_values * n_points <= _LITTLE_WORK
    with warnings.catch_warnings(), uncompiled(little):  # the values were already reported
        warnings.filterwarnings("ignore", "Found unknown categories", UserWarning)
        result = {"prediction": pipeline.predict(rows.X)}
        if hasattr(pipeline, "predict_proba"):
            probabilities = pipeline.predict_proba(rows.X)
            for j, name in enumerate(pipeline.classes_):
                result[f"probability_{name}"] = probabilities[:, j]
    return result


def _width(facts: dict[str, Any], level: float, model: Path) -> float:
    """Return half the width of intervals, by the left-out errors that train keeps with a model."""
    from leansvm.cli._evaluate import half_width

    if not 0 < level < 1:
        raise UsageError(f"--interval {level:g}: it must be between 0 and 1, such as 0.9")
    if facts.get("task") != "regression":
        raise UsageError(f"--interval is only for predicted numbers; {model} predicts classes")
    evaluation, n_rows = facts.get("evaluation"), facts.get("rows")
    if evaluation is None:
        raise UsageError(
            f"--interval: {model} has no errors of left-out rows; train it without --cv 0"
        )
    found = evaluation.get("errors") if isinstance(evaluation, dict) else None
    errors = found if isinstance(found, list) and all(type(e) is float for e in found) else []
    if not errors or type(n_rows) is not int or n_rows < len(errors):
        raise UsageError(f"--interval: {model} has no list of errors; train it again")
    return half_width(errors, n_rows, level)


def _with_kept(rows: FileData, result: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return the columns of the output: those of the file that are kept, then the predictions."""
    for name in rows.kept:
        if name in result:
            raise UsageError(f"--keep {name}: the output already has a column of this name")
    return {**rows.kept, **result}


def _score(pipeline: Any, y: np.ndarray, predicted: np.ndarray, path: Path) -> dict[str, float]:
    from leansvm.cli._evaluate import metric_of

    name, score = metric_of(pipeline)
    if name == "R²" and y.dtype.kind in "US":
        raise CommandError(f"{path}: the target column is text, but the model predicts numbers")
    if name == "accuracy" and y.dtype.kind != predicted.dtype.kind:
        y, predicted = y.astype(str), predicted.astype(str)
    return {name: float(score(y, predicted))}


def _more_scores(
    pipeline: Any, y: np.ndarray, result: dict[str, np.ndarray], facts: dict[str, Any]
) -> dict[str, float]:
    """Return the other scores that training showed first, if the target has the same classes."""
    import numpy as np

    from leansvm.cli._scores import all_scores, first_scores

    classes, predicted = getattr(pipeline, "classes_", None), result["prediction"]
    if classes is None:
        return {n: v for n, v in all_scores(y, predicted, None, None).items() if n != "R²"}
    shares = [result[n] for n in (f"probability_{label}" for label in classes) if n in result]
    if y.dtype.kind != predicted.dtype.kind:
        y, predicted, classes = (values.astype(str) for values in (y, predicted, classes))
        shares = []
    if not {*y.tolist()} <= {*classes.tolist()}:
        return {}
    known, positive = (facts.get("evaluation") or {}).get("scores", {}), None
    if len(classes) == 2:
        positive = next((label for label in classes if f"recall of {label}" in known), None)
    probabilities = np.column_stack(shares) if shares else None
    found = all_scores(y, predicted, probabilities, classes, positive)
    return {n: found[n] for n in first_scores(found, positive, None) if n != "accuracy"}


def _csv(result: dict[str, Any], safe: bool) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_guarded(name) for name in result] if safe else result)
    columns: list[list[Any]] = []
    for name, values in result.items():
        if name.startswith("probability_") and not hasattr(values, "to_pylist"):
            columns.append([f"{value:.6g}" for value in values])
        else:
            found = values.to_pylist() if hasattr(values, "to_pylist") else values.tolist()
            columns.append([_guarded(value) for value in found] if safe else found)
    writer.writerows(zip(*columns, strict=True))
    return text.getvalue().encode()


def _guarded(value: Any) -> Any:
    """Return text that a spreadsheet shows and does not compute; numbers stay as they are."""
    formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if formula else value


def _write(result: dict[str, Any], path: Path, safe_csv: bool) -> None:
    from leansvm.persistence import write_atomically

    if path.suffix in (".parquet", ".pq"):
        import pyarrow as pa
        from pyarrow import parquet

        buffer = io.BytesIO()
        parquet.write_table(pa.table(result), buffer)
        write_atomically(path, buffer.getvalue())
    else:
        write_atomically(path, _csv(result, safe_csv))
