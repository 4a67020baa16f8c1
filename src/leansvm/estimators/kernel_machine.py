"""Machines with a kernel: f(x) = sum_j dual_coef_j k(x_j, x) + intercept."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Tags
from sklearn.utils._param_validation import Interval, StrOptions

from leansvm._phases import Phases
from leansvm.basis.features import FeatureMap, KernelFeatures
from leansvm.estimators.machine import Machine, Run
from leansvm.estimators.training_data import TrainingData
from leansvm.kernels import KERNELS, Kernel, Mixture, resolve_gamma
from leansvm.learning.learn import LEARNABLE, MIXTURE, learn_kernel
from leansvm.ridge.kfold import KFoldSums
from leansvm.rows import RowBlocks, resolve_cache_size
from leansvm.solution import Solution, Support
from leansvm.tables import TableEncoder

Array = NDArray[np.float64]
# What `partial_fit` must find as it was in the first batch: sums and factors depend on it.
BATCH_PARAMETERS = (
    "kernel",
    "gamma",
    "degree",
    "coef0",
    "fit_intercept",
    "bias_penalty",
    "class_weight",
    "target",
)


@dataclass(frozen=True)
class FittedKernel:
    """A kernel with its numbers, and how they were found."""

    kernel: Kernel
    name: Any  # ``kernel_``: a name, a mixture, or the user's function
    gamma: Any
    given: dict[str, Any]  # parameters that later batches must not change
    clip: tuple[Array, Array] | None = None
    scales: Array | None = None  # ``feature_scales_``
    report: dict[str, Any] | None = None  # of learning

    def attributes(self) -> dict[str, Any]:
        """Return the fitted attributes of an estimator."""
        found = {"kernel_": self.name, "gamma_": self.gamma, "clip_": self.clip}
        found["_batch_parameters"] = self.given
        return found if self.scales is None else found | {"feature_scales_": self.scales}


class KernelMachine(Machine):
    """Adds the kernel: f(x) = sum_j dual_coef_j k(x_j, x) + intercept."""

    kernel_: Any
    gamma_: Any
    clip_: tuple[Array, Array] | None
    _batch_parameters: dict[str, Any]  # as they were in `fit`, or in the first batch
    _seed: Any = 0  # of the sample that a kernel is learned on

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **Machine._parameter_constraints,
        "kernel": [StrOptions({*KERNELS, "auto", "additive_chi2"}), Mixture, callable],
        "gamma": [
            StrOptions({"scale", "auto", "learn"}),
            Interval(Real, 0, None, closed="left"),
            "array-like",
        ],
        "degree": [Interval(Real, 0, None, closed="left")],
        "coef0": [Interval(Real, None, None, closed="neither")],
    }

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        tags.input_tags.sparse = self.kernel != "precomputed"
        return tags

    @property
    def _learns_scales(self) -> bool:
        """Whether gamma="learn" finds scales; kernels without any take it as "scale"."""
        learns = isinstance(self.gamma, str) and self.gamma == "learn"
        return learns and isinstance(self.kernel, str) and self.kernel in (*LEARNABLE, "auto")

    def _planned(self, n_rows: int, n_features: int) -> dict[str, float]:
        """Return the work of learning: searches on 1,500 rows, on folds of few rows, on 4,000."""
        if not self._learns_scales:
            return {}
        short, long = min(n_rows, 1500) / 1500, min(n_rows, 4000) / 4000
        folds = 4.0 * short if n_rows < max(2000, 50 * n_features) else 0.0
        return {"first": 7.0 * short, "guard": folds, "second": (4.0 + 0.1 * n_features) * long}

    @property
    def _has_one_scale(self) -> bool:  # type: ignore[override]
        return not self._learns_scales and np.ndim(self.gamma) == 0

    def _learn_kernel(
        self, data: Any, run: Run | None, most_points: int | None = None, table: Any = None
    ) -> FittedKernel:
        """Resolve gamma, or learn it on a sample; ``data`` are blocks or training data.

        ``table`` is the encoder of rows that were a table: it says which features share a scale.
        """
        given: dict[str, Any] = {}
        for name in BATCH_PARAMETERS:
            given[name] = getattr(self, name, None)
        if self._learns_scales:
            table = table or getattr(data, "attributes", {}).get("table_")
            return self._learned_kernel(data, run, most_points, given, table)
        # "auto" without anything to compare kernels by: the Gaussian one
        chosen = "rbf" if self.kernel == "auto" else self.kernel
        if isinstance(chosen, Mixture):
            return FittedKernel(Kernel(chosen), chosen, chosen.gamma_by_part, given)
        asked = "scale" if isinstance(self.gamma, str) and self.gamma == "learn" else self.gamma
        gamma = resolve_gamma(asked, chosen, data.n_features, data.variance)
        kernel = Kernel(chosen, gamma=gamma, degree=self.degree, coef0=self.coef0)
        return FittedKernel(kernel, chosen, gamma, given)

    def _learned_kernel(
        self,
        rows: RowBlocks | TrainingData,
        run: Run | None,
        most_points: int | None,
        given: dict[str, Any],
        table: TableEncoder | None,
    ) -> FittedKernel:
        names = MIXTURE if self.kernel == "auto" else (self.kernel,)
        C = None
        if run is not None and not isinstance(self.C, str | KFoldSums):
            values = np.atleast_1d(run.criterion.C)
            C = float(values.min()), float(values.max())
        with Phases()("learn"):
            learned = learn_kernel(
                rows.blocks() if isinstance(rows, TrainingData) else rows,
                names,
                bias_penalty=0.0 if run is None else self._bias_penalty(),
                budget=3 * resolve_cache_size(self.cache_size) // 4,  # the rest is for tiles
                random_state=self._seed,
                on_iteration=None if run is None else run.hook("learning-step", 0.5),
                most_points=most_points,
                C=C,
                groups=None if table is None else table.groups_,
                numeric=None if table is None else table.numeric_,
            )
        kernel = Kernel(learned.kernel, gamma=learned.gamma, clip=learned.clip)
        return FittedKernel(
            kernel,
            learned.kernel,
            learned.gamma,
            given,
            learned.clip,
            learned.scales,
            learned.report,
        )

    def _support_attributes(
        self, data: TrainingData, support: Support, solution: Solution
    ) -> dict[str, Any]:
        """Return the attributes that show which rows or points carry which coefficients."""
        pairwise = self.kernel == "precomputed"
        found = {
            "support_": support.indices,
            "support_vectors_": np.empty((0, 0), data.X.dtype) if pairwise else support.points,
            "dual_coef_": np.ascontiguousarray(solution.coef[support.order].T),
            "n_support_": len(support.indices),
        }
        return found if solution.weights is None else found | {"coef_": solution.weights}

    def _small_matrix(self, rows: Any) -> tuple[Any, Any]:
        """Return the map to a small basis and the sums over the rows; none where all rows are."""
        return None, None

    def _refuse_changed(self) -> None:
        """Say what keeps `partial_fit` from going on: no sums, or a parameter that was changed."""
        if self._saved_small:
            raise ValueError(
                f"This needs the sums over all rows so far, and this {type(self).__name__} has "
                f"only what prediction needs: it came from a file, a pickle or a deep copy. Set "
                f"keep_state=True before the model is saved or pickled, or call fit."
            )
        for name, before in getattr(self, "_batch_parameters", {}).items():
            now: Any = getattr(self, name, None)
            same = np.shape(now) == np.shape(before) and np.all(np.asarray(now == before))
            if now is not before and not same:
                raise ValueError(
                    f"partial_fit: {name}={now!r} was {before!r} in the first batch, and the rows "
                    f"since then were added up with that. Set it back, or call fit."
                )

    def _model(self) -> tuple[FeatureMap, Array]:
        kernel = Kernel(
            self.kernel_,
            gamma=self.gamma_,
            degree=self.degree,
            coef0=self.coef0,
            clip=self.clip_,
        )
        points = self.support_ if kernel.precomputed else self.support_vectors_
        return KernelFeatures(kernel, points), self.dual_coef_.T
