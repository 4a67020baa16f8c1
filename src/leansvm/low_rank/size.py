"""How many functions a model needs: grown, and learned again, without the rows that score it.

A leave-one-out error with the functions held cannot see that functions have followed the noise. So
the rows are cut into folds. Without each fold functions are learned from the start, and their
number is doubled as long as that lowers the squared error of the rows left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.low_rank.feature_units import FeatureUnits, feature_units
from leansvm.low_rank.features import LearnedFeatures
from leansvm.low_rank.problem import (
    EARLY_ITERATIONS,
    FIRST_SIZE,
    LowRankLearner,
    Start,
    tile_rows,
)
from leansvm.low_rank.start import (
    StartRows,
    class_medoids,
    draw_start_rows,
    initial_centers,
)
from leansvm.rows import MemoryBlocks, total_weight
from leansvm.solution import Solution

Array = NDArray[np.float64]

_LARGEST, _PER_OUTPUT = 40, 4  # functions at most: 40, or four for each class
_ROWS_PER_FUNCTION = 10  # fewer rows, and a larger size is not tried
_FOLDS, _MANY_ROWS = 3, 2000  # beyond so many rows the first fold says enough
_FLAT = 0.05  # twice as many functions have to lower the error by this share,
_LEAST = 0.005  # and by this share of the targets' variance
_PATIENCE = 2  # sizes in a row that may fail to do so


def sizes_to_try(n_rows: int, n_outputs: int) -> list[int]:
    """Return the numbers of functions that ``n_basis="auto"`` compares, by doubling."""
    sizes = [min(max(FIRST_SIZE, n_outputs), n_rows)]
    most = min(max(_LARGEST, _PER_OUTPUT * n_outputs), n_rows // _ROWS_PER_FUNCTION)
    while 2 * sizes[-1] <= most:
        sizes.append(2 * sizes[-1])
    return sizes


def learn_functions(
    learner: LowRankLearner,
    centers: Array | None,
    init: str,
    sizes: list[int],
    n_init: int,
    rng: np.random.RandomState,
) -> tuple[LearnedFeatures, Solution]:
    """Learn functions and their weights; folds choose the size where there are several."""
    size, sample = sizes[0], None
    report: dict[str, Any] = {}
    if init == "auto" or len(sizes) > 1:
        with learner.phases("start"):
            sample = draw_start_rows(learner.blocks, sizes[-1], rng)
    if sample is not None and len(sizes) > 1:
        with learner.phases("size"):
            size, report = choose_size(learner, sample, sizes, init)
    grows_on = sample if init == "auto" else None
    basis, solution = learner.learn(centers, init, size, n_init, grows_on, rng)
    return basis, replace(solution, details=solution.details | report)


@dataclass
class _HeldOut:
    """A learner of the rows outside a fold, and the rows in it."""

    learner: LowRankLearner
    sample: StartRows  # outside
    held_out: StartRows
    units: FeatureUnits
    start: Start | None = None  # of the size tried last

    def errors(self, size: int, init: str) -> Array:
        """Learn ``size`` functions; return the squared error of every row held out."""
        learner = self.learner
        if init == "auto" and self.start is not None:
            self.start = learner.grown(self.start, self.units, self.sample, size)
        else:
            if init == "auto":
                centers = class_medoids(self.sample, size)
            else:
                rng = np.random.RandomState(0)
                centers = initial_centers(learner.blocks, init, size, rng)
            self.start = learner.start_at(centers, self.units)
        basis = learner.learn_from(self.start, self.units).basis
        solution = learner.solve(basis)
        self.start = self.start._replace(basis=basis)
        residuals = self.held_out.Y - basis.phi(self.held_out.X) @ solution.coef - solution.b
        return np.square(residuals).sum(axis=1)


def choose_size(
    learner: LowRankLearner, sample: StartRows, sizes: list[int], init: str
) -> tuple[int, dict[str, Any]]:
    """Return the number of functions, and the error of every size that was tried.

    A size is taken if it lowers the error of the one taken before by a twentieth for each doubling,
    by more than the standard error of the difference, and by more than a little of the targets'
    variance. The search ends after two sizes that do not.
    """
    folds = _folds(learner, sample, sizes[-1])
    weight = np.concatenate([fold.held_out.weight for fold in folds])
    share = weight / weight.sum()
    Y = np.concatenate([fold.held_out.Y for fold in folds])
    least = _LEAST * float(share @ np.square(Y - share @ Y).sum(axis=1))
    taken, errors, means = 0, [], []
    for place, size in enumerate(sizes):
        errors.append(np.concatenate([fold.errors(size, init) for fold in folds]))
        means.append(float(share @ errors[-1]))
        if place == 0:
            continue
        lower = means[taken] - means[place]
        change = errors[taken] - errors[place] - lower
        deviation = float(np.sqrt(share @ np.square(change) / len(change)))
        flat = 1.0 - (1.0 - _FLAT) ** (place - taken)
        if lower > max(deviation, flat * means[taken], least):
            taken = place
        elif place - taken == _PATIENCE:
            break
    report = {"sizes": np.array(sizes[: len(means)]), "size_errors": np.array(means)}
    return sizes[taken], report


def _folds(learner: LowRankLearner, sample: StartRows, largest: int) -> list[_HeldOut]:
    """Cut the rows of every class evenly into folds; of many rows only the first is made."""
    classes, number = sample.classes, np.empty(len(sample.Y), dtype=np.intp)
    for label in np.unique(classes):
        rows = np.flatnonzero(classes == label)
        number[rows] = np.arange(len(rows)) % _FOLDS
    folds = []
    for k in range(_FOLDS if len(number) <= _MANY_ROWS else 1):
        inside, outside = sample.part(number == k), sample.part(number != k)
        tile = tile_rows(outside.X, 4 * (largest + outside.Y.shape[1]))
        by_class = learner.blocks.class_weight
        given = outside.X, outside.Y, outside.weight
        blocks = MemoryBlocks(*given, class_weight=by_class, tile_rows=tile)
        count = learner.count
        if count is not None:  # in proportion
            count *= float(outside.weight.sum()) / total_weight(learner.blocks)
        part = replace(
            learner,
            blocks=blocks,
            count=count,
            max_iter=min(learner.max_iter, EARLY_ITERATIONS),
            on_iteration=None,
        )
        folds.append(_HeldOut(part, outside, inside, feature_units(blocks)))
    return folds
