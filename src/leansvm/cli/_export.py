"""``leansvm export``: a model file as an ONNX graph, a C header or a JavaScript module."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from leansvm.cli import _options as opt
from leansvm.cli._output import (
    CommandError,
    Json,
    Printer,
    Quiet,
    UsageError,
    guarded,
    readable,
)
from leansvm.cli._train import check_places

if TYPE_CHECKING:
    from leansvm.export import Check

_KINDS = {".onnx": "onnx", ".h": "c", ".mjs": "js", ".js": "js"}
_LARGEST = {"float64": 1e-9, "float32": 1e-4}  # larger differences are errors, not rounding


@guarded
def export(
    model: opt.ModelFile,
    output_file: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="File to write: .onnx, .h (C99), .mjs or .js (JavaScript).",
            show_default=False,
        ),
    ],
    dtype: Annotated[
        Literal["float64", "float32"],
        typer.Option(metavar="TYPE", help="Compute in float64 or float32 (.onnx, .h)."),
    ] = "float64",
    store: Annotated[
        Literal["float64", "float32", "float16", "int8"] | None,
        typer.Option(
            metavar="TYPE",
            help="Store numbers as float64, float32, float16 or int8 (.h, .mjs). Default: the same "
            "as --dtype.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Prefix of the names in a C header. Default: the name of the file."),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Export a model to ONNX, C or JavaScript, and test the exported model."""
    from leansvm.persistence import write_atomically

    output = Printer(quiet, as_json)
    kind = _KINDS.get(output_file.suffix)
    if kind is None:
        raise UsageError(f"{output_file}: the name must end in .onnx, .h, .mjs or .js")
    if kind == "onnx" and store is not None:
        raise UsageError("--store is only for .h and .mjs; use --dtype for .onnx")
    if kind == "js" and dtype != "float64":
        raise UsageError("--dtype is only for .onnx and .h: use --store for .mjs")
    if name is not None and kind != "c":
        raise UsageError("--name is only for .h: it is the prefix of the names in a C header")
    if name is not None and not (name.isidentifier() and name.isascii()):
        raise UsageError(f"--name {name}: it must be a C identifier, such as my_model")
    check_places(output_file, inputs=[model])
    with output.notes():
        loaded, metadata = _read(model)
    exported = _written(loaded, kind, dtype, store, name or _c_name(output_file.stem), metadata)
    numbers = dtype if store is None or (dtype, store) == ("float32", "float64") else store
    trial, words = _tried(loaded, exported, numbers)
    content = exported.encode() if isinstance(exported, str) else exported.SerializeToString()
    write_atomically(output_file, content)
    output.finish(
        {"output_file": output_file, "bytes": len(content), **trial},
        f"wrote {output_file}: {len(content):,} bytes; {words}",
    )
    changed = trial.get("different_labels")
    if changed and numbers in ("float16", "int8"):
        output.say(
            f"note: rounding to {numbers} changes {changed:,} of {trial['rows']:,} labels. "
            f"leansvm.export.compress compares the types on rows of your own"
        )


def _c_name(stem: str) -> str:
    """Return the name of a file as a name in C: two headers in one program must differ."""
    name = re.sub(r"\W", "_", stem, flags=re.ASCII)
    return f"model_{name}" if name[:1].isdigit() else name or "model"


def _read(path: Path) -> tuple[Any, dict[str, Any]]:
    """Return a model and the facts that its file holds, without errors of single rows."""
    from leansvm import persistence

    try:
        loaded, facts = persistence.load(path), persistence.read_metadata(path)["metadata"]
    except persistence.ModelFileError as error:
        raise CommandError(str(error)) from error
    evaluation = facts.get("evaluation")
    if isinstance(evaluation, dict):  # its errors serve intervals; exports give none
        evaluation.pop("errors", None)
    return loaded, facts


def _written(
    model: Any, kind: str, dtype: str, store: str | None, name: str, metadata: dict[str, Any]
) -> Any:
    """Return the model in another language."""
    from leansvm.export import to_c, to_js, to_onnx

    try:
        if kind == "onnx":
            return to_onnx(model, dtype=dtype, metadata=metadata)
        if kind == "c":
            return to_c(model, name=name, dtype=dtype, store=store, metadata=metadata)
        return to_js(model, store=store, metadata=metadata)
    except (ValueError, ImportError) as error:
        raise CommandError(str(error)) from error


def _tried(model: Any, exported: Any, numbers: str) -> tuple[dict[str, Any], str]:
    """Return how far the exported model is from the model, as facts and in words."""
    from leansvm.export import MissingToolError, check

    try:
        found = check(model, exported)
    except MissingToolError as error:
        return {"checked_with": None, "not_checked": str(error)}, f"not tested: {error}"
    except subprocess.CalledProcessError as error:
        raise CommandError(f"the exported model does not run: {error}") from error
    if not found.difference <= _LARGEST.get(numbers, float("inf")):
        raise CommandError(
            f"the exported model ({found.engine}) differs from Python by {found.difference:.2g} "
            f"times the sum of coefficients. That is too much, so nothing was written"
        )
    facts = {"checked_with": found.engine, "rows": found.rows, "difference": found.difference}
    facts |= {"largest_difference": found.largest, "different_labels": found.labels}
    facts |= {"lowest": found.lowest, "highest": found.highest}
    return facts, _difference(found)


def _difference(found: Check) -> str:
    """Return in words how far an exported model is from the model."""
    tested = f"tested with {found.engine} on {found.rows:,} rows"
    if found.labels is None:
        return (
            f"{tested}: values differ from Python's by at most {readable(found.largest, 2)} "
            f"(Python's lie between {readable(found.lowest)} and {readable(found.highest)})"
        )
    labels = {0: "all labels equal Python's", 1: "1 label differs from Python's"}
    return (
        f"{tested}: {labels.get(found.labels, f'{found.labels:,} labels differ from Python')}; "
        f"decision values differ by at most {readable(found.largest, 2)}"
    )
