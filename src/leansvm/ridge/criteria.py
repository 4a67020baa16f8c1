"""What models are compared by: leave-one-out and generalised cross-validation, each written once.

A row's residual in the model without it is e / (1 - h), with its residual e and leverage h. When
the target of a basis row x_i is left out, its function k(., x_i) stays in the model, and rows
nearby decide its coefficient: the error at x_i then grows with C and with the basis as that of no
new row does. So C, sizes, kernels and scales are compared by the rows outside of the basis, where
these are enough. With all rows in the basis left-out errors are those of refitting without the row.
Where weights differ, a few rows may weigh as much as all others, such as those of a rare class: a
class with few rows outside is judged by all of its rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._array_api import like_rows, namespace, to_host
from leansvm.rows import Block, RowBlocks, StandsFor, class_numbers, declare, row_weights

Array = NDArray[np.float64]
ENOUGH = 500  # rows outside of the basis, or half of all rows: then they alone are counted
_FEW = 0.25  # with a smaller share of a class outside, and fewer than ENOUGH, all of it is counted
FLOOR = 1e-12  # of 1 - h, of which rounding may leave nothing
JUDGES = ("squared", "accuracy", "log_loss")  # what is averaged over rows that are left out
_BLURRED = 0.5  # margins up to this are mistakes in part: single rows decide little
_SCALES = np.exp(np.arange(-1.0, 4.1, 0.5))  # of the log odds, of which the best counts


def leave_out(residuals: Any, leverage: Any) -> Any:
    """Turn residuals e into those without the row, e / (1 - h), in place; return them."""
    residuals /= namespace(leverage).clip(1.0 - leverage, FLOOR, None)
    return residuals


def gcv(rss: Array, freedom: Any, n: float) -> Array:
    """Return n RSS / (n - trace)^2, given n - trace; infinite where no freedom is left."""
    enough = freedom > 1e-10 * n
    return np.where(enough, n * np.maximum(rss, 0.0) / np.where(enough, freedom, 1.0) ** 2, np.inf)


def rows_inside(blocks: RowBlocks, basis_rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the basis rows that are not counted: those of classes with enough other rows.

    Where all rows have the same weight, or targets are numbers, these are all basis rows. One pass
    over targets and weights.
    """
    if not (blocks.weighted and len(basis_rows)):
        return basis_rows
    sizes, least, most = blocks.fold(_joined_classes, _classes_of_block)
    if sizes is None or not least < most:
        return basis_rows
    Y, weight = blocks.targets_of(basis_rows)
    classes = class_numbers(np.asarray(Y, dtype=np.float64))
    inside = np.bincount(classes[weight > 0], minlength=len(sizes))
    few = sizes - inside < np.minimum(ENOUGH, _FEW * sizes)
    return basis_rows[~few[classes]]


@declare("y", "weight")
def _classes_of_block(block: Block) -> tuple[NDArray[np.intp] | None, float, float]:
    """Return the rows of every class (None: targets are numbers), least and largest weight."""
    Y, weight = np.asarray(to_host(block.y)), to_host(row_weights(block))
    Y, weight = Y[weight > 0], weight[weight > 0]
    least, most = float(weight.min(initial=np.inf)), float(weight.max(initial=0.0))
    if not np.all(np.abs(Y) == 1.0):
        return None, least, most
    return np.bincount(class_numbers(Y), minlength=max(Y.shape[1], 2)), least, most


def _joined_classes(a: Any, b: Any) -> Any:
    sizes = None if a[0] is None or b[0] is None else a[0] + b[0]
    return sizes, min(a[1], b[1]), max(a[2], b[2])


def losses_of_classes(judge: str, values: Any, Y: Any, weight: Any) -> Any:
    """Return s times the loss of left-out decision values of classes, rows x models.

    ``values`` are outputs x rows x models, targets +-1. "accuracy" counts mistakes; "log_loss" has
    as many columns for each model as there are scales a of p ~ sigma(a f), see `best_of_scales`.
    """
    xp, Y = namespace(values), like_rows(Y, values)
    if values.shape[0] == 1:
        values = values * Y.T[:, :, None]
        own, others = values[0, ...], -values
    else:
        is_own = (Y > 0).T[:, :, None]
        own = xp.sum(xp.where(is_own, values, 0.0), axis=0)
        others = xp.where(is_own, -xp.inf, values)
    if judge == "accuracy":
        margin = own - xp.max(others, axis=0)
        return weight[:, None] * xp.clip(0.5 - margin / (2.0 * _BLURRED), 0.0, 1.0)
    found = []
    for a in _SCALES.tolist():
        z = a * own
        mine = xp.clip(z, None, 0.0) - xp.log1p(xp.exp(-abs(z)))  # log sigma(a f)
        rest = xp.sum(1.0 / (1.0 + xp.exp(xp.clip(-a * others, None, 700.0))), axis=0)
        found.append(weight[:, None] * (xp.log(xp.exp(mine) + rest) - mine))
    return xp.concat(found, axis=1)


def best_of_scales(judge: str, errors: Array) -> Array:
    """Return one error for each model: that of the best scale of its log odds."""
    return errors.reshape(len(_SCALES), -1).min(axis=0) if judge == "log_loss" else errors


def add_up_squares(
    block: Block, squares: Any, root: Any, basis_rows: NDArray[np.intp] | None
) -> Any:
    """Add up s (left-out residual)^2, or s L, of all rows and of those outside of the basis.

    Parameters
    ----------
    block : Block
        The rows.
    squares : array of shape (n, k)
        Their squares times s, one column for each model that is compared.
    root : array of shape (n,)
        Roots of the weights s.
    basis_rows : ndarray of row numbers, or None
        Rows that are basis points.

    Returns
    -------
    array of shape (2, k + 2)
        All rows, then those outside: k sums, the number of rows of positive weight, its sum.
    """
    xp, counted = namespace(squares), np.ones((2, squares.shape[0]))
    if basis_rows is not None:
        counted[1, block.positions(basis_rows)[1]] = 0.0
    drawn = block.find(StandsFor)
    if drawn is not None:
        counted *= drawn.rows
    rows = like_rows(counted, squares)
    positive = xp.astype(root > 0, squares.dtype)
    sizes = xp.stack([positive, root * root], axis=1)
    return xp.concat([rows @ squares, rows @ sizes], axis=1)


def mean_errors(totals: Array) -> Array:
    """Return the weighted mean square (or loss) of every model from what `add_up_squares` gave."""
    every, outside = np.asarray(totals)
    counted = outside if outside[-2] >= min(ENOUGH, every[-2] / 2) else every
    return np.asarray(counted[:-2] / counted[-1])


def standard_error(values: Array, weight: Array) -> float:
    """Return the standard error of the weighted mean of independent values."""
    apart = values - weight @ values / weight.sum()
    return float(np.linalg.norm(weight * apart) / weight.sum())
