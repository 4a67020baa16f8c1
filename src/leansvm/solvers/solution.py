"""What every solver returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass
class Solution:
    """Coefficients of f(x) = sum_j coef_j phi_j(x) + b, and what certifies them."""

    solver: str  # the method that ran, whoever picked it
    coef: Array  # basis functions (or rows) x outputs
    b: Array  # outputs
    C: float
    objective: float = np.nan  # summed over the outputs
    residual: float = np.nan  # of the optimality conditions, relative
    gap: float = np.nan  # between the objective and a lower bound of its minimum
    iterations: int = 1
    converged: bool = True
    advice: str = ""  # what was reached and what to do, where it did not converge
    weights: Array | None = None  # w of the linear kernel, outputs x features
    left_out: Array | None = None  # y - f without the row, rows x outputs
    curve: Array | None = None  # criterion at every candidate of C
    error: float = np.nan  # criterion at C
    bytes: int = 0  # what was planned
    details: dict[str, Any] = field(default_factory=dict)  # what else belongs into the report
