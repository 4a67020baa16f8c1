"""Synthetic data of the papers: checkerboards, linear toys and Ripley's mixture."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from sklearn.utils import check_random_state


def checkerboard_rows(
    index: np.ndarray, n_side: int = 200, *, n_cells: int = 4, extent: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return some points of a noise-free checkerboard, by their number.

    Point k of the ``n_side × n_side`` grid lies in column ``k % n_side`` and row
    ``k // n_side``; its label is the colour of its cell.

    Parameters
    ----------
    index : ndarray of int
        Which points, each from 0 to n_side² - 1.
    n_side : int, default=200
        Points along each side.
    n_cells : int, default=4
        Cells along each side.
    extent : float, default=None
        The points cover [0, extent]²; None: the integers 0 to n_side - 1.

    Returns
    -------
    X : ndarray of shape (len(index), 2)
        The points.
    y : ndarray of shape (len(index),)
        Labels ±1; the cell at the origin is +1.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm.datasets import checkerboard_rows
    >>> checkerboard_rows(np.array([0, 50, 10_000]))
    (array([[ 0.,  0.],
           [50.,  0.],
           [ 0., 50.]]), array([ 1, -1, -1]))
    """
    if n_side < n_cells or n_cells < 1:
        raise ValueError(f"n_side={n_side} points are too few for n_cells={n_cells} cells per side")
    places = np.column_stack([index % n_side, index // n_side])
    colours = (places * n_cells // n_side).sum(axis=1) % 2
    step = 1.0 if extent is None else extent / (n_side - 1)
    return places * step, np.where(colours == 0, 1, -1)


def make_checkerboard(
    n_side: int = 200, *, n_cells: int = 4, extent: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return all points of a noise-free checkerboard.

    The default is zhou2013's: the 40,000 integer points of [0, 199]² in 4 × 4 cells.

    Parameters
    ----------
    n_side : int, default=200
        Points along each side.
    n_cells : int, default=4
        Cells along each side.
    extent : float, default=None
        The points cover [0, extent]²; None: the integers 0 to n_side - 1.

    Returns
    -------
    X : ndarray of shape (n_side², 2)
        The points.
    y : ndarray of shape (n_side²,)
        Labels ±1.

    Examples
    --------
    >>> from leansvm.datasets import make_checkerboard
    >>> X, y = make_checkerboard()
    >>> X.shape, int(y.sum())
    ((40000, 2), 0)
    """
    return checkerboard_rows(np.arange(n_side**2), n_side, n_cells=n_cells, extent=extent)


def checkerboard_blocks(
    part: Literal["all", "train", "test"] = "all",
    *,
    n_side: int = 2000,
    n_cells: int = 4,
    extent: float | None = 1.0,
    train_size: float = 0.75,
    block_size: int = 65_536,
    random_state: int | np.random.RandomState | None = 0,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield a checkerboard in blocks of rows, so that it never lies in memory as a whole.

    The default is zhou2016's Checkerboard3M: 2000² = 4,000,000 points of [0, 1]², of which
    3,000,000 random points are the training rows.

    Parameters
    ----------
    part : {"all", "train", "test"}, default="all"
        All points in the order of the grid, or a random part of them in random order.
    n_side : int, default=2000
        Points along each side.
    n_cells : int, default=4
        Cells along each side.
    extent : float, default=1.0
        The points cover [0, extent]²; None: the integers 0 to n_side - 1.
    train_size : float, default=0.75
        Share of the points in the part "train".
    block_size : int, default=65536
        Rows per block; the last may have fewer.
    random_state : int, RandomState or None, default=0
        Draws the parts; give the same integer for both.

    Yields
    ------
    X : ndarray of shape (rows, 2)
        Points.
    y : ndarray of shape (rows,)
        Labels ±1.

    Examples
    --------
    >>> from leansvm.datasets import checkerboard_blocks
    >>> sum(len(y) for X, y in checkerboard_blocks("test"))
    1000000
    """
    if part not in ("all", "train", "test"):
        raise ValueError(f'part={part!r} must be "all", "train" or "test"')
    n_points = n_side**2
    rows = np.arange(n_points, dtype=np.int32 if n_points < 2**31 else np.int64)
    if part != "all":
        check_random_state(random_state).shuffle(rows)
        n_train = round(train_size * n_points)
        rows = rows[:n_train] if part == "train" else rows[n_train:]
    for start in range(0, len(rows), block_size):
        block = rows[start : start + block_size].astype(np.int64)
        yield checkerboard_rows(block, n_side, n_cells=n_cells, extent=extent)


def make_four_points() -> tuple[np.ndarray, np.ndarray]:
    """Return peng2016's four separable points in the plane (section 6.1).

    Returns
    -------
    X : ndarray of shape (4, 2)
        The points.
    y : ndarray of shape (4,)
        Labels ±1.

    Examples
    --------
    >>> from leansvm.datasets import make_four_points
    >>> make_four_points()[1]
    array([ 1,  1, -1, -1])
    """
    return np.array([[1.1, 1.0], [1.0, 1.0], [0.0, 0.0], [-0.1, 0.0]]), np.array([1, 1, -1, -1])


def make_linear_toy(
    n_samples: int = 1400, *, random_state: int | np.random.Generator | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return two overlapping Gaussian clouds, as in zhou2016's Fig. 3.

    The paper shows a picture and the test error of the dense machine, 5.4 %. Unit covariances
    with means ±(1.13, 1.13) have that error at the best possible line. The paper trains on
    400 points and tests on 1000.

    Parameters
    ----------
    n_samples : int, default=1400
        Points; the classes alternate, so that any leading part is balanced.
    random_state : int, Generator or None, default=None
        Seed of the draw.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The points.
    y : ndarray of shape (n_samples,)
        Labels ±1.

    Examples
    --------
    >>> from leansvm.datasets import make_linear_toy
    >>> X, y = make_linear_toy(random_state=0)
    >>> X.shape, int(y[:400].sum())
    ((1400, 2), 0)
    """
    rng = np.random.default_rng(random_state)
    y = np.where(np.arange(n_samples) % 2, 1, -1)
    return rng.normal(size=(n_samples, 2)) + 1.13 * y[:, None], y


def make_ripley(
    n_samples: int = 1250, *, random_state: int | np.random.Generator | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return draws from Ripley's mixture of two Gaussians per class (best error 9 %).

    Centres (-0.7, 0.3) and (0.3, 0.3) for class -1, (-0.3, 0.7) and (0.4, 0.7) for class +1,
    all with covariance 0.03 I. The drawn set that fang2019 uses is ``load("synth")``.

    Parameters
    ----------
    n_samples : int, default=1250
        Points; the classes alternate, so that any leading part is balanced.
    random_state : int, Generator or None, default=None
        Seed of the draw.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The points.
    y : ndarray of shape (n_samples,)
        Labels ±1.

    Examples
    --------
    >>> from leansvm.datasets import make_ripley
    >>> X, y = make_ripley(random_state=0)
    >>> X.shape
    (1250, 2)
    """
    rng = np.random.default_rng(random_state)
    y = np.where(np.arange(n_samples) % 2, 1, -1)
    centres = np.array([[[-0.7, 0.3], [0.3, 0.3]], [[-0.3, 0.7], [0.4, 0.7]]])
    which = rng.integers(2, size=n_samples)
    noise = rng.normal(scale=np.sqrt(0.03), size=(n_samples, 2))
    return centres[(y > 0).astype(int), which] + noise, y
