"""A training run of the command line: what went in, what came out, what is kept with the model.

Modules of commands load nothing that takes long: ``leansvm --help`` imports them all.
"""

from __future__ import annotations

import math
import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from leansvm.cli._output import CommandError, UsageError, readable

if TYPE_CHECKING:
    import numpy as np

    from leansvm.cli._evaluate import Evaluation
    from leansvm.cli._read import FileData


# what a fit advises for a rare class, and the same for the command line
_PYTHON_ADVICE = re.compile(r"To find rows of a rare class, .* use predict_proba\.")
_RARE_ADVICE = (
    "To find rows of a rare class, train with --set class_weight=balanced, or choose a threshold "
    "in Python with leansvm.model_selection.tune_threshold. To rank rows, use the probabilities "
    "that leansvm predict writes."
)
_LIST_ADVICE = "To try further values, pass a list as C."
_OPTION_ADVICE = "To try further values, use --set C=[...]."
_NUMBER = re.compile(r"(?<![\w'])\d[\d.,]*(?:e[+-]?\d+)?(?![\w'])")


@dataclass
class TrainingRun:
    """A training run: what went in, what came out, how long each phase took."""

    data: FileData
    task: str
    target: str | None
    pipeline: Any
    notes: list[str]
    evaluation: Evaluation | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    trials: list[dict[str, Any]] = field(default_factory=list)
    positive: Any = None  # the class of two that is looked for
    metric: str | None = None  # of --metric
    compared_by: str | None = None  # metric of a search; None: accuracy or R²

    @property
    def y(self) -> np.ndarray:
        """The target."""
        assert self.data.y is not None  # read() refuses a file without
        return self.data.y

    @property
    def model(self) -> Any:
        """The machine at the end of the pipeline."""
        return self.pipeline[-1]

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time a phase; its warnings become notes, and its errors become errors of the command."""
        start = time.perf_counter()
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                yield
        except (ValueError, MemoryError) as error:
            wrong = type(error).__name__ == "InvalidParameterError"  # of --set or --grid
            kind = UsageError if wrong else CommandError
            raise kind(str(error) if wrong else f"{self.data.path}: {error}") from error
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        known = {_NUMBER.sub("#", text) for text in self.notes}
        texts = (_PYTHON_ADVICE.sub(_RARE_ADVICE, str(warning.message)) for warning in caught)
        texts = (text.replace(_LIST_ADVICE, _OPTION_ADVICE) for text in texts)
        for text in dict.fromkeys(texts):
            words = _NUMBER.sub("#", text)  # folds give the same warning with other numbers
            if words not in known:
                known.add(words)
                self.notes.append(text)

    def feature_scales(self) -> dict[str, float] | None:
        """Return the learned scale of every column that the machine sees, largest first."""
        scales = getattr(self.model, "feature_scales_", None)
        if scales is None or not any(scales):  # a linear kernel alone has none
            return None
        names = self.feature_names()
        order = sorted(range(len(scales)), key=scales.__getitem__, reverse=True)
        return {names[i]: float(scales[i]) for i in order}

    def feature_names(self) -> list[str]:
        """Return the names of the columns that the machine sees."""
        from leansvm.cli._pipeline import encoder_of

        table = encoder_of(self.pipeline)
        if table is not None:
            return [str(name) for name in table.get_feature_names_out()]
        return [f"x{i}" for i in range(self.model.n_features_in_)]  # an array has no names

    def prepared_on(self, train: np.ndarray) -> tuple[Any, Callable[[Any], Any]]:
        """Return training rows as the kernel sees them, and what prepares other rows.

        All that prepares rows is fitted on these rows: the mean target of a category must not know
        the targets of rows that a model is judged on. The features are those of the whole fit, by
        name, and within its learned bounds; a feature that these rows lack is 0.
        """
        import numpy as np
        from sklearn.base import clone
        from sklearn.pipeline import Pipeline

        from leansvm.cli._evaluate import rows_of
        from leansvm.cli._pipeline import encoder_of
        from leansvm.kernels import clipped

        table, clip = getattr(self.model, "table_", None), self.model.clip_
        steps = [*self.pipeline.steps[:-1], *([] if table is None else [("table", table)])]
        before = clone(Pipeline(steps))
        y = self.y[train].astype(str) if self.task == "classification" else self.y[train]
        rows, whole = (
            before.fit_transform(rows_of(self.data.X, train), y),
            encoder_of(self.pipeline),
        )
        names = [] if whole is None else list(whole.get_feature_names_out())
        own = before[-1].get_feature_names_out() if names else ()
        own = {name: i for i, name in enumerate(own) if name in names}

        def seen(rows: Any) -> Any:
            if names:
                found = np.zeros((len(rows), len(names)))
                found[:, [names.index(name) for name in own]] = rows[:, list(own.values())]
                rows = found
            return rows if clip is None else clipped(rows, clip)

        return seen(rows), lambda X: seen(before.transform(X))

    def kernel_parameters(self) -> dict[str, Any]:
        """Return the parameters of a machine with the kernel that was fitted, for these rows."""
        from leansvm.kernels import Mixture

        kernel, gamma = self.model.kernel_, self.model.gamma_
        return {"kernel": kernel, "gamma": "learn" if isinstance(kernel, Mixture) else gamma}

    def metadata(self) -> dict[str, Any]:
        """Return what is kept with the model, in JSON's types."""
        from leansvm.cli._pipeline import encoder_of

        model = self.model
        chosen = {
            name.rstrip("_"): _json(getattr(model, name))
            for name in ("kernel_", "C_", "gamma_")
            if hasattr(model, name)
        }
        evaluation, columns, table = self.evaluation, self.data.kinds, encoder_of(self.pipeline)
        if columns is not None and table is not None:  # the file to predict needs no others
            columns = {name: columns[name] for name in table.kinds_}
        return {
            "task": self.task,
            "target": self.target,
            "columns": columns,
            "reading": self.data.reading,
            "n_features": self.data.X.shape[1],
            "classes": model.classes_.tolist() if hasattr(model, "classes_") else None,
            "data": self.data.path.name,
            "rows": self.data.X.shape[0],
            "estimator": type(model).__name__,
            "parameters": {k: _json(v) for k, v in model.get_params(deep=False).items()},
            "chosen": chosen,
            "feature_scales": self.feature_scales(),
            "support": support_size(model),
            "evaluation": None
            if evaluation is None
            else {
                "method": evaluation.method,
                "metric": evaluation.metric,
                "score": _json(evaluation.score),
                "folds": [_json(score) for score in evaluation.folds],
                "scores": {name: _json(score) for name, score in evaluation.scores.items()},
                "errors": evaluation.errors(self.y),
            },
            "trials": [{k: _json(v) for k, v in trial.items()} for trial in self.trials],
            "seconds": {k: round(v, 4) for k, v in self.seconds.items()},
            "notes": self.notes,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }


