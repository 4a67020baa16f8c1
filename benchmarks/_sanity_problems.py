"""Synthetic problems of `benchmarks.sanity`: what generates them, by family, and their variants.

A generator takes a random generator and the numbers of its variant, and returns a `Problem`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Rng = np.random.Generator
Array = np.ndarray
HELD_OUT = 4000  # rows to score on: with 500, accuracy is known only to 0.02
_MOMENTS = 250  # of a random walk, held out


class Problem(NamedTuple):
    """Rows and targets; the first ``rows`` are for training, the others are held out."""

    X: Array
    y: Array
    rows: int
    is_classification: bool = False

    def split(self) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """Return training rows with targets, and held-out ones."""
        n = self.rows
        return (self.X[:n], self.y[:n]), (self.X[n:], self.y[n:])


def _noisy(rng: Rng, f: Array, noise: float) -> Array:
    """Add noise, as a share of the standard deviation."""
    return f + noise * f.std() * rng.normal(size=len(f))


def _labels(rng: Rng, f: Array, flipped: float = 0.0, share: float = 0.5) -> Array:
    """Return labels: the largest ``share`` of f is 1; some are flipped."""
    y = (f > np.quantile(f, 1.0 - share)).astype(int)
    return np.where(rng.uniform(size=len(y)) < flipped, 1 - y, y)


# ---------------------------------------------------------------------------- awkward


def heavy_tails(rng: Rng, rows: int, columns: int, spread: float, labels: bool = False) -> Problem:
    """A sum of log-normal features, with 5 % of noise that grows with it."""
    X = np.exp(spread * rng.normal(size=(rows + HELD_OUT, columns)))
    y = X.sum(axis=1) * (1 + 0.05 * rng.normal(size=len(X)))
    return Problem(X, _labels(rng, y) if labels else y, rows, labels)


def random_walk(rng: Rng, rows: int, future: bool) -> Problem:
    """A walk with a drift and its time index; held out are its future, or moments in between."""
    n = rows + _MOMENTS
    time = np.arange(n, dtype=float)
    y = np.cumsum(0.2 + rng.normal(size=n))
    X = np.column_stack([time, rng.normal(size=n)])
    order = np.arange(n) if future else rng.permutation(n)
    return Problem(X[order], y[order], rows)


def few_rows(rng: Rng, rows: int, columns: int) -> Problem:
    """A straight line in a handful of rows."""
    X = rng.normal(size=(rows + HELD_OUT, columns))
    return Problem(X, _noisy(rng, X @ rng.normal(size=columns), 0.1), rows)


def difference(rng: Rng, rows: int, common: float, labels: bool = False) -> Problem:
    """The difference of two features that share a much larger variation."""
    n = rows + HELD_OUT
    shared, own = common * rng.normal(size=n), rng.normal(size=(n, 2))
    X = np.column_stack([shared + own[:, 0], shared + own[:, 1], rng.normal(size=n)])
    f = own[:, 0] - own[:, 1]
    y = _labels(rng, f) if labels else _noisy(rng, f, 0.08)
    return Problem(X, y, rows, labels)


def linear_classes(rng: Rng, rows: int, classes: int, columns: int) -> Problem:
    """The largest of as many linear functions as there are classes, with noise."""
    X = rng.normal(size=(rows + HELD_OUT, columns))
    F = X @ rng.normal(size=(columns, classes))
    return Problem(X, np.argmax(F + 0.5 * rng.normal(size=F.shape), axis=1), rows, True)


# ---------------------------------------------------------------------------- ordinary


def linear(rng: Rng, rows: int, columns: int, noise: float, labels: bool = False) -> Problem:
    """A straight line with noise."""
    X = rng.normal(size=(rows + HELD_OUT, columns))
    f = _noisy(rng, X @ rng.normal(size=columns), noise)
    return Problem(X, _labels(rng, f) if labels else f, rows, labels)


def additive(rng: Rng, rows: int, columns: int, labels: bool = False) -> Problem:
    """A sum of a curve, a square, a step and straight lines."""
    X = rng.uniform(-2, 2, size=(rows + HELD_OUT, columns))
    f = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] ** 2 + (X[:, 2] > 0) + X[:, 3:].sum(axis=1) / 2
    y = _labels(rng, f, 0.05) if labels else _noisy(rng, f, 0.2)
    return Problem(X, y, rows, labels)


def interactions(rng: Rng, rows: int, columns: int, labels: bool = False) -> Problem:
    """Products of features beside a straight line."""
    X = rng.normal(size=(rows + HELD_OUT, columns))
    f = X[:, 0] * X[:, 1] + X[:, 2] * np.maximum(X[:, 3], 0) + X[:, 0]
    y = _labels(rng, f, 0.05) if labels else _noisy(rng, f, 0.2)
    return Problem(X, y, rows, labels)


def noise_features(rng: Rng, rows: int, columns: int, labels: bool = False) -> Problem:
    """Two features that matter among many that do not."""
    X = rng.normal(size=(rows + HELD_OUT, columns))
    f = X[:, 0] + np.abs(X[:, 1])
    y = _labels(rng, f, 0.05) if labels else _noisy(rng, f, 0.3)
    return Problem(X, y, rows, labels)


def nothing(rng: Rng, rows: int, labels: bool = False) -> Problem:
    """Targets that have nothing to do with the features."""
    X = rng.normal(size=(rows + HELD_OUT, 5))
    y = rng.integers(0, 2, len(X)) if labels else rng.normal(size=len(X))
    return Problem(X, y, rows, labels)


def wide(rng: Rng, rows: int, columns: int, labels: bool = False) -> Problem:
    """More features than rows; ten of them matter."""
    X = rng.normal(size=(rows + HELD_OUT, columns))
    f = _noisy(rng, X[:, :10].sum(axis=1), 0.2)
    return Problem(X, _labels(rng, f) if labels else f, rows, labels)


def imbalanced(rng: Rng, rows: int, share: float, curved: bool) -> Problem:
    """A rare class behind a plane or outside of a ball."""
    X = rng.normal(size=(rows + HELD_OUT, 5))
    f = np.square(X[:, :3]).sum(axis=1) if curved else X[:, 0] + X[:, 1]
    return Problem(X, _labels(rng, _noisy(rng, f, 0.2), share=share), rows, True)


def duplicates(rng: Rng, rows: int, copies: int, labels: bool = False) -> Problem:
    """Training rows that occur several times, each time with a target of its own."""
    X = rng.normal(size=(rows // copies + HELD_OUT, 4))
    X = np.concatenate([np.repeat(X[: rows // copies], copies, axis=0), X[rows // copies :]])
    f = _noisy(rng, X[:, 0] + np.sin(2 * X[:, 1]), 0.3)
    return Problem(X, _labels(rng, f) if labels else f, rows // copies * copies, labels)


def constant_columns(rng: Rng, rows: int, constants: int, labels: bool = False) -> Problem:
    """Columns that never change, one that changes once, and a straight line."""
    n = rows + HELD_OUT
    X = np.column_stack([rng.normal(size=(n, 3)), np.full((n, constants), 1e3), np.zeros(n)])
    X[0, -1] = 1.0
    f = _noisy(rng, X[:, :3].sum(axis=1), 0.2)
    return Problem(X, _labels(rng, f) if labels else f, rows, labels)


def mixed_scales(rng: Rng, rows: int, decades: int, labels: bool = False) -> Problem:
    """Features whose units differ by many decades, some of them counts or far from zero."""
    Z = rng.normal(size=(rows + HELD_OUT, 6))
    Z[:, 4], Z[:, 5] = rng.poisson(3, len(Z)), rng.integers(0, 2, len(Z))
    f = _noisy(rng, Z[:, 0] + Z[:, 1] * Z[:, 5] + 0.3 * Z[:, 4], 0.2)
    X = (Z + np.array([0, 50, 0, 0, 0, 0])) * 10.0 ** np.linspace(-decades, decades, 6)
    return Problem(X, _labels(rng, f) if labels else f, rows, labels)


# ---------------------------------------------------------------------------- all of them


def _variants(labels: tuple[bool, ...] = (False, True), **choices: Any) -> list[dict[str, Any]]:
    """Return every combination of the choices, each with and without labels."""
    found: list[dict[str, Any]] = [{"labels": True} if asked else {} for asked in labels]
    for name, values in choices.items():
        found = [variant | {name: value} for value in values for variant in found]
    return found


_NUMBERS = (False,)
Family = tuple[Callable[..., Problem], list[dict[str, Any]]]
FAMILIES: dict[str, Family] = {
    "heavy-tailed features": (
        heavy_tails,
        _variants(rows=(200, 1000), columns=(3, 8), spread=(1.0, 2.0)),
    ),
    "random walk and time": (random_walk, _variants(_NUMBERS, rows=(150, 500), future=(0, 1))),
    "6 to 12 rows": (few_rows, _variants(_NUMBERS, rows=(6, 8, 10, 12), columns=(1, 2, 3))),
    "difference on a common variation": (
        difference,
        _variants(rows=(200, 1000), common=(10.0, 100.0)),
    ),
    "10 to 20 linear classes": (
        linear_classes,
        _variants(_NUMBERS, rows=(400, 1000, 3000), classes=(10, 20), columns=(5, 15)),
    ),
    "linear": (linear, _variants(rows=(50, 600), columns=(3, 12), noise=(0.1, 1.0))),
    "additive": (additive, _variants(rows=(100, 800), columns=(4, 10))),
    "interactions": (interactions, _variants(rows=(150, 800), columns=(4, 8))),
    "noise features": (noise_features, _variants(rows=(100, 600), columns=(20, 50))),
    "nothing to learn": (nothing, _variants(rows=(50, 500))),
    "few rows, many features": (wide, _variants(rows=(40, 100), columns=(100, 400))),
    "imbalanced": (
        imbalanced,
        _variants(_NUMBERS, rows=(300, 1000), share=(0.05, 0.2), curved=(0, 1)),
    ),
    "duplicates": (duplicates, _variants(rows=(120, 600), copies=(3,))),
    "constant columns": (constant_columns, _variants(rows=(60, 400), constants=(2,))),
    "mixed scales": (mixed_scales, _variants(rows=(100, 600), decades=(3, 6))),
}
