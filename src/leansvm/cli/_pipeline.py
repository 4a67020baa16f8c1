"""From options to a scikit-learn pipeline: scaling of numbers, then a machine."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.sparse import issparse

from leansvm.cli._output import UsageError, readable
from leansvm.cli._read import KINDS, NUMBER, TRUTH, FileData

# Classifier and regressor of every family.
FAMILIES = {
    "lssvm": ("LSSVC", "LSSVR"),
    "sparse": ("SparseLSSVC", "SparseLSSVR"),
    "reduced": ("ReducedSVC", "ReducedSVR"),
    "low-rank": ("LowRankLSSVC", "LowRankLSSVR"),
    "l2": ("L2SVC", None),
}
AUTO = "sparse"  # the family whose defaults need nothing set by hand


def decide_task(y: np.ndarray, asked: str, notes: list[str]) -> str:
    """Return "classification" or "regression"."""
    from leansvm.rows import few_values

    if asked != "auto":
        if asked == "regression" and y.dtype.kind in "US":
            raise UsageError("--task regression needs numbers, but the target is text")
        return asked
    distinct = len(np.unique(y))
    if y.dtype.kind in "US":
        return "classification"
    if y.dtype.kind in "iub" and few_values(y):
        notes.append(
            f"the task is classification, because the target has only {distinct} different whole "
            f"numbers (--task regression predicts a number instead)"
        )
        return "classification"
    notes.append("the task is regression (--task classification makes each value a class)")
    return "regression"


def target_words(y: np.ndarray, task: str) -> str:
    """Return what is predicted, such as "no/yes" or "numbers from 1.5 to 41,540"."""
    if task == "regression":
        return f"numbers from {readable(float(y.min()))} to {readable(float(y.max()))}"
    classes = [str(value) for value in np.unique(y)]
    return "/".join(classes) if len(classes) <= 3 else f"{len(classes):,} classes"


def asked_kinds(settings: Sequence[str]) -> dict[str, str]:
    """Read NAME=KIND pairs; a name may hold "=" itself."""
    kinds = {}
    for setting in settings:
        name, _, kind = setting.rpartition("=")
        if not name or kind not in KINDS:
            raise UsageError(
                f"--column {setting}: write it as NAME=KIND, where KIND is one of "
                f"{', '.join(KINDS)}"
            )
        kinds[name] = kind
    return kinds


def make_estimator(
    name: str, task: str, settings: Sequence[str], *, seed: int, calibrate: bool
) -> Any:
    """Return the machine that was asked for, not fitted."""
    import leansvm

    family = _family(name)
    class_name = FAMILIES[family][task == "regression"]
    if class_name is None:
        raise UsageError(f"--estimator {name} is only for classification; the task is regression")
    estimator = getattr(leansvm, class_name)()
    known = estimator.get_params(deep=False)
    chosen: dict[str, Any] = {}
    if family == "lssvm":
        chosen["C"] = "loo"
    if "random_state" in known:
        chosen["random_state"] = seed
    if "calibrate" in known:
        chosen["calibrate"] = calibrate
    chosen.update(parse_settings(settings, known, class_name))
    return estimator.set_params(**chosen)


def _family(name: str) -> str:
    by_class = {cls: family for family, pair in FAMILIES.items() for cls in pair if cls}
    family = AUTO if name == "auto" else by_class.get(name, name)
    if family not in FAMILIES:
        raise UsageError(
            f"--estimator {name}: unknown; choose auto, {', '.join(FAMILIES)} or a class name "
            f"({', '.join(by_class)})"
        )
    return family


def parse_settings(
    settings: Sequence[str], known: dict[str, Any], class_name: str
) -> dict[str, Any]:
    """Read NAME=VALUE pairs; a value that is not JSON is text."""
    parsed: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"--set {setting}: write it as NAME=VALUE")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}? " if near else ""
            raise UsageError(
                f"--set {setting}: {class_name} has no parameter {name}; {hint}"
                f"it has {', '.join(sorted(known))}"
            )
        parsed[name] = parse_value(value)
    return parsed


def parse_value(text: str) -> Any:
    """Return a number, true, false, null or list, or the text itself."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def make_pipeline(data: FileData, estimator: Any, scale: bool) -> Any:
    """Return preprocessing and machine as one pipeline, not fitted.

    The machine itself turns a table with text or dates into numbers, and gives the features of a
    category or a date one scale.
    """
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import MaxAbsScaler, StandardScaler

    from leansvm.tables import TableEncoder

    step: Any = "passthrough"
    if data.kinds is None and scale:
        step = MaxAbsScaler() if issparse(data.X) else StandardScaler()
    elif data.kinds is not None and set(data.kinds.values()) <= {NUMBER, TRUTH}:
        step = TableEncoder(standardize=scale)
    return Pipeline([("preprocessing", step), ("model", estimator)])


def encoder_of(pipeline: Any) -> Any:
    """Return the fitted encoder of a table, None if there is none."""
    from leansvm.tables import TableEncoder

    steps = [step for _, step in getattr(pipeline, "steps", [("model", pipeline)])]
    first = steps[0]
    return first if isinstance(first, TableEncoder) else getattr(steps[-1], "table_", None)


def unknown_categories(pipeline: Any, data: FileData) -> dict[str, list[str]]:
    """Return, by column, values that training did not see."""
    table = encoder_of(pipeline)
    return {} if table is None or data.kinds is None else table.unseen(data.X)
