"""The classical LS-SVM as one unconstrained problem (joshi, Appendix, corrected).

The multiplier of the constraint 1'beta = 0 is b = 1'(y - G beta) / m, G = K + diag(1 / (C s)).
Put into the objective it leaves W beta = P y, P = I - 11'/m,

    W = G - (11'G + G11') / m + d 11' = P G P + (d - 1'G1 / m^2) 11',

which is positive definite for d > 1'G1 / m^2; 1'(W beta - P y) = 0 then implies 1'beta = 0.
(The paper's term in alpha moves the stationary point; alpha = 0.) W is K plus p_i + p_j + c with
p = -G1 / m, so that 2SMO needs nothing but the row means of K.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm.solvers._rows import KernelRows
from leansvm.solvers.smo import Quadratic, State, minimise

Array = NDArray[np.float64]


def substitution(
    rows: KernelRows,
    quadratic: Quadratic,
    row_sums: Array,
    state: State | None = None,
    **options: Any,
) -> tuple[State, float]:
    """Return the state and the bias; ``row_sums`` is K 1, ``options`` are of `smo.minimise`."""
    m = len(quadratic.y)
    means = (row_sums + quadratic.ridge) / m  # G1 / m
    # in the direction of ones W has the curvature of G, so that tol bounds 1'beta as it does r
    c = 2.0 * float(means.mean())
    centred = quadratic.y - quadratic.y.mean()
    single = replace(quadratic, y=centred, offset=-means, c=c)
    state = minimise(rows, single, state, **options)
    share = quadratic.weight / quadratic.weight.sum()
    state.beta -= state.beta.sum() * share  # rounding and tolerance, no more
    return state, float(share @ (quadratic.y - state.f - quadratic.ridge * state.beta))
