"""The LS-SVM on given features for every C, without eigenvalues: M = Q T Q', T tridiagonal.

An eigen-decomposition begins with this reduction and then takes as long again, or longer, to find
the eigenvalues of T and their vectors. They are not needed: T + 1/C = L D L' takes a few steps a
column for every C, the solution is theta = Q (T + 1/C)^-1 Q'c, and the leverage of a row phi is
e' (T + 1/C)^-1 e with e = Q'phi. All of it equals what `primal.Spectrum` gives, up to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leansvm.ridge._lapack import tridiagonal_in_place
from leansvm.ridge.sums import NormalEquations

Array = NDArray[np.float64]
_LEAST_RIDGE = 1e-12  # share of the norm of M; below it rounding may make T + 1/C indefinite


class RidgeFactors(NamedTuple):
    """T + 1/C = L D L' for several C, one column each."""

    ratio: Array  # L beside its diagonal of ones; the first row is zero
    inverse: Array  # 1 / D


@dataclass
class Tridiagonal:
    """Reduction of M to tridiagonal form; solutions and errors for every C come from it."""

    equations: NormalEquations
    vectors: Array  # Q
    diagonal: Array
    off: Array  # beside the diagonal

    def factored(self, candidates: Array) -> RidgeFactors:
        """Return the factors of T + 1/C for every C."""
        ratio = np.zeros((len(self.diagonal), len(candidates)))
        D = self.diagonal[:, None] + 1.0 / candidates
        for j in range(1, len(D)):
            np.divide(self.off[j - 1], D[j - 1], out=ratio[j])
            D[j] -= self.off[j - 1] * ratio[j]
        if not D.min() > 0:
            raise np.linalg.LinAlgError(f"smallest pivot {D.min():.3g}")
        return RidgeFactors(ratio, 1.0 / D)

    def coordinates(self, factors: RidgeFactors) -> Array:
        """Return (T + 1/C)^-1 Q'c: outputs x functions x candidates."""
        z = self.vectors.T @ self.equations.c
        ratio, inverse = factors
        found = np.repeat(z[:, :, None], ratio.shape[1], axis=2)
        for j in range(1, len(found)):
            found[j] -= ratio[j] * found[j - 1]
        found *= inverse[:, None, :]
        for j in range(len(found) - 2, -1, -1):
            found[j] -= ratio[j + 1] * found[j + 1]
        return np.ascontiguousarray(np.swapaxes(found, 0, 1))

    def theta(self, C: float) -> Array:
        """Return the solution at C."""
        found = self.coordinates(self.factored(np.array([C])))
        return np.asarray(self.vectors @ found[:, :, 0].T)

    def gcv(self, candidates: Array) -> Array:
        """Generalised cross-validation n RSS / (n - tr)^2, summed over outputs.

        RSS = y'y - c'theta - |theta|^2 / C, since M theta = c - theta / C. The trace of
        (T + 1/C)^-1 is the derivative of the sum of log D by 1/C.
        """
        eq, factors, lam = self.equations, self.factored(candidates), 1.0 / candidates
        found, z = self.coordinates(factors), self.vectors.T @ eq.c
        rss = eq.yy.sum() - np.einsum("ro,orc->c", z, found) - lam * np.sum(found**2, axis=(0, 1))
        slope, trace = np.zeros(len(lam)), np.zeros(len(lam))  # slope of D_j
        for ratio, inverse in zip(*factors, strict=True):
            slope = 1.0 + ratio * ratio * slope
            trace += slope * inverse
        room = eq.count - float(eq.free_bias) - (len(self.diagonal) - lam * trace)
        enough = room > 1e-10 * eq.count
        scores = eq.count * np.maximum(rss, 0.0) / np.where(enough, room, 1.0) ** 2
        return np.where(enough, scores, np.inf)


def stays_definite(equations: NormalEquations, candidates: Array) -> bool:
    """Whether T + 1/C will be positive definite at every candidate, in spite of rounding."""
    return 1.0 / float(candidates.max()) >= _LEAST_RIDGE * float(np.linalg.norm(equations.M))


def tridiagonal(equations: NormalEquations) -> Tridiagonal:
    """Reduce M once for all C."""
    return Tridiagonal(equations, *tridiagonal_in_place(equations.M.copy()))


def leverages(E: Any, factors: RidgeFactors) -> Array:
    """Return e' (T + 1/C)^-1 e of every row e of E, one column for each C."""
    from leansvm.ridge import _tridiagonal_loops as loops

    out = np.empty((E.shape[0], factors.ratio.shape[1]))
    if E.shape[1] % 2:  # the loop takes two columns at a time: one that counts nothing
        factors = RidgeFactors(*(np.pad(part, ((0, 1), (0, 0))) for part in factors))
    if len(out):
        loops.quadratic_forms(E, *factors, out)
    return out
