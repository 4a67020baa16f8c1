"""The state of a fit: basis, kernel and the sums Z'Z, which can be added and subtracted.

With Z = S^1/2 [Phi, Y, 1] the least-squares model depends on the rows through Z'Z alone (zhou2016,
eqs. (9), (11)): adding sums adds rows, and subtracting sums forgets rows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.basis.features import KernelFeatures
from leansvm.ridge.criteria import Criterion
from leansvm.ridge.kfold import FoldSums, KFoldSums, add_up_folds
from leansvm.ridge.primal import solve_sums
from leansvm.ridge.state_checks import (
    StateError,
    class_weights,
    difference,
    refuse_parameters,
    refuse_strangers,
)
from leansvm.ridge.sums import Sums, add_up, check_memory
from leansvm.rows import MemoryBlocks, RowBlocks, points_among
from leansvm.solution import Solution

Array = NDArray[np.float64]
FORMAT = 1  # raise it when older versions could not use what is written
_ROUNDING = 256  # units in the last place by which a Gram matrix may fail to be definite


@dataclass(frozen=True, eq=False, repr=False)
class FitState:
    """Everything that a fit of `SparseLSSVC` or `SparseLSSVR` knows of its rows.

    States on one basis can be added (rows of another site, or of another day) and subtracted
    (rows to forget). `SparseLSSVC.fit_from_state` makes a model from a state: the same model as a
    fit on its rows. The method ``state`` of a model returns its state. The size depends on the
    basis alone, not on the number of rows. Its file contains no pickle.

    Attributes
    ----------
    n_rows : int
        Rows that were added up.
    n_basis, n_features, n_folds : int
        Number of basis points, of features, and of folds with sums of their own (0: none).
    weight : float
        Sum of the weights of the rows.
    gamma : float or ndarray
        Coefficient of the kernel, one or one per feature.
    version : int
        Number of the file format.

    See Also
    --------
    leansvm.SparseLSSVC.state : Make a state.
    leansvm.SparseLSSVC.fit_from_state : Make a model from a state.

    Examples
    --------
    Two sites share a basis that was chosen on public rows, and one model:

    >>> from sklearn.datasets import load_diabetes
    >>> from leansvm import SparseLSSVR
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = SparseLSSVR("kfold", "rbf", gamma="scale", n_basis=20, random_state=0)
    >>> plan = model.fit(X[:100], y[:100]).state().empty()
    >>> here = SparseLSSVR("kfold").fit_from_state(plan).state(X[100:250], y[100:250])
    >>> there = SparseLSSVR("kfold").fit_from_state(plan).state(X[250:], y[250:])
    >>> here + there
    FitState(342 rows, 20 basis points, 10 features, 5 folds, regression)
    >>> both = SparseLSSVR("kfold").fit_from_state(here + there)
    >>> pooled = SparseLSSVR("kfold", "rbf", gamma=plan.gamma, basis=plan.points)
    >>> both.C_ == pooled.fit(X[100:], y[100:]).C_
    True
    """

    features: KernelFeatures
    sums: Sums | FoldSums
    n_rows: int
    bias_penalty: float  # 0: free, inf: none
    selected: NDArray[np.intp]  # row numbers in the order of choice; -1: a point that is no row
    among: NDArray[np.bool_] | None  # whether one of the rows is equal to a point; None: unknown
    classes: NDArray[Any] | None = None  # None: numbers
    class_weight: Array | None = None
    feature_names: tuple[str, ...] | None = None
    single_output: bool = True
    version: int = FORMAT

    def __repr__(self) -> str:
        task = "regression" if self.classes is None else f"{len(self.classes)} classes"
        folds = f", {self.n_folds} folds" if self.n_folds else ""
        return (
            f"FitState({self.n_rows:,} rows, {self.n_basis:,} basis points, {self.n_features:,} "
            f"features{folds}, {task})"
        )

    # ------------------------------------------------------------------ facts

    @property
    def n_basis(self) -> int:
        """Number of basis points."""
        return int(self.features.points.shape[0])

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.features.points.shape[1])

    @property
    def n_folds(self) -> int:
        """Number of folds; 0 if there are none."""
        return len(self.sums.grams) if isinstance(self.sums, FoldSums) else 0

    @property
    def weight(self) -> float:
        """Sum of the weights of the rows."""
        return float(self.sums.total().gram[-1, -1])

    @property
    def gamma(self) -> Any:
        """Coefficient of the kernel, one or one per feature."""
        return self.features.kernel.scales

    @property
    def points(self) -> Any:
        """Basis points, in the order of their factor."""
        return self.features.points

    def spread(self) -> Array:
        """Return the standard deviation of every target; ones if there are no rows."""
        sums = self.sums.total()
        if not self.weight:
            return np.ones(sums.n_outputs)
        n, targets = float(sums.gram[-1, -1]), slice(-1 - sums.n_outputs, -1)
        squares = sums.gram.diagonal()[targets] / n - (sums.gram[targets, -1] / n) ** 2
        return np.maximum(np.sqrt(np.maximum(squares, 0.0)), np.finfo(np.float64).tiny)

    # ------------------------------------------------------------------ arithmetic

    def __add__(self, other: Any) -> FitState:
        """Return the state of all rows of both states."""
        if not isinstance(other, FitState):
            return NotImplemented
        refuse_strangers(self, other, "added")
        a, b = self.sums, other.sums.about(self.sums.shift)
        sums = b + a if isinstance(a, Sums) and isinstance(b, FoldSums) else a + b  # type: ignore[operator]
        selected = np.where(self.selected >= 0, self.selected, other.selected)
        mine, theirs = self.among, other.among
        among = None if mine is None or theirs is None else mine | theirs
        rows = self.n_rows + other.n_rows
        return replace(self, sums=sums, n_rows=rows, selected=selected, among=among)

    def __radd__(self, other: Any) -> FitState:
        """Let ``sum(states)`` begin with 0."""
        return self if other == 0 else NotImplemented

    def __sub__(self, other: Any) -> FitState:
        """Return the state without the rows of the other, which must be in this one."""
        if not isinstance(other, FitState):
            return NotImplemented
        refuse_strangers(self, other, "subtracted")
        self._refuse_basis_of(other)
        if self.n_folds and not other.n_folds:
            raise StateError(
                "This state has folds, but the state of the rows to forget has none: make the "
                "latter with state(X, y) of a model that was fitted from this state, or call "
                "without_folds() on this state first."
            )
        if other.n_folds and not self.n_folds:
            other = other.without_folds()
        if self.n_rows <= other.n_rows or self.weight <= other.weight:
            raise StateError(
                f"A state of {self.n_rows:,} rows (weight {self.weight:g}) cannot forget "
                f"{other.n_rows:,} rows (weight {other.weight:g}): nothing would be left."
            )
        eps = float(np.finfo(self.points.dtype).eps)
        rounding = _ROUNDING * eps * np.sqrt(len(self.sums.shift))
        sums = difference(self.sums, other.sums.about(self.sums.shift), rounding)
        return replace(self, sums=sums, n_rows=self.n_rows - other.n_rows)

    def _refuse_basis_of(self, other: FitState) -> None:
        """Refuse to forget rows that are basis points, which stay in the model."""
        own = self.selected[self.features.kept] >= 0
        if other.among is None and own.any():
            raise StateError(
                "Make the state of the rows to forget with state(X, y) of the model, not by a fit "
                "on these rows: otherwise it is not known whether they are basis points."
            )
        stay = 0 if other.among is None else int(np.count_nonzero(own & other.among))
        if stay:
            raise StateError(
                f"{stay} of the {self.n_basis} basis points are rows to forget, and the model "
                f"cannot forget its basis. Fit again without these rows, on "
                f"a basis of other points."
            )

    def empty(self, n_folds: int | None = None) -> FitState:
        """Return the same basis and kernel without any row: the plan that sites agree on.

        The points count as public: rows that are equal to one can be forgotten.

        Parameters
        ----------
        n_folds : int, default=None
            Folds whose sums are to be kept apart, for ``C="kfold"``; 0 means none; None means as
            many as in this state, or 5 if it has none.

        Returns
        -------
        FitState
            Without rows.
        """
        n_folds = (self.n_folds or 5) if n_folds is None else n_folds
        if n_folds < 0 or n_folds == 1:
            raise StateError(f"empty: n_folds must be 0 or at least 2, got {n_folds!r}.")
        total = self.sums.total()
        nothing: Any = Sums(total.shift, np.zeros_like(total.gram), total.n_outputs, 0.0)
        if n_folds:
            nothing = FoldSums.after(nothing, n_folds)
        selected = np.full(len(self.selected), -1, dtype=np.intp)
        among = np.zeros(self.n_basis, dtype=np.bool_)
        return replace(self, sums=nothing, n_rows=0, selected=selected, among=among)

    def without_folds(self) -> FitState:
        """Return the state of the same rows with one sum for all."""
        return replace(self, sums=self.sums.total())

    @staticmethod
    def by_site(states: Sequence[FitState]) -> FitState:
        """Add up states so that each one is a fold: errors are then errors at a new site.

        ``C="kfold"`` then leaves out one site at a time, and so does
        `leansvm.model_selection.cross_val_from_sums`.

        Parameters
        ----------
        states : sequence of FitState
            Of two sites or more, on one basis.

        Returns
        -------
        FitState
            Of all rows.
        """
        if len(states) < 2:
            raise StateError(f"by_site needs two states or more, got {len(states)}.")
        merged = reduce(add, (state.without_folds() for state in states))
        shift = merged.sums.shift
        grams = np.stack([state.sums.total().about(shift).gram for state in states])
        base, total = np.zeros(grams.shape[1:]), merged.sums
        sums = FoldSums(shift, grams, base, total.n_outputs, total.count, by_groups=True)
        return replace(merged, sums=sums)

    # ------------------------------------------------------------------ rows and models

    @classmethod
    def of(cls, fitted: dict[str, Any], bias_penalty: float) -> FitState:
        """Return the state of a fitted model from its attributes."""
        features, selected = fitted["_features"], fitted["_selected"]
        if features.kernel.precomputed:
            raise StateError(
                "kernel='precomputed' has no basis points that a state could carry: use a kernel "
                "with a name, or a callable."
            )
        if "table_" in fitted:
            raise StateError(
                "A model of a table with text, dates or missing values has no state: states add up "
                "numbers. Use leansvm.tables.TableEncoder before it, the same at every site."
            )
        if selected is None:  # points were given
            selected = np.full(int(features.kept.max(initial=-1)) + 1, -1)
        names, classes = fitted.get("feature_names_in_"), fitted.get("classes_")
        return cls(
            features=features.on_host(),
            sums=fitted["_sums"].on_host(),
            n_rows=int(fitted["n_rows_seen_"]),
            bias_penalty=bias_penalty,
            selected=np.asarray(selected, dtype=np.intp),
            among=np.ones(len(features.kept), np.bool_) if np.all(selected >= 0) else None,
            classes=classes,
            class_weight=class_weights(fitted.get("class_weight"), classes),
            feature_names=None if names is None else tuple(map(str, names)),
            single_output=bool(fitted.get("_single_output", True)),
        )

    def attributes(self) -> dict[str, Any]:
        """Return the attributes of a model that describe its rows: features, names, classes."""
        found: dict[str, Any] = {"n_features_in_": self.n_features}
        if self.feature_names is not None:
            found["feature_names_in_"] = np.array(self.feature_names, dtype=object)
        if self.classes is None:
            return found | {"_single_output": self.single_output}
        return found | {"classes_": self.classes}

    def of_rows(
        self, blocks: RowBlocks, features: KernelFeatures, count: float | None, budget: int
    ) -> FitState:
        """Return the state of other rows on this basis; ``features`` are where the rows are."""
        check_memory(features.width, budget, max(self.n_folds, 1))
        shift = self.sums.shift
        if isinstance(self.sums, FoldSums):
            if self.sums.by_groups:
                raise StateError(
                    "The folds of this state are groups, so new rows belong to no fold: call "
                    "fit_from_state(state.without_folds()) first."
                )
            folds = KFoldSums(self.n_folds)
            sums: Any = add_up_folds(blocks, features, shift, count, folds)
        else:
            sums = add_up(blocks, features, shift, count)
        among = points_among(blocks, self.points)
        empty = self.empty(self.n_folds)
        return replace(empty, sums=sums, n_rows=blocks.n_rows, among=among)

    def solve(self, parameters: dict[str, Any], criterion: Criterion, budget: int) -> Solution:
        """Return the model of the rows in the sums; ``parameters`` of the model must fit them."""
        refuse_parameters(self, parameters, "class_weight" in parameters)
        check_memory(self.features.width, budget, max(self.n_folds, 1))
        if np.ndim(criterion.C) and criterion.name != "gcv":
            if not self.n_folds:
                raise StateError(
                    f"C={parameters['C']!r} needs the rows or sums of folds, but this state has "
                    f"neither: set C to a number or 'gcv', or make the state with a model that has "
                    f"C='kfold'."
                )
            criterion = replace(criterion, name="kfold")
        criterion = replace(criterion, left_out=False)  # a state has no rows to leave out
        if self.weight > 0:
            rows, free_bias = MemoryBlocks(np.empty((0, self.n_features))), self.bias_penalty == 0
            solution = solve_sums(rows, self.features, self.sums, free_bias, criterion)
        else:  # of no rows, whatever C: f = 0
            n_outputs, C = self.sums.n_outputs, float(np.ravel(criterion.C)[0])
            coef, b = np.zeros((self.n_basis, n_outputs)), np.zeros(n_outputs)
            solution = Solution("primal", coef, b, C, 0.0, 0.0)
        dropped = len(self.selected) - self.n_basis
        details = {"rows": self.n_rows, "dropped": dropped, "selection": {}}
        return replace(
            solution,
            bytes=8 * 4 * (self.features.width + 2) ** 2,
            details=solution.details | details,
        )

    # ------------------------------------------------------------------ files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file: arrays and JSON in a zip archive, no pickle.

        Parameters
        ----------
        path : path-like
            File to write; an existing one is replaced when the new one is complete.
        """
        from leansvm.persistence._state_file import write_state

        write_state(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FitState:
        """Read a state that `save` wrote; nothing in the file is run.

        Parameters
        ----------
        path : path-like
            The file.

        Returns
        -------
        FitState
            As it was saved. It takes no more memory than the file has bytes.

        Raises
        ------
        StateError
            The file is not a state, is damaged, or is of another format.
        """
        from leansvm.persistence._state_file import read_state

        return read_state(path)
