"""From the parameters ``basis``, ``n_basis`` and ``select_on`` to basis points.

`resolve_basis` says what the user's parameters mean, `choose` runs a selector on
all rows, or on a stratified sample if its state would take more than half of the budget.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.random import sample_without_replacement

from leansvm import basis as selectors
from leansvm._array_api import foreign_namespace, in_float64, like_rows, moved, rows_at, to_host
from leansvm._sklearn import level_of_user
from leansvm.basis.selector import Basis as Basis
from leansvm.basis.selector import BasisSelector, Fit, OnStep
from leansvm.kernels import Kernel
from leansvm.rows import (
    LEAST_BUDGET,
    Block,
    MemoryBlocks,
    RowBlocks,
    check_budget,
    class_numbers,
    declare,
    rows_alike,
    total_weight,
)

Rows = NDArray[np.intp]
SELECTORS: dict[str, type[BasisSelector]] = {  # by the names that basis= takes
    "random": selectors.RandomBasis,
    "pivoted-cholesky": selectors.PivotedCholesky,
    "random-pivoted-cholesky": selectors.RandomPivotedCholesky,
    "backfitting": selectors.Backfitting,
    "forward": selectors.ForwardSelection,
    "csi": selectors.CSI,
    "sparse-greedy": selectors.SparseGreedy,
    "entropy": selectors.RenyiEntropy,
    "medoids": selectors.KMedoids,
}
_PERHAPS_INDEFINITE = ("sigmoid", "poly", "polynomial", "precomputed")
_CHECKED_ROWS, _NEGATIVE = 200, 1e-5  # of the largest eigenvalue; float32 rounds to 1e-7
LAST_SIZE = 2000  # the largest that n_basis="auto" tries, unless a machine says otherwise


# ---------------------------------------------------------------------------- choosing


def choose(
    blocks: RowBlocks,
    kernel: Kernel,
    selector: Any,
    n_basis: int,
    *,
    select_on: Any,
    budget: int,
    random_state: Any,
    fit: Fit | None = None,
    on_step: OnStep | None = None,
    earlier: Basis | None = None,
) -> Basis:
    """Choose up to ``n_basis`` rows by a selector, or take given row numbers or points.

    ``selector`` is what `resolve_basis` returns. ``select_on`` says on which rows a selector works:
    "all", a number, a share, or "auto" for as many rows as fit in half of the ``budget`` (bytes of
    state that blocks may keep). Points of an ``earlier`` fit stay, and a selector adds others.
    """
    if not isinstance(selector, BasisSelector):
        return _given(blocks, selector)
    if earlier is not None and n_basis <= earlier.rows.shape[0]:
        return Basis(earlier.indices[:n_basis], rows_at(earlier.rows, np.arange(n_basis)))
    rng = check_random_state(random_state)
    count = min(n_basis, blocks.n_rows)
    here, columns, sample = blocks, selector.state_columns(count), None
    if not (blocks.place is None or selector.runs_where_rows_are):
        here = _in_memory(blocks, np.arange(blocks.n_rows), columns, True)
    if columns and not kernel.precomputed and select_on != "all":
        sample = _sample(here, 8 * columns, count, select_on, budget, rng)
    seed = int(rng.randint(np.iinfo(np.int32).max))
    part = here if sample is None else _in_memory(here, sample, columns, False)
    if columns and select_on != "auto" and isinstance(part, MemoryBlocks):
        check_budget(  # blocks of other kinds keep what does not fit in files or on workers
            32 * columns * part.n_rows // 3,  # a quarter of the budget is for tiles
            max(budget, LEAST_BUDGET),
            f"{type(selector).__name__} on {part.n_rows:,} rows",
            "Use select_on='auto', which takes as many rows as fit, or raise cache_size.",
        )
    rows = min(selector.matrix_rows(count), part.n_rows)
    if rows:
        check_budget(
            8 * rows**2,
            max(budget, LEAST_BUDGET),
            f"{type(selector).__name__} on a sample of {rows:,} rows",
            "Use a smaller sample_size or n_basis, or raise cache_size.",
        )
    if fit is not None and sample is not None:  # C is for the losses of all rows
        fit = replace(fit, C=fit.C * total_weight(here) / total_weight(part))
    found = selector.select(part, kernel, count, random_state=seed, fit=fit, on_step=on_step)
    indices = np.asarray(found.indices if isinstance(found, Basis) else np.nan)
    inside = indices.dtype.kind in "iu" and np.all((indices >= 0) & (indices < part.n_rows))
    if not (inside and len(np.unique(indices)) == indices.size <= count):
        raise ValueError(
            f"{type(selector).__name__} must choose a Basis with at most {count} different row "
            f"numbers, from 0 to {part.n_rows - 1}, got {found!r:.80}."
        )
    if not indices.size and type(selector) not in SELECTORS.values():
        raise ValueError(f"{type(selector).__name__} chose no row: it must choose at least one.")
    if sample is not None:
        indices = sample[indices]
        found.report["selected_on"] = len(sample)
    L = found.L if part is blocks else None
    new = replace(found, indices=indices, rows=blocks.take(indices), L=L)
    return new if earlier is None else _joined(earlier, new, n_basis)


def check_definite(blocks: RowBlocks, kernel: Kernel) -> None:
    """Warn if the kernel matrix of some rows has clearly negative eigenvalues.

    K_BB = L L' exists for positive semidefinite kernels; with others, it drops most points.
    Raise ValueError if there is no positive eigenvalue, so that no point would be left.
    """
    name = getattr(kernel.name, "__name__", kernel.name)
    if not (callable(kernel.name) or name in _PERHAPS_INDEFINITE):
        return
    few = np.unique(np.linspace(0, blocks.n_rows - 1, _CHECKED_ROWS).astype(np.intp))
    rows = in_float64(blocks.take(few))
    K = np.array(to_host(kernel.block(rows, kernel.points(rows, few), dtype=np.float64)))
    if not np.isfinite(K).all():  # the fit says so
        return
    eigenvalues = np.linalg.eigvalsh((K + K.T) / 2)
    low, high = float(eigenvalues[0]), float(eigenvalues[-1])
    if low >= -_NEGATIVE * max(abs(low), high):
        return
    text = f"kernel={name!r} is not positive semidefinite: its matrix has negative eigenvalues"
    if high <= -_NEGATIVE * low:
        raise ValueError(f"{text} only, so that no basis point is left. Use another kernel.")
    warnings.warn(
        f"{text}, and most basis points may be dropped. Use another kernel or other parameters.",
        UserWarning,
        stacklevel=level_of_user(),
    )


def points_of_before(blocks: RowBlocks, numbers: Rows, points: Any) -> Basis:
    """Return the points of an earlier fit; the number of a row that has changed becomes -1."""
    numbers = np.where(numbers < blocks.n_rows, numbers, -1)
    known = np.flatnonzero(numbers >= 0)
    if len(known):
        same = rows_alike(blocks.take(numbers[known]), rows_at(points, known))
        numbers[known[~same]] = -1
    return Basis(numbers, points)


def _given(blocks: RowBlocks, basis: Any) -> Basis:
    """Return given row numbers or points."""
    if basis.ndim == 1:
        return Basis(basis, blocks.take(basis))
    if blocks.place is None:
        return Basis(None, basis.astype(blocks.dtype))
    return Basis(None, like_rows(basis, blocks.place, dtype=blocks.place.dtype))


def _joined(earlier: Basis, new: Basis, n_basis: int) -> Basis:
    """Return the earlier points, then the first others of a new choice."""
    missing = n_basis - len(earlier.indices)
    others = np.flatnonzero(~np.isin(new.indices, earlier.indices))[:missing]
    indices = np.concatenate([earlier.indices, new.indices[others]])
    first, second = earlier.rows, rows_at(new.rows, others)
    xp = foreign_namespace(second)
    if xp is not None:
        rows = xp.concat([moved(first, second), second])
    elif sparse.issparse(first) or sparse.issparse(second):
        rows = sparse.vstack([first, second], format="csr", dtype=second.dtype)
    else:
        rows = np.concatenate([first, second]).astype(second.dtype, copy=False)
    return Basis(indices, rows, report=new.report)


def _in_memory(blocks: RowBlocks, rows: Rows, columns: int, host: bool) -> RowBlocks:
    """Return some of the rows in memory; selectors that support only NumPy get NumPy rows."""
    X, weighed, by_class = blocks.take(rows), blocks.targets_of(rows), blocks.class_weight
    X = to_host(X) if host else X
    part = MemoryBlocks(X, *weighed, class_weight=by_class, columns=columns)
    part.by_values = blocks.by_values
    return part


def _sample(
    blocks: RowBlocks, row_bytes: int, n_basis: int, select_on: Any, budget: int, rng: Any
) -> Rows | None:
    """Return the rows to select on, None for all of them."""
    if select_on == "auto":
        count = max(budget // (2 * row_bytes), 4 * n_basis)
    elif isinstance(select_on, Integral):
        count = int(select_on)
    else:
        count = int(np.ceil(float(select_on) * blocks.n_rows))
    if count >= blocks.n_rows:
        return None
    return _stratified_rows(blocks, max(count, n_basis), rng)


def _stratified_rows(blocks: RowBlocks, count: int, rng: Any) -> Rows:
    """Draw rows of positive weight; classes (by the columns of y) keep their proportions.

    Memory is that of the sample: blocks count the rows of every class, then find those whose
    numbers within their class were drawn.
    """
    counted = blocks.map(_sizes_of_strata)
    starts, in_blocks = np.array([c[0] for c in counted]), np.array([c[1] for c in counted])
    sizes = in_blocks.sum(axis=0)
    count = min(count, int(sizes.sum()))
    # equal steps along the rows sorted by class hit every class in proportion
    spaced = np.linspace(0, sizes.sum() - 1, count).astype(np.intp)
    drawn = np.diff(np.searchsorted(spaced, np.concatenate([[0], np.cumsum(sizes)])))
    ranks = [
        np.sort(sample_without_replacement(size, n, random_state=rng))
        for size, n in zip(sizes.tolist(), drawn.tolist(), strict=True)
    ]
    before = np.cumsum(np.vstack([np.zeros_like(sizes), in_blocks]), axis=0)
    (rows,) = blocks.collect(_rows_of_ranks, starts, before, ranks)
    return np.asarray(rows)


@declare("y", "weight")
def _sizes_of_strata(block: Block) -> tuple[int, Rows]:
    """Return the block's first row and its number of rows of every class."""
    columns = 1 if block.y is None else block.y.shape[1]
    strata = _stratum(block)
    return block.start, np.bincount(strata[strata >= 0], minlength=max(columns, 2))


