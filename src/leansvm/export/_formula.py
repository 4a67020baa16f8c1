"""A fitted model as a formula: the one description that all writers start from.

f(x) = sum_j coef_j g(t_j(u)) + b, with u the columns of `_columns` and t_j a sum over them: squared
or absolute distances from point j, or a product with it. Scales are folded into u and the points,
so that t is a plain sum; the kernels say which (`leansvm.kernels.Kernel.function`). A mixture of
kernels is a sum of such formulas, each with its own columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import sklearn
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from leansvm._array_api import to_host
from leansvm._sklearn import split_threshold
from leansvm._version import __version__
from leansvm.basis.features import KernelFeatures
from leansvm.estimators import KernelBasis
from leansvm.estimators.machine import Machine
from leansvm.estimators.predict import Classifier
from leansvm.estimators.targets import Scale
from leansvm.export._columns import (
    MISSING,
    Column,
    after,
    centred,
    known_texts,
    raw_columns,
    scaled,
)
from leansvm.kernels import Kernel, Mixture
from leansvm.kernels._function import Array, Outer, Sum
from leansvm.low_rank import RBF, RobustRBF, Simplex
from leansvm.low_rank.functions import LearnedFeatures
from leansvm.probabilities import KNOTS, offsets_of
from leansvm.rows import class_numbers

_FUNCTIONS: dict[type, tuple[Sum, Outer]] = {
    RBF: ("squared", "exp"),
    RobustRBF: ("absolute", "exp"),
    Simplex: ("absolute", "simplex"),
}


@dataclass(frozen=True, eq=False)
class Formula:
    """Everything that a prediction needs, as plain arrays and texts; f is the sum of `terms`."""

    columns: tuple[Column, ...]
    prepared: tuple[Column, ...]  # as they leave the steps before the machine
    inputs: tuple[str, ...]  # names of the input values
    named: bool  # whether the names are those of a data frame
    sum: Sum
    outer: Outer
    points: Array  # functions x columns
    shapes: Array | None  # weight of every term of the sum, where each function has its own
    coef: Array | None  # functions x outputs; None: the functions are the outputs
    intercept: Array
    band: Array  # sum of |coef| plus |intercept| of every output: what rounding is compared with
    polynomial: tuple[float, float] = (0.0, 0.0)  # a and b of (1 + a r + b r^2) e^-r, r^2 = t
    coef0: float = 0.0
    degree: float = 1.0
    classes: NDArray[Any] | None = None  # of a classifier
    threshold: float | None = None  # f >= threshold is the second class; None: f > 0
    scale: Scale | None = None  # of the targets, on which f was learned; None: units of y
    slopes: Array | None = None  # of the log odds in zones of f; None: no probabilities
    single: bool = True  # one number per row if there is one output
    facts: dict[str, Any] = field(default_factory=dict)
    store: str = "float64"  # type of the numbers of points and shapes
    coef_store: str = "float64"  # and of the coefficients
    # "float16", "int8": what 1 stands for, in every column of points and shapes, in every output
    steps: Array | None = None
    shape_steps: Array | None = None
    coef_steps: Array | None = None
    others: tuple[Formula, ...] = ()  # further terms, their intercepts 0

    @property
    def terms(self) -> tuple[Formula, ...]:
        """The formulas that are added up: this one and the others."""
        return (replace(self, others=()), *self.others)

    @property
    def log_odds(self) -> tuple[Array, Array, Array]:
        """Knots between zones of f; slope and offset of the log odds in every zone."""
        assert self.slopes is not None
        return KNOTS, self.slopes, offsets_of(self.slopes)

    @property
    def texts(self) -> dict[int, list[str]]:
        """The known texts of every input value that is a text."""
        return known_texts(self.prepared)

    @property
    def dates(self) -> dict[int, str]:
        """Which input values are dates ("date") or times of day ("time")."""
        return {column.source: column.reads for column in self.prepared if column.reads}

    @property
    def truths(self) -> list[int]:
        """Which input values are yes or no: 1, 0, or missing."""
        return sorted({c.source for c in self.prepared if c.blank and c.strict})

    @property
    def strict(self) -> dict[int, tuple[list[Any], bool]]:
        """By input: the only categories that Python accepts, and whether one may be missing."""
        found: dict[int, set[Any]] = {}
        for c in self.prepared:
            if c.strict:
                gaps = {MISSING} if c.blank or c.fill is not None else set()
                found.setdefault(c.source, set()).update(c.categories, c.without, gaps)
        return {i: (sorted(v - {MISSING}), MISSING in v) for i, v in sorted(found.items())}

    @property
    def numbers(self) -> tuple[list[int], list[int]]:
        """Input values that are finite numbers; and those that may also be missing."""
        found = [column for column in self.prepared if column.kind == "number"]
        needed = {column.source for column in found if column.fill is None}
        return sorted(needed), sorted({column.source for column in found} - needed)

    def class_numbers(self, f: Array) -> NDArray[np.intp]:
        """Return the numbers of the predicted classes, from the values of f."""
        if self.threshold is None:
            return class_numbers(f)
        return (f[:, 0] >= self.threshold).astype(np.intp)

    @property
    def outputs(self) -> int:
        """Number of values for a row; one for two classes."""
        return len(self.intercept)

    @property
    def n_numbers(self) -> int:
        """Number of columns that are numbers; they come first."""
        return sum(column.kind == "number" for column in self.columns)

    @property
    def magnifies(self) -> bool:
        """Whether g changes like the root of t near 0, so that small errors of t show."""
        return self.outer == "root" and self.polynomial[0] == 0.0

    @property
    def size(self) -> int:
        """Number of functions."""
        return len(self.points)

    @property
    def counts(self) -> str:
        """How many points, kernels and inputs the model has, in words."""
        word = "points" if self.shapes is None else "functions"
        size = max(term.size for term in self.terms)  # a linear term may have fewer points
        kernels = "" if len(self.terms) < 2 else f", {len(self.terms)} kernels"
        return f"{size} {word}{kernels}, {len(self.inputs)} inputs"

    @property
    def spread(self) -> float:
        """The largest sum of a point with 0."""
        terms = self.points**2 if self.sum == "squared" else np.abs(self.points)
        weights = 1.0 if self.shapes is None else self.shapes
        return float(np.max(np.sum(terms * weights, axis=1), initial=0.0))


def formula_of(model: Any, metadata: dict[str, Any] | None = None) -> Formula:
    """Return the formula of a fitted machine, or of a pipeline that ends in one.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        The model is not fitted.
    ValueError
        The model, or a step before it, cannot be written as a formula; the message says what to do.
    """
    model = getattr(model, "formula", model)  # what `compress` returns
    if isinstance(model, Formula):
        return model
    model, threshold = split_threshold(getattr(model, "best_estimator_", model))
    steps, machine = [], model
    if isinstance(model, Pipeline):
        *before, (_, machine) = model.steps
        steps = ["passthrough" if step is None else step for _, step in before]
    if not isinstance(machine, Machine):
        raise ValueError(
            f"{type(machine).__name__} cannot be exported: pass an estimator of leansvm, a "
            f"pipeline that ends with one, or what model_selection.tune_threshold returns for it."
        )
    try:
        check_is_fitted(machine)
    except NotFittedError as error:
        text = f"This {type(machine).__name__} is not fitted: call fit before exporting it."
        raise NotFittedError(text) from error
    # of a pipeline that begins with "passthrough", the first step that knows its input
    first = next(step for step in (*steps, machine) if not isinstance(step, str))
    n_inputs, names = int(first.n_features_in_), getattr(first, "feature_names_in_", None)
    columns = raw_columns(n_inputs)
    for step in (*steps, *([machine.table_] if hasattr(machine, "table_") else [])):
        columns = after(step, columns)
    facts = {
        "leansvm": __version__,
        "scikit-learn": sklearn.__version__,
        "model": type(machine).__name__,
        "metadata": metadata or {},
    }
    first, *others = (
        replace(
            _in_order(term),
            inputs=tuple(f"x{i}" for i in range(n_inputs))
            if names is None
            else tuple(str(name) for name in names),
            named=names is not None,
            prepared=tuple(columns),
            facts=facts,
        )
        for term in _machine(machine, columns).terms
    )
    scale = getattr(machine, "_scale", None)
    return replace(first, others=tuple(others), threshold=threshold, scale=scale)


def _in_order(formula: Formula) -> Formula:
    """Put numbers first, then categories input by input, so that writers can loop over them."""
    columns = formula.columns
    order = sorted(range(len(columns)), key=lambda i: _place(columns[i]))
    shapes = None if formula.shapes is None else formula.shapes[:, order]
    return replace(
        formula,
        columns=tuple(columns[i] for i in order),
        points=formula.points[:, order],
        shapes=shapes,
    )


def _place(column: Column) -> tuple[bool, int]:
    is_category = column.kind != "number"
    return is_category, column.source if is_category else 0


def _machine(machine: Any, columns: list[Column]) -> Formula:
    """Return the formula without the names of the inputs."""
    if isinstance(machine, KernelBasis):
        features, coef = machine._features, machine.normalization_
        intercept = np.zeros(coef.shape[1])
    else:
        features, coef = machine._model()
        intercept = to_host(machine.intercept_)
    coef = np.asarray(to_host(coef), np.float64)
    intercept = np.broadcast_to(np.asarray(intercept, np.float64).ravel(), coef.shape[1]).copy()
    if isinstance(features, LearnedFeatures):
        formula = _of_functions(features, columns, coef, intercept)
    else:
        assert isinstance(features, KernelFeatures)
        formula = _of_kernel(features.kernel, _dense(features.points), columns, coef, intercept)
    if isinstance(machine, Classifier):
        link, slopes = machine._known_link(), None
        if link is not None and link[0] is None:
            slopes = np.broadcast_to(link[1], len(KNOTS) + 1)
        return replace(formula, classes=np.asarray(machine.classes_), slopes=slopes)
    single = not isinstance(machine, KernelBasis) and bool(machine._single_output)
    return replace(formula, single=single)


def _dense(points: Any) -> Array:
    points = to_host(points)
    return np.asarray(points.toarray() if sparse.issparse(points) else points, np.float64)


def _of_kernel(
    kernel: Kernel, points: Array, columns: list[Column], coef: Array, intercept: Array
) -> Formula:
    if isinstance(kernel.function, Mixture):
        return _of_mixture(kernel.function, points, columns, coef, intercept)
    if kernel.clip is not None:
        columns, points = _clipped(columns, kernel.clip), np.clip(points, *kernel.clip)
    found = kernel.function.expression(points, coef)
    points = found.points
    if found.scales is not None:
        has_distances = found.sum in ("squared", "absolute")
        columns, points = scaled(columns, points, found.scales, keep_all=not has_distances)
        if has_distances:
            columns, points = centred(columns, points)
    return Formula(
        columns=tuple(columns),
        prepared=tuple(columns),
        inputs=(),
        named=False,
        sum=found.sum,
        outer=found.outer,
        points=points,
        shapes=None,
        coef=found.coef,
        intercept=intercept,
        band=np.abs(coef).sum(axis=0) + np.abs(intercept),
        polynomial=found.polynomial,
        coef0=float(kernel.coef0),
        degree=float(kernel.degree),
    )


def _of_mixture(
    mixture: Mixture, points: Array, columns: list[Column], coef: Array, intercept: Array
) -> Formula:
    """Return one term for each part; the first has the intercept.

    Parts of weight 0 add nothing, and parts of distances whose scales are all 0 a constant.
    """
    band, terms = np.abs(coef).sum(axis=0) + np.abs(intercept), list[Formula]()
    alive = [p.weight > 0 and (p.gamma > 0).any() for p in mixture.parts]
    for number, (weight, name, gamma) in enumerate(mixture.parts):
        if not alive[number] and any(alive):
            intercept = intercept + (name != "linear") * weight * coef.sum(axis=0)
            continue
        rows, seen = mixture.rows_of(number, points), columns
        if name != "linear":
            curves = [
                replace(columns[c.feature], knots=(tuple(c.x.tolist()), tuple(c.y.tolist())))
                for c in mixture.knots
            ]
            seen = [*_clipped(columns, mixture.clip), *curves]
        term = _of_kernel(Kernel(name, gamma=gamma), rows, seen, weight * coef, 0.0 * intercept)
        if name == "linear":  # sum_f w_f (x_f - o_f), without features of weight 0
            origin = np.zeros(len(gamma)) if mixture.origin is None else mixture.origin
            seen = _clipped(columns, mixture.linear_clip)
            seen = [c.moved(o, 1.0) for c, o in zip(seen, origin.tolist(), strict=True)]
            root = np.sqrt(gamma)
            seen, weights = scaled(seen, term.points * root, np.sign(gamma), keep_all=False)
            term = replace(term, columns=tuple(seen), points=weights)
        terms.append(term)
    return replace(terms[0], intercept=intercept, band=band, others=tuple(terms[1:]))


def _clipped(columns: list[Column], bounds: Any) -> list[Column]:
    """Return columns that are moved between bounds, if there are any."""
    if bounds is None:
        return columns
    pairs = zip(*(side.tolist() for side in bounds), strict=True)
    return [c.moved(0.0, 1.0, *pair) for c, pair in zip(columns, pairs, strict=True)]


def _of_functions(
    features: LearnedFeatures, columns: list[Column], coef: Array, intercept: Array
) -> Formula:
    found = _FUNCTIONS.get(type(features.function))
    if found is None:
        raise ValueError(
            f"{type(features.function).__name__} is a basis function of your own and cannot be "
            f"exported: use function='simplex', 'robust-rbf' or 'rbf'."
        )
    shapes = np.asarray(features.shapes, np.float64)
    # the largest shape of every column is about 1, so that no sum of ordinary rows overflows
    power = 2.0 if found[0] == "squared" else 1.0
    largest = np.abs(shapes).max(axis=0) ** (1.0 / power)
    scales = np.exp2(np.rint(np.log2(np.where(largest > 0, largest, 1.0))))
    moved, points = scaled(columns, np.asarray(features.centers, np.float64), scales, True)
    moved, points = centred(moved, points)
    return Formula(
        columns=tuple(moved),
        prepared=tuple(columns),
        inputs=(),
        named=False,
        sum=found[0],
        outer=found[1],
        points=points,
        shapes=shapes / scales**power,
        coef=coef,
        intercept=intercept,
        band=np.abs(coef).sum(axis=0) + np.abs(intercept),
    )
