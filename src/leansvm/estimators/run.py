"""A run of `fit`, `partial_fit` or a path: the values that its lines hand on, and its frame.

`TrainingData` are the rows with their targets, `FittedKernel` is the kernel. `running` surrounds
the numbers with a clock, callbacks and a way back. A regressor may learn its targets on a scale:
log y, or normal scores of its quantiles. Numbers are mapped back to units of y. That maps quantiles
to quantiles, so `predict` returns the median of y if errors are symmetric on the learned scale, as
in `TransformedTargetRegressor`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from leansvm._array_api import like_rows, namespace, rows_at, to_host
from leansvm._parallel import limited_blas
from leansvm._phases import Watch, out_of_time, step, watching
from leansvm.kernels import Kernel
from leansvm.ridge.criteria import Criterion
from leansvm.rows import (
    Block,
    MemoryBlocks,
    MergedRows,
    RowBlocks,
    Targets,
    canonical_order,
    check_budget,
    declare,
    merge_equal_rows,
    merge_rows_of,
    tiles_within,
)

Array = NDArray[np.float64]
Scale = tuple[Array, ...]  # for every output, quantiles of y above their scores; empty: log
# fitted attributes that describe rows and targets
_OF_TARGETS = ("classes_", "_single_output", "_scale")
ROW_ATTRIBUTES = ("n_features_in_", "feature_names_in_", "table_", *_OF_TARGETS)
_SPREAD_ROWS = 256  # rows of a file from which the spread of the targets is taken
_SCALE_KNOTS, _LARGEST_LOG = 1000, 700.0  # of a scale by quantiles; that exp takes
_STEP_WEIGHT = 1 / 15  # weight of a step in its phase
_OURS = ("leansvm", "sklearn", "contextlib")


@dataclass(frozen=True)
class TrainingData:
    """Rows, targets (one column per output) and weights of a fit, wherever they are."""

    X: Any  # array, CSR matrix or RowSource
    y: Any  # as the user gave it
    Y: Any  # None: the source has the targets
    weight: Any  # sample weights times class weights; None: the source has them
    n_outputs: int
    n_positive: int  # rows of positive weight
    count: float | None = None  # samples that GCV counts: class weights are costs, not samples
    encode: Targets | None = None  # how a source's targets become numbers
    merged: MergedRows | None = None  # which rows stand for their copies
    taken: NDArray[np.intp] | None = None  # which of the given rows these are; None: all
    whole: TrainingData | None = None  # the rows as they were given, if these are fewer
    class_weight: Array | None = None  # of each class, a factor in ``weight``
    attributes: dict[str, Any] = field(default_factory=dict)  # that `publish` sets: classes, names
    rows: RowBlocks | None = None  # the rows in blocks, if the family has made them

    def blocks(self, columns: int = 0, budget: int = 0, tile_rows: int | None = None) -> RowBlocks:
        """Return the rows in blocks."""
        if self.encode is not None:
            return self.X.blocks(self.encode, columns=columns, budget=budget, weight=self.weight)
        ones = self.weight is None or bool(namespace(self.weight).all(self.weight == 1.0))
        return MemoryBlocks(
            self.X,
            self.Y,
            None if ones else self.weight,
            class_weight=None if ones else self.class_weight,
            columns=columns,
            tile_rows=tile_rows,
        )

    def variance(self) -> float:
        """Weighted variance of all entries of X, as ``gamma="scale"`` uses it."""
        return (self.blocks() if self.rows is None else self.rows).variance()

    def targets(self) -> Array:
        """Return the targets of all rows, on the host."""
        if self.encode is not None:
            return self.blocks().concatenate(_targets)
        return np.asarray(to_host(self.Y))

    def spread(self) -> Array:
        """Standard deviation of the targets, in files of the first rows; never zero."""
        Y = self.blocks().head(_SPREAD_ROWS)[1] if self.Y is None else self.Y
        return np.maximum(np.std(to_host(Y), axis=0), np.finfo(np.float64).tiny)

    def merge_copies(self, budget: int) -> TrainingData:
        """Give the first of equal rows the weight of all: leave-one-out leaves them out together.

        The rows stay where they are; the other copies get weight 0.
        """
        if self.encode is None:
            merged = merge_equal_rows(self.X, self.Y, self.weight)
        else:
            check_budget(
                self.X.n_rows * (64 + 24 * self.n_outputs),
                budget,
                f"The leave-one-out residuals of {self.X.n_rows:,} rows",
                "Use C='gcv' and calibrate=False, which need only sums.",
            )
            merged = merge_rows_of(self.blocks())
        weight = np.zeros(self.X.shape[0])
        weight[merged.first] = merged.weight
        return replace(self, weight=weight, n_positive=len(merged.first), merged=merged)

    def take_positive(self, merge: bool, earlier: Any = ()) -> TrainingData:
        """Say which rows have positive weight or, with ``merge``, are the first of equal ones.

        ``earlier`` are the weights of rows in batches before, which come first.
        """
        Y, weight = to_host(self.Y), np.append(earlier, to_host(self.weight))
        if merge:
            merged = merge_equal_rows(self.X, Y, weight)
        else:
            first = np.flatnonzero(weight > 0)
            group = np.full(len(weight), -1, dtype=np.intp)
            group[first] = np.arange(len(first))
            merged = MergedRows(first, group, weight[first])
        first = merged.first
        return replace(self, Y=Y, weight=weight, merged=merged, n_positive=len(first), taken=first)

    def sort_distinct(self) -> TrainingData:
        """Merge equal rows, and sort the rest by their values.

        Some iterations amplify rounding, which depends on the order of the rows. After this, rows
        in another order, or copies instead of weights, give the same model.
        """
        merged = merge_equal_rows(self.X, self.Y, self.weight)
        first = merged.first
        order = canonical_order(to_host(rows_at(self.X, first)), to_host(rows_at(self.Y, first)))
        taken = first[order]
        return replace(
            self,
            X=rows_at(self.X, taken),
            Y=rows_at(self.Y, taken),
            weight=merged.weight[order],
            n_positive=len(first),
            merged=merged,
            taken=taken,
            whole=self,
        )


@declare("y")
def _targets(block: Block) -> Array:
    return np.asarray(block.y, dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class BasisData(TrainingData):
    """The rows of a machine on a small basis, and what its parameters mean for them."""

    rows: RowBlocks  # copies are merged if rows are left out
    selector: Any  # a BasisSelector, row numbers or points
    size: int  # number of points, or the most there may be
    auto: bool  # whether the number is to be found
    budget: int  # bytes that blocks may keep


@dataclass(frozen=True)
class FittedKernel:
    """A kernel with its numbers, and how they were learned."""

    kernel: Kernel
    name: Any  # ``kernel_``: the name that was given, a mixture, or the user's function
    scales: Array | None = None  # ``feature_scales_``
    seen: Array | None = None  # least and largest values of the features that it looks at
    report: dict[str, Any] | None = None


# ---------------------------------------------------------------------------- the frame


class Tasks:
    """Tells scikit-learn's callbacks about steps and, where work is planned, about percents."""

    def __init__(self, estimator: Any, X: Any, y: Any) -> None:
        self.facts = {"estimator": estimator, "X": X, "y": y}
        self.percent, planned = 0, bool(estimator._planned(1, 1))
        most = 101 if planned else 0 if estimator._is_direct else None
        self.fit = self.steps = estimator._init_callback_context(max_subtasks=most)
        self.fit.call_on_fit_task_begin(**self.facts)
        if planned:  # the steps are one task, beside one task for every percent
            self.steps = self.fit.subcontext(task_name="steps", max_subtasks=None)
            self.steps.call_on_fit_task_begin(estimator=estimator)

    def step(self, parent: Any, name: str) -> bool:
        """Report a step; return whether a callback asks to stop."""
        task, estimator = parent.subcontext(task_name=name), self.facts["estimator"]
        task.call_on_fit_task_begin(estimator=estimator)
        return bool(task.call_on_fit_task_end(estimator=estimator))

    def tell(self, share: float) -> None:
        """Report how much of the fit is done: one task for every percent."""
        while self.percent < int(100 * share):
            self.percent += 1
            self.step(self.fit, "percent")

    def end(self) -> None:
        """Report that the fit is over."""
        if self.steps is not self.fit:
            self.steps.call_on_fit_task_end(estimator=self.facts["estimator"])
        self.fit.call_on_fit_task_end(**self.facts, reconstruction_attributes={})