@declare("y", "weight")
def _rows_of_ranks(block: Block, starts: Rows, before: Rows, ranks: list[Rows]) -> tuple[Rows]:
    """Return the rows whose numbers within their class, counted over all blocks, are drawn."""
    strata = _stratum(block)
    here = int(np.flatnonzero(starts == block.start)[-1])
    found = [np.empty(0, np.intp)]
    for k, wanted in enumerate(ranks):
        low, high = np.searchsorted(wanted, [before[here, k], before[here + 1, k]])
        if low < high:
            found.append(np.flatnonzero(strata == k)[wanted[low:high] - before[here, k]])
    return (block.start + np.sort(np.concatenate(found)),)


def _stratum(block: Block) -> Rows:
    """Return the class of every row, -1 if the weight is zero."""
    n = block.stop - block.start
    strata = np.zeros(n, dtype=np.intp)
    if block.y is not None:
        strata = class_numbers(np.asarray(to_host(block.y)))
    if block.weight is not None:
        strata = np.where(np.asarray(to_host(block.weight)) > 0, strata, -1)
    return strata


# ---------------------------------------------------------------------------- parameters


def resolve_basis(
    basis: Any,
    n_basis: Any,
    shape: tuple[int, int],
    precomputed: bool,
    data: Any = None,
    last_size: int = LAST_SIZE,
) -> tuple[Any, int, bool]:
    """Return the basis, its number of points, and whether the fit chooses this number.

    The basis is a selector, a 1-D array of row numbers or a 2-D array of points. "all" becomes the
    numbers of all rows or, if ``data`` has weights, of the rows of positive weight. With
    ``n_basis="auto"`` and a selector, the number is the largest to try.
    """
    n_rows = shape[0] if data is None else data.n_positive
    if isinstance(basis, BasisSelector):
        selector = clone(basis)
    elif isinstance(basis, str) and basis in SELECTORS:
        selector = SELECTORS[basis]()
    elif isinstance(basis, str) and basis == "all":
        rows = np.arange(shape[0])
        weight = None if data is None else data.blocks().targets_of(rows)[1]
        rows = rows if weight is None else np.flatnonzero(weight > 0)
        return rows, len(rows), False
    else:
        given = _checked(basis, shape, precomputed)
        return given, len(given), False
    if isinstance(n_basis, str):
        return selector, min(last_size, n_rows), True
    return selector, resolve_n_basis(n_basis, n_rows), False


