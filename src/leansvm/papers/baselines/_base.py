"""What the baselines share: an LS-SVM in its dual whose coefficients are zero off a few rows.

With beta zero off B, the dual's solution is that of the LS-SVM on the rows B alone (zhou2016,
eq. (13)):  (K_BB + diag(1 / (C s))) beta + b = y_B,  1'beta = 0.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils._param_validation import Interval, StrOptions

from leansvm._phases import Phases
from leansvm.basis.choose import resolve_n_basis
from leansvm.estimators.kernel_machine import Array, KernelMachine
from leansvm.estimators.machine import Run
from leansvm.estimators.predict import Classifier
from leansvm.estimators.read import read
from leansvm.kernels import Kernel
from leansvm.ridge.primal import Criterion
from leansvm.rows import class_numbers

Rows = NDArray[np.intp]

_SHARED = ("kernel", "gamma", "degree", "coef0", "cache_size")


class DualBaseline(Classifier, KernelMachine):
    """Parameters, input checks and fitted attributes of the baselines."""

    _documented_in = "leansvm.papers.baselines"
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **{name: KernelMachine._parameter_constraints[name] for name in _SHARED},
        "C": [Interval(Real, 0, None, closed="neither")],
        "class_weight": [StrOptions({"balanced"}), dict, None],
        "random_state": ["random_state"],
        "n_basis": [
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, 1, closed="neither"),
        ],
    }

    def _read(
        self, X: Any, y: Any, sample_weight: Any
    ) -> tuple[Any, Any, Array, NDArray[np.intp], Array]:
        """Check the input; return X, y, targets +-1, class numbers and weights."""
        data = read(self, X, y, sample_weight)
        self.__dict__.update(data.attributes)
        self.C_ = float(self.C)
        return data.X, data.y, data.Y, class_numbers(data.Y), data.weight

    def _resolve_kernel(self, rows: Any) -> Kernel:
        """Set what belongs to the kernel, and return it."""
        fitted = self._learn_kernel(rows, None)
        self.__dict__.update(fitted.attributes())
        return fitted.kernel

    def _hook(self, context: Any, name: str) -> Callable[..., bool] | None:
        """Return the function that tells callbacks of a step."""
        return Run(self, context, Criterion(self.C)).hook(name)

    def _count(self, n_rows: int) -> int:
        """Return the number of rows that ``n_basis`` asks for."""
        if isinstance(self.n_basis, Integral) and int(self.n_basis) > n_rows:
            warnings.warn(
                f"n_basis={self.n_basis} is more than the {n_rows} rows of positive weight; "
                f"using all of them.",
                UserWarning,
                stacklevel=4,
            )
            return n_rows
        return resolve_n_basis(self.n_basis, n_rows)

    @contextmanager
    def _positive_definite(self) -> Iterator[None]:
        """Name the parameters when a system has no Cholesky factor."""
        try:
            yield
        except np.linalg.LinAlgError as error:
            raise ValueError(
                f"kernel={self.kernel!r}: the kernel matrix plus 1/C on its diagonal is not "
                f"positive definite ({error}). Use a positive semidefinite kernel or a smaller C."
            ) from None

    def _set_model(self, X: Any, support: Rows, beta: Array, b: Array) -> None:
        """Set the fitted attributes that predictions use; ``beta`` is rows x outputs."""
        self.support_ = support
        self.dual_coef_ = np.ascontiguousarray(beta.T)
        self.intercept_ = np.asarray(b)
        pairwise = self.kernel == "precomputed"
        self.support_vectors_ = np.empty((0, 0), X.dtype) if pairwise else X[support]
        self.n_support_ = len(support)

    def _set_report(
        self, solver: str, n_rows: int, objective: float, phases: Phases, **others: Any
    ) -> None:
        self.objective_ = objective
        self.fit_report_ = {
            "solver": solver,
            "objective": objective,
            "iterations": self.n_iter_,
            "converged": True,
            "rows": n_rows,
            "basis": len(self.support_),
            "outputs": len(self.intercept_),
            **others,
            "seconds": phases.seconds,
        }


def rows_of(X: Any, rows: Rows, *, pairwise: bool) -> Any:
    """Return these rows; of a kernel matrix also these columns."""
    return X[np.ix_(rows, rows)] if pairwise else X[rows]