@dataclass(frozen=True)
class Run:
    """One call of `fit`, `partial_fit` or a path: how C is found, and who hears about progress."""

    criterion: Criterion
    watch: Watch
    tasks: Tasks | None  # None: there are no callbacks
    is_path: bool  # a model for every C, instead of the best one

    def hook(
        self, name: str, share: float | None = None, last: float = np.inf
    ) -> Callable[..., bool] | None:
        """Return a function to call after every step; None if nobody needs it.

        It returns True if the steps shall end: a callback asks for it, or the steps before the
        ``last`` one have used their ``share`` of the time limit.
        """
        tasks = self.tasks
        if tasks is None and (share is None or self.watch.limit == np.inf):
            return None

        def one(iteration: int, residual: float = 0.0) -> bool:
            step(_STEP_WEIGHT)
            ends = share is not None and iteration < last and out_of_time(share)
            return (tasks is not None and tasks.step(tasks.steps, name)) or ends

        return one


@contextmanager
def running(
    estimator: Any,
    X: Any = None,
    y: Any = None,
    criterion: Criterion | None = None,
    is_path: bool = False,
) -> Iterator[Run]:
    """Yield the `Run` of a fit, a batch or a path.

    Inside, tiles of rows keep to ``cache_size``, and BLAS uses one thread. After an error or an
    interrupt the estimator is what it was before. Errors of overflow and of ill-conditioned
    matrices say what to do.
    """
    watch, tasks = Watch(), None
    if estimator.time_limit is not None:
        watch.limit = float(estimator.time_limit)
    if vars(estimator).get("_skl_callbacks"):
        tasks = Tasks(estimator, X, y)
        watch.tell = tasks.tell
    if estimator.verbose:
        watch.say = lambda line: print(f"{type(estimator).__name__}: {line}", flush=True)
    before, token = vars(estimator).copy(), watching.set(watch)
    try:
        run = Run(criterion or estimator._criterion(), watch, tasks, is_path)
        size = estimator.cache_size
        within = nullcontext() if size == "auto" else tiles_within(size)
        with within, limited_blas():
            yield run
    except BaseException as error:
        estimator.__dict__ = before
        if not isinstance(error, np.linalg.LinAlgError | OverflowError):
            raise
        raise ValueError(
            f"{type(estimator).__name__}: the equations are too ill-conditioned for float64: lower "
            f"C, scale X, y or sample_weight, or use a positive semidefinite kernel."
        ) from error
    finally:
        watching.reset(token)
    if watch.cut:
        estimator.fit_report_["ended_early"] = list(watch.cut)
        warn(
            estimator,
            f": time_limit={estimator.time_limit:g} s ended {' and '.join(watch.cut)} early. The "
            f"model uses the best result so far; the fit took {watch.elapsed:.1f} s.",
        )
    if tasks is not None:
        tasks.end()