def _checked(basis: Any, shape: tuple[int, int], precomputed: bool) -> NDArray[Any]:
    """Return given row numbers, each once, or given points."""
    if isinstance(basis, str):
        names = ", ".join([*SELECTORS, "all"])
        raise ValueError(f"basis must be one of {names}, a selector or an array, got {basis!r}.")
    if isinstance(basis, type):
        raise ValueError(
            f"basis must be a selector instance, got the class {basis.__name__}: add ()."
        )
    array = np.asarray(basis)
    if array.ndim == 1 and np.issubdtype(array.dtype, np.integer):
        if array.size == 0:
            raise ValueError("basis: the array of row numbers is empty.")
        if array.min() < 0 or array.max() >= shape[0]:
            raise ValueError(f"basis: row numbers must be between 0 and {shape[0] - 1}.")
        _, first = np.unique(array, return_index=True)
        return array[np.sort(first)].astype(np.intp)
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.number):
        raise ValueError(
            "basis must be a name, a selector, a 1-D integer array of row numbers or a 2-D array "
            f"of points, got {basis!r}."
        )
    if precomputed:
        raise ValueError(
            "basis: points do not work with kernel='precomputed'; pass row numbers instead."
        )
    if array.shape[1] != shape[1]:
        raise ValueError(f"basis: points have {array.shape[1]} features, X has {shape[1]}.")
    if array.shape[0] == 0 or not np.isfinite(array).all():
        raise ValueError("basis: points must be a non-empty array of finite numbers.")
    return array


def resolve_n_basis(n_basis: Any, n_rows: int) -> int:
    """Turn a count or a fraction into a number of rows; if it is too large, warn and use all."""
    if isinstance(n_basis, Integral):
        count = int(n_basis)
    else:
        count = max(1, int(np.ceil(float(n_basis) * n_rows)))
    if count > n_rows:
        warnings.warn(
            f"n_basis={n_basis} is more than the {n_rows} rows of the data; all rows are used.",
            UserWarning,
            stacklevel=level_of_user(),
        )
        count = n_rows
    return count
