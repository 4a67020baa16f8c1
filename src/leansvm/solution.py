"""What every solver returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Solution:
    """Coefficients of f(x) = sum_j coef_j phi_j(x) + b, and what certifies them."""

    solver: str  # the method that ran, also if "auto" picked it
    coef: Array  # basis functions (or rows) x outputs
    b: Array  # outputs
    C: float
    objective: float = np.nan  # summed over the outputs
    residual: float = np.nan  # of the optimality conditions, relative
    gap: float = np.nan  # objective minus a lower bound of its minimum
    iterations: int = 1
    converged: bool = True
    advice: str = ""  # if it did not converge: what was reached, and what to do
    weights: Array | None = None  # w of the linear kernel, outputs x features
    left_out: Array | None = None  # y - f without the row, rows x outputs
    drawn: Any = None  # `DrawnRows`: the rows of ``left_out``; None: all rows
    curve: Array | None = None  # criterion at every candidate of C
    error: float = np.nan  # criterion at C
    bytes: int = 0  # planned memory
    seconds: dict[str, float] = field(default_factory=dict)  # by phase
    details: dict[str, Any] = field(default_factory=dict)  # further entries of ``fit_report_``
    basis: Any = None  # the points that carry the coefficients, in the order of choice
    features: Any = None  # map to the columns, or learned functions
    sums: Any = None  # squared loss on a basis: sums over the rows; later rows are added to them
