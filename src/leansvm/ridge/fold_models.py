"""The models without each of K folds, for CV+ intervals: f(x) - f_-k(x) of any x.

On a small basis from the sums of every fold (see `kfold`); where all rows are basis points from
f_-g(x) = f(x) - S_g(x)'r_g with r_g = T_gg^-1 beta_g, the group's residuals without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.basis.features import FeatureMap
from leansvm.ridge.factor import theta_at
from leansvm.ridge.kfold import KFoldSums, add_up_folds, folds_by_hash, refuse_one_fold
from leansvm.ridge.sums import Sums, normal_equations
from leansvm.ridge.without_row import DualLeftOut
from leansvm.rows import Block, RowBlocks, declare

Array = NDArray[np.float64]


@dataclass
class FoldModels:
    """f - f_-k of every fold, as coefficients on places of rows, and the rows' residuals."""

    features: FeatureMap | DualLeftOut  # what makes columns of rows
    shift: Array  # columns x outputs x folds
    constant: Array  # outputs x folds
    rows: NDArray[np.intp]  # numbers of the rows that count
    fold: NDArray[np.intp]  # of each of them
    residual: Array  # y - f without the row's fold, rows x outputs
    weight: Array

    @property
    def bytes_a_row(self) -> int:
        """Bytes that `place` takes for a new row."""
        return 16 * (len(self.shift) + self.constant.size)

    def place(self, X: Any) -> Array:
        """Return f(x) - f_-k(x), rows x outputs x folds."""
        if isinstance(self.features, DualLeftOut):
            columns = self.features.place(X)[:, :-2]
        else:
            columns = self.features.transform(X)
        return np.einsum("nc,cok->nok", columns, self.shift, optimize=True) + self.constant


def fold_models_of_sums(
    blocks: RowBlocks,
    features: FeatureMap,
    shift: Array,
    free_bias: bool,
    C: float,
    folds: KFoldSums,
) -> FoldModels:
    """Solve K + 1 small systems from one pass over the rows; a second one finds residuals."""
    sums = add_up_folds(blocks, features, shift, None, folds)
    refuse_one_fold(sums.grams[:, -1, -1])
    total, thetas, biases = sums.total(), [], []
    for G in [*sums.grams, np.zeros_like(total.gram)]:  # without each fold; last, all rows
        rest = Sums(shift, total.gram - G, sums.n_outputs, total.count)
        equations = normal_equations(rest, features, free_bias)
        thetas.append(theta_at(equations, C))
        mean = equations.mean_y - equations.mean_phi @ thetas[-1]
        biases.append(mean if free_bias else np.zeros(sums.n_outputs))
    theta, b = np.stack(thetas, axis=2), np.stack(biases, axis=1)
    moved = theta[:, :, -1:] - theta[:, :, :-1], b[:, -1:] - b[:, :-1]
    given = folds.folds_of_groups(blocks.n_rows)
    found = blocks.collect(_fold_residuals, features, theta[:, :, :-1], b[:, :-1], given)
    return FoldModels(features, *moved, *found)


@declare("X", "y", "weight")
def _fold_residuals(
    block: Block, features: FeatureMap, theta: Array, b: Array, given: NDArray[np.intp] | None
) -> tuple[Any, Any, Array, Any]:
    """Return number, fold, residual without the fold, and weight of rows that count."""
    fold = given[block.rows] if given is not None else folds_by_hash(block, theta.shape[2])
    weight = np.ones(len(fold)) if block.weight is None else np.asarray(block.weight)
    used = np.flatnonzero(weight > 0)
    values = np.einsum("nc,cok->nok", features.transform(block.X[used]), theta, optimize=True) + b
    own = values[np.arange(len(used)), :, fold[used]]
    return block.start + used, fold[used], np.asarray(block.y)[used] - own, weight[used]


def fold_models_of_rows(model: DualLeftOut, fold: NDArray[np.intp], n_folds: int) -> FoldModels:
    """Leave out whole folds of a machine whose basis is all rows."""
    refuse_one_fold(np.bincount(fold))
    residual = model.without_groups(fold)
    R = np.zeros((*residual.shape, n_folds))
    R[np.arange(len(fold)), :, fold] = residual
    shift, constant = model.shift_coefficients(R.reshape(len(fold), -1))
    moved = shift.reshape(R.shape), constant.reshape(R.shape[1:])
    return FoldModels(model, *moved, model.rows, fold, residual, model.weight)