def support_size(model: Any) -> int:
    """Return the number of points in the model's expansion."""
    if hasattr(model, "support_"):
        return len(model.support_)
    return len(model.centers_) if hasattr(model, "centers_") else int(model.n_support_)


def support_word(estimator: str) -> str:
    """Return what the rows or functions in the expansion of an estimator are called."""
    if estimator.startswith("LowRank"):
        return "functions"
    exact = estimator.startswith(("LSSV", "L2SV"))
    return "support vectors" if exact else "points (rows kept)"


def chosen_rows(metadata: dict[str, Any]) -> list[list[str]]:
    """Return what the fit chose by itself, a name and a text for each: C, gamma, scales."""
    chosen = metadata.get("chosen", {}).items()
    scales = metadata.get("feature_scales")
    # the scales below say what the gammas of a learned kernel mean
    chosen = ((n, v) for n, v in chosen if not (n == "gamma" and scales and not _is_number(v)))
    rows = [[name, in_words(value)] for name, value in chosen if value]
    if scales:
        first = [f"{name} {scale:.2f}" for name, scale in list(scales.items())[:5]]
        more = f", {len(scales) - 5} more" if len(scales) > 5 else ""
        rows.append(["feature scales", ", ".join(first) + more])
    return rows


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float))


def in_words(value: Any) -> str:
    """Return a parameter as a short text: a number, a name, or the range of a list."""
    if isinstance(value, dict):
        return "; ".join(f"{name}: {in_words(part)}" for name, part in value.items())
    if isinstance(value, list) or (hasattr(value, "shape") and value.shape):
        low, high = readable(float(min(value))), readable(float(max(value)))
        if low == high:  # equal in the digits that are shown
            return f"{low} for all features"
        return f"{low} to {high}, one for each of {len(value)} features"
    return readable(value, 6) if isinstance(value, float) else str(value)


def _json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _json(part) for name, part in value.items()}
    if hasattr(value, "tolist"):  # NumPy's scalars and arrays
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, (str, int, float, bool, list)) or value is None:
        return value
    return str(value)
