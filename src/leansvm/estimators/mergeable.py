"""Models from sums over rows: `partial_fit` adds batches to the sums, `FitState` merges them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import _fit_context
from sklearn.utils.validation import check_is_fitted

from leansvm._array_api import moved, rows_at, to_host
from leansvm.basis.choose import Basis
from leansvm.basis.features import KernelFeatures
from leansvm.estimators.machine import Machine, running
from leansvm.estimators.publish import publish
from leansvm.estimators.read import TrainingData, read
from leansvm.learning.learn import FittedKernel
from leansvm.ridge.criteria import Criterion
from leansvm.ridge.kfold import FoldSums, KFoldSums, add_batch
from leansvm.ridge.primal import SparseProblem, solve_sums
from leansvm.ridge.state import FitState
from leansvm.ridge.sums import Sums
from leansvm.rows import RowBlocks, resolve_cache_size, tiles_within


class Mergeable(Machine):
    """Estimators whose fit needs only sums over the rows; later rows are added to the sums."""

    _training_only = Machine._training_only | {"_features", "_sums", "_selected"}
    _features: KernelFeatures
    _sums: Sums | FoldSums
    _selected: Any  # rows in the order in which they were chosen
    n_rows_seen_: int

    def state(self, X: Any = None, y: Any = None, sample_weight: Any = None) -> FitState:
        """Return the sums over the rows of this model, or over other rows on its basis.

        Parameters
        ----------
        X, y, sample_weight
            Other rows, in the form that `fit` takes: rows of another site, or rows to forget.
            ``X=None`` means the training rows of the model.

        Returns
        -------
        FitState
            States can be added and subtracted; `fit_from_state` fits a model from a state.
        """
        self._refuse_changed()
        check_is_fitted(self, "_sums")
        self._refuse_target()
        known = FitState.of(self.__dict__, self._bias_penalty())
        if X is None:
            return known
        with tiles_within(self.cache_size):
            data = self._read_more(X, y, sample_weight, known.classes)
            blocks, features = self._blocks_of(data)
            return known.of_rows(blocks, features, data.count, resolve_cache_size(self.cache_size))

    @_fit_context(prefer_skip_nested_validation=True)
    def fit_from_state(self, state: FitState) -> Any:
        """Fit the model from a state: the same as `fit` on its rows, with its basis and gamma.

        Parameters
        ----------
        state : FitState
            What `state` returned, or a sum or difference of such states.

        Returns
        -------
        estimator
            Fitted. ``C`` may be a number or "gcv". If the state has folds, it may also be "kfold",
            "loo" or a list, and the folds compare the values. Parameters that contradict the state
            are refused.
        """
        self._refuse_target()
        with running(self) as run:
            parameters, budget = self.get_params(deep=False), resolve_cache_size(self.cache_size)
            solution = state.solve(parameters, run.criterion, budget)
            known = state.attributes() | ({} if self._classifies else {"_spread": state.spread()})
            shape = state.sums.n_outputs, 0  # no rows
            data = TrainingData(state.points, None, None, *shape, attributes=known)
            kernel = FittedKernel(state.features.kernel, state.features.kernel.given)
            basis = Basis(state.selected, state.features.points)
            found: Any = {"features": state.features, "sums": state.sums, "basis": basis}
            publish(self, data, kernel, replace(solution, **found))
            self.n_rows_seen_ = state.n_rows
            self.__dict__.pop("_rows", None)  # ``data`` has basis points, no training rows
        return self

    def _small_matrix(self, rows: TrainingData | None) -> tuple[KernelFeatures, Any]:
        """Return the map to the basis and the sums; add them up again for a model from a file."""
        if "_sums" in vars(self):
            return self._features, self._sums
        if rows is None:
            raise ValueError(
                f"This {type(self).__name__} was loaded from a file or copied, and no longer "
                f"knows its training rows. Call keep_rows(X, y) with them, or set keep_state=True "
                f"before you save or pickle a model."
            )
        kernel = self._model()[0].kernel
        points = rows_at(rows.X, self.support_) if kernel.precomputed else self.support_vectors_
        blocks = rows.blocks(3 * (self.n_support_ + rows.n_outputs + 1))
        terms = self._bias_penalty(), Criterion(self.C_), rows.count
        problem = SparseProblem(blocks, kernel, *terms, blocks.state_budget(self.cache_size))
        summed = problem.sum_size(lambda size: Basis(self.support_, points), self.n_support_)
        return summed.features, summed.sums

    def _refuse_target(self) -> None:
        if self.target is not None:
            raise ValueError(
                f"target={self.target!r}: a state does not contain the transformation of the "
                f"targets. Set target=None, and pass the transformed y."
            )

    def _read_more(self, X: Any, y: Any, sample_weight: Any, classes: Any) -> TrainingData:
        """Read rows after those of the fit."""
        self._refuse_changed()
        data = read(self, X, y, sample_weight, reset=False, classes=classes, batch=True)
        if data.n_outputs != self._sums.n_outputs:
            raise ValueError(
                f"partial_fit: y has {data.n_outputs} target columns, and earlier batches have "
                f"{self._sums.n_outputs}."
            )
        return data

    def _blocks_of(self, data: TrainingData) -> tuple[RowBlocks, KernelFeatures]:
        """Return the rows in blocks, and the basis on the device of the rows."""
        features = self._features
        if not features.kernel.precomputed:
            points = features.points
            points = to_host(points) if data.encode is not None else moved(points, data.X)
            features = replace(features, points=points, L=to_host(features.L))
        return data.blocks(3 * (features.width + data.n_outputs + 1)), features

    def _add_batch(self, X: Any, y: Any, sample_weight: Any, classes: Any = None) -> Any:
        """Add the sums of more rows and solve again."""
        first = not ("_sums" in vars(self) or self._saved_small)
        criterion = replace(self._criterion(), left_out=self.calibrate)
        if np.ndim(criterion.C) == 1 and criterion.name == "loo":  # rows are read only once
            if criterion.loss != "squared":
                raise ValueError(
                    f"partial_fit: criterion={criterion.loss!r} needs all rows. Use "
                    f"criterion='squared', or call fit."
                )
            folds = KFoldSums() if first else None  # later batches use the existing folds
            criterion = replace(criterion, name="kfold", folds=folds)
        with running(self, X, y, criterion) as run:
            if first:
                data = read(self, X, y, sample_weight, classes=classes, batch=True)
                if data.n_positive < 2:
                    run = replace(run, criterion=replace(criterion, left_out=False))
                data = self._prepare(data, run)
                kernel = self._learn_kernel(data, run)
                solution = self._solve(data, self._grow(data, kernel, run), run)
                publish(self, data, kernel, solution)
                self._has_batches = True
                return self
            data = self._read_more(X, y, sample_weight, classes)
            blocks, features = self._blocks_of(data)
            budget = blocks.state_budget(self.cache_size)
            sums = add_batch(blocks, features, self._sums, data.count, criterion, budget)
            solution = solve_sums(blocks, features, sums, self._bias_penalty() == 0, criterion)
            seen, before = self.n_rows_seen_ + data.X.shape[0], self.fit_report_
            kept = {name: before[name] for name in ("dropped", "selection")}
            solution = replace(
                solution,
                features=features,
                sums=sums,
                basis=Basis(self._selected, features.points),
                seconds=before["seconds"],
                bytes=before["bytes"],
                details=solution.details | {"rows": seen, **kept},
            )
            publish(self, data, None, solution)
            self.n_rows_seen_, self._has_batches = seen, True
        return self
