"""A weighted sum of kernels: k(x, z) = sum_p w_p k_p(x, z), every part with its own scales.

The parts of distances (rbf, matern12, matern32, matern52, laplacian) see features between their
bounds and, behind them, quantile features (`_columns`). The linear part sum_f gamma_f (x_f - o_f)
(z_f - o_f) has bounds of its own, further out: it carries tails and trends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from leansvm._array_api import foreign_namespace, like_rows, namespace
from leansvm.kernels._columns import CurvesOfRow, check_curves, clipped_row, inside_bounds
from leansvm.kernels._function import Array, DistanceKernel, KernelFunction, RowForm, float_type
from leansvm.kernels._radial import Gaussian
from leansvm.kernels.by_feature import Laplacian
from leansvm.kernels.dot import Linear
from leansvm.kernels.matern import Matern12, Matern32, Matern52
from leansvm.linalg import check_bounds, clipped, dense_rows64, scaled_rows, tile_rows

PARTS: dict[str, type[KernelFunction]] = {
    kind.name: kind for kind in (Gaussian, Matern12, Matern32, Matern52, Laplacian, Linear)
}
_IN_WORDS = {
    "rbf": "Gaussian",
    "matern12": "Matérn-1/2",
    "matern32": "Matérn-3/2",
    "matern52": "Matérn-5/2",
    "laplacian": "Laplacian",
}
_CHUNK = 8  # tiles of rows that are prepared and added up together


class MixturePart(NamedTuple):
    """One kernel of a mixture."""

    weight: float
    kernel: str
    gamma: Array  # one value for each feature; for each quantile feature, too, unless "linear"


class Mixture(KernelFunction):
    """A weighted sum of kernels with scales of their own.

    ``kernel="auto"`` learns one; ``kernel=model.kernel_`` fits with it again without learning.

    Parameters
    ----------
    parts : sequence of (weight, kernel, gamma)
        Weights are numbers >= 0, not all 0. Kernels are "rbf", "matern12", "matern32", "matern52",
        "laplacian" or "linear". ``gamma`` has one number >= 0 for each feature, then one for each
        quantile feature ("linear": for each feature alone).
    clip, linear_clip : tuple of two ndarrays of shape (n_features,), optional
        Lower and upper bounds to which features are clipped, for distances and for "linear".
    origin : ndarray of shape (n_features,), optional
        What "linear" subtracts from rows and points; 0 by default.
    knots : sequence of (feature, x, y), optional
        Quantile features: for each, the number of its feature and the knots of a piecewise linear
        curve; both arrays must increase.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm.kernels import Kernel, Mixture
    >>> mixture = Mixture([(0.5, "rbf", [1.0, 0.1]), (0.5, "linear", [0.0, 1.0])])
    >>> Kernel(mixture).block(np.array([[0.0, 1.0]]), np.array([[0.0, 1.0], [1.0, 1.0]]))
    array([[1.        , 0.68393972]])
    """

    name = "mixture"

    def __init__(
        self,
        parts: Iterable[Any],
        *,
        clip: Any = None,
        linear_clip: Any = None,
        origin: Any = None,
        knots: Sequence[Any] = (),
    ) -> None:
        super().__init__()
        self.parts = _checked_parts(parts)
        self.clip = None if clip is None else check_bounds(clip)
        self.linear_clip = None if linear_clip is None else check_bounds(linear_clip)
        self.origin: Array | None = None if origin is None else np.array(origin, np.float64)
        widths = {len(p.gamma) - (p.kernel != "linear") * len(knots) for p in self.parts}
        widths |= {len(side) for side in (*(self.clip or ()), *(self.linear_clip or ()))}
        widths |= set() if self.origin is None else set(self.origin.shape or (0,))
        if len(widths) > 1 or min(widths) < 1:
            raise ValueError(
                "The gammas of the parts, clip and origin must have one number for each feature, "
                "and gammas of distances one more for each quantile feature (knots)."
            )
        if self.origin is not None and not np.isfinite(self.origin).all():
            raise ValueError("origin must be finite.")
        (self.n_features,) = widths
        self.knots = check_curves(knots, self.n_features)
        self._functions = [PARTS[part.kernel](part.gamma) for part in self.parts]
        # the feature that every column of distances comes from
        self._features = np.r_[: self.n_features, [c.feature for c in self.knots]].astype(np.intp)
        linear = [part.kernel == "linear" for part in self.parts]
        self._all_linear = all(linear)
        self.has_unit_diagonal = not any(linear) and sum(p.weight for p in self.parts) == 1.0

    def __repr__(self) -> str:
        text = ", ".join(f"{part.weight:.0%} {part.kernel}" for part in self.parts)
        curves = f", {len(self.knots)} quantile features" if self.knots else ""
        return f"Mixture({text}; {self.n_features} features{curves})"

    def __str__(self) -> str:
        total = sum(part.weight for part in self.parts)
        one_or_more = "feature" if len(self.knots) == 1 else "features"
        curves = f", with {len(self.knots)} quantile {one_or_more}" if self.knots else ""
        if len(self.parts) == 1:
            return f"{_IN_WORDS.get(self.parts[0].kernel, self.parts[0].kernel)}{curves}"
        text = ", ".join(
            f"{'< 1' if (share := p.weight / total) < 0.005 else f'{100 * share:.0f}'} % "
            f"{_IN_WORDS.get(p.kernel, p.kernel)}"
            for p in self.parts
        )
        return f"mixture of {text}{curves}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mixture):
            return NotImplemented
        mine, theirs = self.numbers(), other.numbers()
        return [p.kernel for p in self.parts] == [p.kernel for p in other.parts] and (
            mine.keys() == theirs.keys()
            and all(np.array_equal(mine[name], theirs[name]) for name in mine)
        )

    __hash__ = None  # type: ignore[assignment]

    def numbers(self) -> dict[str, Array]:
        """Return all numbers as arrays, as model files keep them; the kernels' names are apart."""
        found = {"weights": np.array([part.weight for part in self.parts])}
        found |= {f"gamma{i}": part.gamma for i, part in enumerate(self.parts)}
        for name in ("clip", "linear_clip"):
            if getattr(self, name) is not None:
                found[name] = np.stack(getattr(self, name))
        if self.origin is not None:
            found["origin"] = self.origin
        for i, curve in enumerate(self.knots):
            found[f"knots{i}"] = np.stack([curve.x, curve.y])
        if self.knots:
            found["features"] = np.array([curve.feature for curve in self.knots], np.float64)
        return found

    @classmethod
    def from_numbers(cls, kernels: Sequence[str], numbers: dict[str, Array]) -> Mixture:
        """Return the mixture that these names and `numbers` describe."""
        features = np.asarray(numbers.get("features", ())).tolist()
        known = {"weights", "clip", "linear_clip", "origin", "features"}
        known |= {f"gamma{i}" for i in range(len(kernels))}
        known |= {f"knots{i}" for i in range(len(features))}
        if numbers.keys() - known or np.ndim(numbers["weights"]) != 1:
            raise ValueError("The stored mixture is damaged.")
        return cls(
            [
                (w, k, numbers[f"gamma{i}"])
                for i, (w, k) in enumerate(zip(numbers["weights"].tolist(), kernels, strict=True))
            ],
            clip=numbers.get("clip"),
            linear_clip=numbers.get("linear_clip"),
            origin=numbers.get("origin"),
            knots=[(int(f), *numbers[f"knots{i}"]) for i, f in enumerate(features)],
        )

    def __getstate__(self) -> dict[str, Any]:
        return {"kernels": [part.kernel for part in self.parts], "numbers": self.numbers()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Build the mixture as its constructor does, with all checks: files may hold anything."""
        vars(self).update(vars(self.from_numbers(state["kernels"], state["numbers"])))

    @property
    def gamma_by_part(self) -> dict[str, Array]:
        """The scales of every part: ``gamma_`` of a fitted model; a second "rbf" is "rbf 2"."""
        found: dict[str, Array] = {}
        for part in self.parts:
            again = sum(name.split()[0] == part.kernel for name in found)
            found[f"{part.kernel} {again + 1}" if again else part.kernel] = part.gamma
        return found

    # ------------------------------------------------------------------ rows as the parts see them

    def rows_of(self, number: int, X: Any) -> Any:
        """Return rows as one part sees them; its function has its gamma for these columns."""
        part = self.parts[number]
        return self._linear_rows(X, part) if part.kernel == "linear" else self._distance_rows(X)

    def _linear_rows(self, X: Any, part: MixturePart) -> Any:
        """Return clipped features minus the origin, times the root of gamma."""
        if self.linear_clip is not None:
            X = clipped(X, self.linear_clip)
        if self.origin is not None:
            X = X.toarray() if sparse.issparse(X) else X
            X = X - _at(X, self.origin)
        return scaled_rows(X, _at(X, np.sqrt(part.gamma)))

    def _distance_rows(self, X: Any) -> Any:
        """Return features between their bounds and, behind them, quantile features."""
        inside = X if self.clip is None else clipped(X, self.clip)
        if not self.knots:
            return inside
        if sparse.issparse(X):
            X, inside = X.toarray(), inside.toarray() if sparse.issparse(inside) else inside
        xp = namespace(X)
        curves = xp.stack([curve(X[:, curve.feature]) for curve in self.knots], axis=1)
        rows = xp.concat([inside, curves], axis=1)
        return rows.astype(float_type(X), copy=False) if xp is np else rows

    def _terms(self, *arrays: Any) -> Iterator[tuple[Any, ...]]:
        """Yield every part, its function, and arrays as it sees them; for distances made once."""
        seen = [None if self._all_linear else self._distance_rows(X) for X in arrays]
        for part, function in zip(self.parts, self._functions, strict=True):
            if part.kernel == "linear":
                yield part, function, *(self._linear_rows(X, part) for X in arrays)
            else:
                yield part, function, *seen

    # ------------------------------------------------------------------ values

    def block(self, X: Any, Z: Any, out: NDArray[Any]) -> None:
        """Write the sum of all parts, some tiles of rows at a time."""
        points = [Z for _, _, Z in self._terms(Z)]
        step = max(tile_rows(X.shape[1]), _CHUNK * tile_rows(out.shape[1]))
        if len(self.parts) == 1 and self.clip is None and not self.knots:
            step = len(out)
        more = np.empty((min(step, len(out)), out.shape[1]), out.dtype)
        for start in range(0, len(out), step):
            total = out[start : start + step]
            terms = self._terms(X[start : start + step])
            for number, (part, function, rows) in enumerate(terms):
                values = more[: len(total)] if number else total
                function.block(rows, points[number], values)
                if part.weight != 1.0:
                    values *= part.weight
                if number:
                    total += values

    def device_block(self, xp: Any, X: Any, Z: Any) -> Any:
        total = None
        for part, function, rows, points in self._terms(X, Z):
            values = function.device_block(xp, rows, points) * part.weight
            total = values if total is None else total + values
        return total

    def diag(self, X: Any, start: int = 0) -> Any:
        return sum(part.weight * function.diag(rows) for part, function, rows in self._terms(X))

    def change_to_bounds(self, X: Any) -> Array:
        """Return the variance of f(x) - f(z), z being x moved between the bounds of distances."""
        if self.clip is None:
            return np.zeros(X.shape[0])
        rows = dense_rows64(X)
        inside, total = clipped(rows, self.clip), np.zeros(len(rows))
        for part in self.parts:  # quantile features have no bounds: their curves are flat there
            function = PARTS[part.kernel](part.gamma[: self.n_features])
            if isinstance(function, DistanceKernel):
                total += part.weight * function.change(rows, inside)
        return total

    def row_form(self, points: Array) -> RowForm | None:
        forms = [function.row_form(rows) for _, function, rows in self._terms(points)]
        return _MixtureRow(self, forms)

    # ------------------------------------------------------------------ derivatives

    def gradients(self, X: Array, Z: Array, coef: Array) -> Array:
        """Return df/dx by the chain rule: every part, then its columns by their features."""
        total = np.zeros((*X.shape, coef.shape[1]))
        for part, function, rows, points in self._terms(X, Z):
            slopes = self._slopes(part, X)[:, :, None] * function.gradients(rows, points, coef)
            for column, feature in enumerate(self._features[: slopes.shape[1]]):
                total[:, feature] += part.weight * slopes[:, column]
        return total

    def mixed_derivatives(self, X: Array, Z: Array, coef: Array, pairs: NDArray[np.intp]) -> Array:
        total = np.zeros((len(X), len(pairs), coef.shape[1]))
        for part, function, rows, points in self._terms(X, Z):
            slopes = self._slopes(part, X)
            owner = self._features[: slopes.shape[1]]
            for place, (a, b) in enumerate(pairs):
                own = np.flatnonzero(owner == a), np.flatnonzero(owner == b)
                columns = np.stack(np.meshgrid(*own), axis=-1).reshape(-1, 2)
                found = function.mixed_derivatives(rows, points, coef, columns)
                found *= (slopes[:, columns[:, 0]] * slopes[:, columns[:, 1]])[:, :, None]
                total[:, place] += part.weight * found.sum(axis=1)
        return total

    def _slopes(self, part: MixturePart, X: Array) -> Array:
        """Return how fast the columns that a part sees change with their features."""
        if part.kernel == "linear":
            return np.sqrt(part.gamma) * inside_bounds(X, self.linear_clip)
        inside = inside_bounds(X, self.clip)
        return np.column_stack([inside, *(c.slope(X[:, c.feature]) for c in self.knots)])

    # ------------------------------------------------------------------ partial dependence

    def pair_sums(self, X: Array, Z: Array) -> Array:
        """Return what every part depends on, parts x rows x points."""
        return np.stack([function.pair_sums(*pair) for _, function, *pair in self._terms(X, Z)])

    def sums_along(
        self, X: Array, Z: Array, coef: Array, base: Array, f: int, grid: Array
    ) -> Array:
        """Return sums over rows: only what feature f adds to a distance changes."""
        values = np.tile(X[:1], (len(grid), 1))
        values[:, f] = grid
        columns = np.flatnonzero(self._features == f)
        total = np.zeros((len(grid), coef.shape[1]))
        terms = self._terms(X, Z, values)
        for sums, (part, function, rows, points, moved) in zip(base, terms, strict=True):
            if isinstance(function, DistanceKernel):
                own, along = (_added(function, columns, A, points) for A in (rows, moved))
                found = function.sums_over(np.maximum(sums - own, 0.0), along) @ coef
            else:  # the linear kernel
                found = function.sums_along(rows, points, coef, sums, f, moved[:, f])
            total += part.weight * found
        return total


class _MixtureRow:
    """Values between one row and all points."""

    def __init__(self, mixture: Mixture, forms: list[RowForm]) -> None:
        self.mixture, self.forms = mixture, forms
        self.roots = [np.sqrt(p.gamma) if p.kernel == "linear" else None for p in mixture.parts]
        self.curves = CurvesOfRow(mixture.knots) if mixture.knots else None

    def __call__(self, x: Array) -> Array:
        mixture = self.mixture
        row = clipped_row(x, mixture.clip)
        if self.curves is not None:
            row = np.concatenate((row, self.curves(x)))
        total: Any = None
        for part, form, root in zip(mixture.parts, self.forms, self.roots, strict=True):
            values = form(row if root is None else self._linear(x) * root)
            values *= part.weight
            total = values if total is None else np.add(total, values, out=total)
        return np.asarray(total)

    def _linear(self, x: Array) -> Array:
        """Return the row that the linear part sees, not scaled."""
        x, origin = clipped_row(x, self.mixture.linear_clip), self.mixture.origin
        return x if origin is None else x - origin


def _at(X: Any, numbers: Array) -> Any:
    """Return numbers where the rows are, in their type."""
    if foreign_namespace(X) is None:
        return numbers.astype(float_type(X))
    return like_rows(numbers, X, dtype=X.dtype)


def _added(function: DistanceKernel, columns: NDArray[np.intp], X: Array, Z: Array) -> Array:
    """Return what some columns add to the distances of all pairs."""
    return sum((function.distance_along(X[:, c], Z[:, c], c) for c in columns), np.zeros(()))


def _checked_parts(parts: Iterable[Any]) -> tuple[MixturePart, ...]:
    found = []
    for weight, kernel, gamma in parts:
        if kernel not in PARTS:
            raise ValueError(f"The parts of a mixture are {', '.join(PARTS)}; got {kernel!r}.")
        scales = np.array(gamma, np.float64)
        if scales.ndim != 1 or not (np.isfinite(scales) & (scales >= 0)).all():
            raise ValueError(f"gamma of {kernel!r} must be an array of finite numbers >= 0.")
        if not (np.isfinite(weight) and weight >= 0):
            raise ValueError(f"The weight of {kernel!r} must be a number >= 0, got {weight!r}.")
        found.append(MixturePart(float(weight), kernel, scales))
    if not any(part.weight > 0 for part in found):
        raise ValueError("A mixture needs a part whose weight is above 0.")
    return tuple(found)
