"""Newton's method, one block of rows at a time (zhou2013, eqs. (18), (19), (23), (25)).

The slack is u = 1 - y f = y (y - f) in classification and y - f in regression, so that
du/df = -side with side = y or 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leansvm._accelerated import gram
from leansvm._array_api import (
    as_float64,
    foreign_namespace,
    like_rows,
    namespace,
    rows_at,
    to_host,
    zeros,
)
from leansvm.basis.cholesky import FactorRows
from leansvm.basis.features import ColumnRows, FeatureMap, KernelFeatures, resize_columns
from leansvm.losses import Loss
from leansvm.rows import Block, declare

Array = NDArray[np.float64]
_SUBTILE_BYTES = 1 << 22  # of Phi: read once for Phi @ direction and Phi' @ slopes
_MANY_OUTPUTS = 6  # outputs
_NO_CURVATURE = 1e-10  # of the largest: rows below it do not count in the Hessian
COLUMNS = (ColumnRows, FactorRows)  # what `FeatureMap.of` keeps or drops in a block


@dataclass
class NewtonRows:
    """What a block keeps from pass to pass, outputs x rows."""

    f: Any  # decision values
    df: Any  # their change along the direction
    in_gram: Any  # marks the rows of which the solver holds the Gram matrix
    without: Any = None  # decision values without the row, after `leansvm.newton.left_out`


@dataclass(frozen=True)
class NewtonPass:
    """The outputs that a pass over the rows works on, each with its loss."""

    features: FeatureMap
    margin: bool  # classification
    outputs: tuple[tuple[int, Loss], ...]  # column of the targets, and loss
    centre: Array | None = None  # what is subtracted from every column of the targets

    def targets(self, block: Block) -> tuple[Any, Any, Any]:
        """Return side, y minus its centre (rows x outputs) and weights, on the rows' device."""
        y, xp = as_float64(block.y), namespace(block.X)
        if self.centre is not None:
            y = y - like_rows(self.centre, y)
        side = y if self.margin else xp.ones_like(y)
        s = xp.ones_like(y[:, 0]) if block.weight is None else as_float64(block.weight)
        return side, y, s

    def slacks(self, block: Block) -> Iterator[tuple[int, Loss, Any, Any, Any, Any]]:
        """Yield the number of every output, its loss, side, y, weights and the slack u at f."""
        (side, y, s), f = self.targets(block), block.kept(NewtonRows).f
        for o, loss in self.outputs:
            yield o, loss, side[:, o], y[:, o], s, side[:, o] * (y[:, o] - f[o, :])


class Slopes(NamedTuple):
    """Sums over rows at one point: losses, -gradient of their sum, and row counts."""

    value: Array  # sum of s L(u), one number per output
    gradient: Array  # sum of s side L'(u) phi, width x outputs
    absolute: Array  # sum of s |L'(u)|
    counts: NDArray[np.intp]  # outputs x (curved, entering the Gram matrix, leaving it)
    squares: Array  # sums of (s L'(u))^2, one per output, and of |phi|^2; at f = 0 only


@declare("X", keeps=(NewtonRows, *COLUMNS))
def begin(block: Block, features: FeatureMap, theta: Array) -> None:
    """Set f of every output to that of theta; no row is in a Gram matrix."""
    shape, X = (theta.shape[1], block.stop - block.start), block.X
    f = zeros(shape, X)
    if theta.any():
        f[...] = (features.of(block) @ like_rows(theta, X)).T
    block.keep(NewtonRows(f, zeros(shape, X), zeros(shape, X, namespace(X).bool)))


@declare("X", keeps=(NewtonRows, *COLUMNS), changes=("in_gram",))
def resize(block: Block, before: KernelFeatures, after: KernelFeatures) -> None:
    """Change to another size of the same basis; no row is in a Gram matrix then."""
    block.kept(NewtonRows).in_gram[...] = False
    resize_columns(block, before, after)


@declare(keeps=(NewtonRows, *COLUMNS))
def end(block: Block, features: FeatureMap) -> None:
    """Drop everything that the solver and the features have kept."""
    block.state.pop(NewtonRows, None)
    block.state.pop(ColumnRows, None)
    if features.frees:
        block.state.pop(FactorRows, None)


