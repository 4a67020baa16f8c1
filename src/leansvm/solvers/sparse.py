"""SparseLSSVC's problem: a basis of given size, or one that grows until the error hardly falls.

minimise  1/2 |w|^2 + 1/2 A b^2 + C/2 sum_i s_i (y_i - f(x_i))^2  over w in the span of k(x_j, .),
j in B (P-LSSVM; zhou2016, eqs. (9), (11)), in the whitened basis and from sums over row blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from leansvm._parallel import serial_blas
from leansvm._phases import Phases
from leansvm.blocks import RowBlocks
from leansvm.kernels import Kernel
from leansvm.solvers import primal
from leansvm.solvers.features import KernelFeatures, product_rounding, whiten
from leansvm.solvers.primal import Criterion
from leansvm.solvers.solution import Solution
from leansvm.solvers.sums import Sums, add_up, drop_rows_of_Z, first_shift

_SMALL_SYSTEM = 512  # unknowns that one thread solves for in no time
_FLOAT32_LOSS = 1e-3  # of the spread of y; more, and float32 rows are added up in float64


class SparseFit(NamedTuple):
    """A basis with its features, the sums over the rows and the solution they lead to."""

    basis: Any  # `leansvm.basis.Basis`
    features: KernelFeatures
    sums: Sums
    solution: Solution


@dataclass(frozen=True)
class SparseProblem:
    """Everything that stays the same while basis sizes are tried."""

    blocks: RowBlocks
    kernel: Kernel
    bias_penalty: float
    criterion: Criterion
    count: float | None  # samples that GCV counts; None for the sum of weights
    budget: int  # bytes that blocks may keep
    phases: Phases = field(default_factory=Phases)

    def solve(self, choose: Callable[[int], Any], size: int) -> SparseFit:
        """Choose ``size`` points, add up the rows and solve."""
        with serial_blas():  # small products between passes over tiles
            with self.phases("select"):
                basis = choose(size)
            with self.phases("factor"):
                features = self._whitened(basis)
        found = self._add_up_and_solve(basis, features)
        if features.single:
            eps = product_rounding(features.points)
            lost = features.rounding_of(found.solution.coef, eps)
            if lost > _FLOAT32_LOSS * found.sums.spread_of_targets():
                found = self._add_up_and_solve(basis, replace(features, single=False))
        return found

    def _whitened(self, basis: Any) -> KernelFeatures:
        """Factor K_BB; float32 rows stay so unless a small pivot would magnify rounding."""
        penalty, in_state = self.bias_penalty, basis.L is not None
        constant = 1.0 / np.sqrt(penalty) if 0 < penalty < np.inf else None
        features = whiten(
            self.kernel,
            basis.rows,
            basis.points(self.kernel),
            basis.L,
            constant=constant,
            in_state=in_state,
        )
        single = str(self.blocks.dtype).endswith("float32")  # in whatever library
        if in_state or not single or self.kernel.precomputed:
            return features
        assert features.L is not None
        pivots = features.L.diagonal()
        return replace(features, single=bool(pivots.min() > 0.01 * pivots.max()))

    def _add_up_and_solve(self, basis: Any, features: KernelFeatures) -> SparseFit:
        blocks, free_bias = self.blocks, self.bias_penalty == 0
        # leave-one-out reads the rows of Z again: keep them if they fit
        needed = 8 * blocks.n_rows * (features.width * (1 + features.in_state) + 2)
        keep = self.criterion.left_out and 2 * needed <= self.budget
        with self.phases("sums"), serial_blas():
            shift = first_shift(blocks, features, free_bias)
            sums = add_up(blocks, features, shift, self.count, keep)
        # BLAS threads that wake for a small system would still spin in the next fit
        small = sums.gram.shape[0] <= _SMALL_SYSTEM
        with self.phases("solve"), serial_blas() if small else nullcontext():
            solution = primal.solve(blocks, features, sums, free_bias, self.criterion)
        if keep:
            blocks.map(drop_rows_of_Z)
        state = blocks.n_rows * features.width * features.in_state
        solution.bytes = 8 * (state + 4 * sums.gram.size)
        solution.seconds = self.phases.seconds
        solution.details = {
            "dropped": basis.rows.shape[0] - features.size,
            "selection": basis.report,
        }
        return SparseFit(basis, replace(features, in_state=False, single=False), sums, solution)
