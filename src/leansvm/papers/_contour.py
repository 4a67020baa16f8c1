"""Level lines of a function on a grid, by marching squares."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

# Corners of a cell: 0 lower left, 1 lower right, 2 upper right, 3 upper left. Edges: 0 bottom,
# 1 right, 2 top, 3 left. By which corners lie above the level, the pairs of edges to connect.
_EDGES: dict[int, tuple[tuple[int, int], ...]] = {
    1: ((3, 0),), 2: ((0, 1),), 3: ((3, 1),), 4: ((1, 2),), 5: ((3, 2), (0, 1)), 6: ((0, 2),),
    7: ((3, 2),), 8: ((2, 3),), 9: ((0, 2),), 10: ((3, 0), (1, 2)), 11: ((1, 2),),
    12: ((1, 3),), 13: ((0, 1),), 14: ((3, 0),),
}  # fmt: skip
_ENDS = ((0, 1), (1, 2), (3, 2), (0, 3))  # corners of each edge


def contours(x: np.ndarray, y: np.ndarray, values: np.ndarray, level: float) -> list[np.ndarray]:
    """Return the lines on which the function has this value.

    Parameters
    ----------
    x, y : ndarray of shape (n,), (m,)
        Coordinates of the columns and rows of the grid, increasing.
    values : ndarray of shape (m, n)
        The function.
    level : float
        The value.

    Returns
    -------
    list of ndarray of shape (n_points, 2)
        Polylines; a closed one repeats its first point.
    """
    above = values > level
    code = above[:-1, :-1] + 2 * above[:-1, 1:] + 4 * above[1:, 1:] + 8 * above[1:, :-1]
    points: dict[tuple[int, int, int], np.ndarray] = {}
    links: dict[tuple[int, int, int], list[tuple[int, int, int]]] = defaultdict(list)
    for i, j in zip(*np.nonzero((code > 0) & (code < 15)), strict=True):
        corners = ((i, j), (i, j + 1), (i + 1, j + 1), (i + 1, j))
        for pair in _EDGES[int(code[i, j])]:
            names = []
            for edge in pair:
                a, b = (corners[end] for end in _ENDS[edge])
                name = (int(a[0]), int(a[1]), 0 if a[0] == b[0] else 1)  # 0: runs along x
                if name not in points:
                    t = (level - values[a]) / (values[b] - values[a])
                    points[name] = np.array(
                        [x[a[1]] + t * (x[b[1]] - x[a[1]]), y[a[0]] + t * (y[b[0]] - y[a[0]])]
                    )
                names.append(name)
            links[names[0]].append(names[1])
            links[names[1]].append(names[0])
    return [np.array([points[name] for name in chain]) for chain in _chains(links)]


def regions(x: np.ndarray, y: np.ndarray, values: np.ndarray) -> list[np.ndarray]:
    """Return closed lines around where the function is positive (fill them even-odd)."""
    below = -max(1e-300, float(np.abs(values).max()))
    padded = np.pad(values, 1, constant_values=1e6 * below)
    tiny_x, tiny_y = 1e-6 * (x[-1] - x[0]), 1e-6 * (y[-1] - y[0])
    wide = np.concatenate([[x[0] - tiny_x], x, [x[-1] + tiny_x]])
    high = np.concatenate([[y[0] - tiny_y], y, [y[-1] + tiny_y]])
    return contours(wide, high, padded, 0.0)


def _chains(
    links: dict[tuple[int, int, int], list[tuple[int, int, int]]],
) -> list[list[tuple[int, int, int]]]:
    """Join the segments: open lines from their ends first, then the closed ones."""
    left = {name: list(others) for name, others in links.items()}
    chains = []
    for start in sorted(left, key=lambda name: len(links[name])):
        while left[start]:
            chain = [start]
            while left[chain[-1]]:
                following = left[chain[-1]].pop()
                left[following].remove(chain[-1])
                chain.append(following)
            chains.append(chain)
    return chains