def warn(estimator: Any, text: str, kind: type[Warning] = UserWarning) -> None:
    """Warn at the user's line."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in _OURS:
        frame, level = frame.f_back, level + 1
    warnings.warn(f"{type(estimator).__name__}{text}", kind, stacklevel=level)


# ---------------------------------------------------------------------------- scale of the targets


def learn_scale(name: str, Y: Any, weight: Any) -> Scale:
    """Return the scale to learn on, from targets (rows x outputs) and weights."""
    Y, weight = np.asarray(to_host(Y)), np.asarray(to_host(weight))
    Y, weight = Y[weight > 0], weight[weight > 0]
    if name == "log":
        if Y.min() <= 0:
            raise ValueError(
                f"target='log' needs positive targets, and the smallest of y is {Y.min():g}: add a "
                f"constant to y, or set target='quantile'."
            )
        return ()
    return tuple(_scores(column, weight) for column in Y.T)


def _scores(y: Array, weight: Array) -> Array:
    """Return the values of y and their normal scores, from the share of weight below each."""
    values, place = np.unique(y, return_inverse=True)
    total = np.bincount(place, weights=weight).astype(np.float64)
    shares = (np.cumsum(total) - total / 2) / total.sum()
    if len(values) > _SCALE_KNOTS:  # evenly in weight, with both ends
        wanted = np.searchsorted(shares, np.linspace(shares[0], shares[-1], _SCALE_KNOTS))
        values, shares = values[np.unique(wanted)], shares[np.unique(wanted)]
    return np.stack([values, ndtri(shares)])


def to_scale(scale: Scale, Y: Any) -> Any:
    """Return targets on the learned scale, rows x outputs, where they are."""
    given = np.asarray(to_host(Y))
    if not scale:
        if given.min() <= 0:
            raise ValueError(f"target='log' needs positive targets, got {given.min():g} in y.")
        return like_rows(np.log(given), Y)
    columns = [np.interp(y, *knots) for y, knots in zip(given.T, scale, strict=True)]
    return like_rows(np.stack(columns, axis=1), Y)


def to_units(scale: Scale | None, values: Any) -> Any:
    """Return values on the learned scale, rows x outputs (x anything), in units of y."""
    if scale is None:
        return values
    given = np.asarray(to_host(values))
    if not scale:
        found = np.exp(np.minimum(given, _LARGEST_LOG))
    else:
        found = np.empty_like(given)
        for output, (units, scores) in enumerate(scale):
            found[:, output] = np.interp(given[:, output], scores, units)
    return like_rows(found.astype(given.dtype), values)
