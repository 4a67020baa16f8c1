"""The rows of the report whose target is least plausible in the model without them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.cli._evaluate import later_copies, left_out_predictions
from leansvm.cli._output import readable
from leansvm.cli._run import TrainingRun
from leansvm.inspection import Importance, RowInspection, inspect_rows
from leansvm.plotting import html

SHOWN_ROWS, SHOWN_VALUES = 10, 4
CLEAR, FAR = 0.95, 3.0  # probability of a wrong label, error over the typical one, worth a check


def strongest(importance: Importance, count: int) -> list[str]:
    """Return the names of the most important columns."""
    return [importance.names[i] for i in importance.strongest(count)]


def position(X: Any, name: str) -> int:
    """Return the number of a column; an array's are x0, x1, ..."""
    return list(X.columns).index(name) if hasattr(X, "columns") else int(name[1:])


def suspicious(run: TrainingRun, X: Any, importance: Importance | None) -> tuple[str, list[int]]:
    """List the rows whose target is least plausible in the model without them."""
    found = inspect_rows(run.model, X, run.y)
    predicted = left_out_predictions(run.model, run.y, found.residual)
    listed = ~later_copies(run) & (predicted != run.y)
    worst = [int(i) for i in found.most_suspicious(len(run.y)) if listed[i]][:SHOWN_ROWS]
    if not worst:
        text = "The model without each row predicts the target of every row."
        return html.section("Which rows look wrong?", "", text, "rows"), []
    label, meaning, suspicion, clear = _suspicion(run, found)
    names = [] if importance is None else strongest(importance, SHOWN_VALUES)
    places = [position(run.data.X, name) for name in names]
    rows = [
        [
            f"{i + 1:,}",
            _short(run.y[i]),
            _short(predicted[i]),
            suspicion[i],
            "better" if found.influence[i] > 0 else "worse",
            *(_value(run.data.X, i, c) for c in places),
        ]
        for i in worst
    ]
    head = ["row", "target", "predicted without it", label, "others without it", *names]
    text = (
        f"These rows have the largest errors in the model without the row. Either the target is "
        f'wrong or the case is rare. {meaning} "Others without it" says whether the other rows '
        f"would be predicted better or worse without this row. Row 1 is the first row of the file. "
        f"The last columns of the table show the most important columns of the file."
    )
    table = html.section("Which rows look wrong?", html.table(head, rows), text, "rows")
    return table, [i for i in worst if clear[i]]


def _suspicion(
    run: TrainingRun, found: RowInspection
) -> tuple[str, str, list[str], NDArray[np.bool_]]:
    """Return heading, meaning and text of what is suspicious about rows, and where it is clear."""
    if run.task == "classification":
        meaning = "Suspicion is high if the other rows disagree with the target."
        shares = found.suspicion
        return "suspicion", meaning, [f"{100 * share:.1f} %" for share in shares], shares > CLEAR
    size = np.abs(found.residual) * np.sqrt(1.0 - found.leverage)
    ratio = size / max(float(np.sqrt(np.mean(size**2))), np.finfo(np.float64).tiny)
    meaning = "The number is the error of the row divided by the typical error."
    return "error / typical", meaning, [f"{value:.1f}" for value in ratio], ratio > FAR


def _value(X: Any, row: int, column: int) -> str:
    value = X.iloc[row, column] if hasattr(X, "iloc") else X[row, column]
    if hasattr(X, "iloc") and X.iloc[[row], [column]].isna().to_numpy().item():
        return "missing"
    if hasattr(value, "strftime"):
        return str(value).removesuffix(" 00:00:00").removesuffix(":00")
    return _short(float(value)) if isinstance(value, np.floating) else str(value)


def _short(value: Any) -> str:
    return readable(value, 5) if isinstance(value, float) else str(value)