@declare(keeps=NewtonRows, changes=("f",))
def step(block: Block, task: NewtonPass, lengths: Array) -> None:
    """Move f along df."""
    rows = block.kept(NewtonRows)
    for (o, _), t in zip(task.outputs, lengths.tolist(), strict=True):
        rows.f[o, :] += t * rows.df[o, :]


@declare("X", "y", "weight", keeps=(NewtonRows, *COLUMNS), changes=("df",))
def slopes(
    block: Block, task: NewtonPass, direction: Array | None = None, at_zero: bool = False
) -> Slopes:
    """Evaluate at f + df, df = Phi direction (kept), or at f, or at f = 0."""
    kept, k, n = block.kept(NewtonRows), len(task.outputs), block.stop - block.start
    Phi, xp = task.features.of(block), namespace(block.X)
    side, y, s = task.targets(block)
    counts, gradient = np.zeros((k, 3), np.intp), np.zeros((Phi.shape[1], k))
    found = Slopes(np.zeros(k), gradient, np.zeros(k), counts, np.zeros(k + 1))
    direction = None if direction is None else like_rows(direction, Phi)
    # reading a row costs little where many outputs use it; a device has no cache to stay in
    in_cache = max(32, _SUBTILE_BYTES // (8 * max(Phi.shape[1], 1)))
    tile = in_cache if foreign_namespace(Phi) is None and k < _MANY_OUTPUTS else max(n, 1)
    for start in range(0, n, tile):
        rows = slice(start, min(start + tile, n))
        moved = None if direction is None else Phi[rows, :] @ direction
        slope = zeros((rows.stop - start, k), Phi)
        for c, (o, loss) in enumerate(task.outputs):
            f = 0.0 if at_zero else kept.f[o, rows]
            if moved is not None:
                kept.df[o, rows] = moved[:, c]
                f = f + moved[:, c]
            u = side[rows, o] * (y[rows, o] - f)
            found.value[c] += float(s[rows] @ loss.value(u))
            slope[:, c] = loss.derivative(u) * side[rows, o] * s[rows]
            curved, before = _curved(loss, u, s[rows]), kept.in_gram[o, rows]
            both = int(xp.count_nonzero(curved & before))
            now = int(xp.count_nonzero(curved))
            counts[c] += (now, now - both, int(xp.count_nonzero(before)) - both)
        gradient += to_host(Phi[rows, :].T @ slope)
        found.absolute[:] += to_host(xp.sum(abs(slope), axis=0))
        if at_zero:
            found.squares[:k] += to_host(xp.sum(slope * slope, axis=0))
            found.squares[k] += float(xp.sum(Phi[rows, :] ** 2))
    return found


@declare("y", "weight")
def along(block: Block, task: NewtonPass, lengths: Array) -> Array:
    """First and second derivative of the losses in t at f + t df: outputs x 2."""
    result = np.empty((len(task.outputs), 2))
    for c, (o, loss, side, _, s, u) in enumerate(task.slacks(block)):
        df = block.kept(NewtonRows).df[o, :]
        u = u - side * (float(lengths[c]) * df)
        result[c, 0] = -float((s * side * df) @ loss.derivative(u))
        result[c, 1] = float((s * df * df) @ loss.second_derivative(u))
    return result


@dataclass(frozen=True)
class HessianPlan:
    """How the Hessian of one output is brought up to date."""

    kind: str  # "update", "rebuild", "shared", "woodbury" or "none"
    as_gram: bool = False  # blocks send Gram matrices instead of rows
    stays: bool = False  # and these stay where the rows are


@declare("X", "y", "weight", keeps=(NewtonRows, *COLUMNS), changes=("in_gram",))
def curvature(block: Block, task: NewtonPass, plans: Sequence[HessianPlan]) -> tuple[Any, ...]:
    """Return this block's part of the Hessian of every output: 0, rows or a matrix.

    "update": the rows that entered and those that left since the Gram matrix was made;
    "rebuild": all curved rows; "shared": nothing, another output sends the same; "woodbury": all
    curved rows, but the Gram matrix stays as it is. Rows are scaled by sqrt(s L'' / max L'') and
    come as a list of pairs, to be joined; ``as_gram`` the difference of the Gram matrices of both.
    """
    results: list[Any] = []
    for (o, loss, _, _, s, u), plan in zip(task.slacks(block), plans, strict=True):
        results.append(0)
        if plan.kind == "none":
            continue
        now, in_gram = _curved(loss, u, s), block.kept(NewtonRows).in_gram
        entered, left = now, now[:0]
        if plan.kind == "update":
            entered, left = now & ~in_gram[o, :], in_gram[o, :] & ~now
        if plan.kind != "woodbury":
            in_gram[o, :] = now
        if plan.kind == "shared":
            continue
        plus = _scaled(block, task.features, entered, loss, u, s)
        minus = _scaled(block, task.features, left, loss, u, s)
        if plan.as_gram:
            total = gram(plus)
            if minus.shape[0]:
                total -= gram(minus)
            results[-1] = total if plan.stays else to_host(total)
        else:
            results[-1] = [(to_host(plus), to_host(minus))]
    return tuple(results)


@declare("X", "y", "weight", keeps=(NewtonRows, *COLUMNS))
def curvature_times(block: Block, task: NewtonPass, V: Array) -> Array:
    """Return Phi' diag(s L'') Phi V, with a column of V for every output."""
    Phi = task.features.of(block)
    products = Phi @ like_rows(V, Phi)
    for c, (_, loss, _, _, s, u) in enumerate(task.slacks(block)):
        products[:, c] *= s * loss.second_derivative(u)
    return np.asarray(to_host(Phi.T @ products))


def _scaled(block: Block, features: FeatureMap, marked: Any, loss: Loss, u: Any, s: Any) -> Any:
    """Return the marked rows of Phi times sqrt(s L'' / max L'')."""
    xp = namespace(s)
    rows = np.asarray(to_host(xp.nonzero(marked)[0]), dtype=np.intp)
    if len(rows) == 0:
        return zeros((0, features.width), block.X)
    weight = rows_at(s, rows)
    if not loss.curvature_is_piecewise_constant:
        weight = weight * loss.second_derivative(rows_at(u, rows)) / loss.max_curvature
    everything = len(rows) == block.stop - block.start
    Z = features.of(block) if everything else features.of_rows(block, rows)
    return Z if bool(xp.all(weight == 1.0)) else Z * xp.sqrt(weight)[:, None]


def _curved(loss: Loss, u: Any, s: Any) -> Any:
    """Mark the rows that count in the Hessian."""
    floor = 0.0 if loss.curvature_is_piecewise_constant else _NO_CURVATURE * loss.max_curvature
    return (loss.second_derivative(u) > floor) & (s > 0)


@declare("y", "weight")
def target_sums(block: Block, task: NewtonPass) -> tuple[Any, float]:
    """Return the weighted sums of the centred targets, and the sum of the weights."""
    _, y, s = task.targets(block)
    with np.errstate(all="ignore"):  # sums beyond float64 are looked for by the caller
        return to_host(s @ y), float(namespace(y).sum(s))


@declare("X", "y", "weight", keeps=COLUMNS)
def dual(block: Block, task: NewtonPass, scale: Array) -> tuple[Array, Array]:
    """Sum of g y - s L*(g side / s) and Phi'g at the slopes g = s side L'(u), scaled by sign."""
    xp, values, columns = namespace(block.X), np.empty(len(task.outputs)), []
    for c, (_, loss, side, y, s, u) in enumerate(task.slacks(block)):
        g = s * side * loss.derivative(u)
        g = xp.where(g > 0, float(scale[c, 0]) * g, float(scale[c, 1]) * g)
        columns.append(g)
        safe = xp.where(s > 0, s, 1.0)  # rows of zero weight have no slope
        conjugate = loss.conjugate(xp.clip(side * g / safe, *loss.domain))
        values[c] = float(g @ y - s @ conjugate)
    return values, to_host(task.features.of(block).T @ xp.stack(columns, axis=1))
