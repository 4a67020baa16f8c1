"""Backfitting (ICP): the best of a few random rows for the fit itself (zhou2016, Algorithm 2).

A candidate j is worth delta_j = |G_j|^2 / (2 mu_j), eqs. (22) and (27), with the gradient
G_j = lam F_j + K_Mj' S rho of (20) at the current fit F = P theta, rho = cen(F - y). So a
candidate costs O(m) once its kernel column is there; only the chosen one needs u_t of (21).
`leansvm.basis.candidates.rounds` chooses one point, or several, in a pass over the rows.
"""

from __future__ import annotations

from leansvm.basis.candidates.best_of import CandidateSelector
from leansvm.basis.candidates.rounds import Rounds


class Backfitting(CandidateSelector):
    """Basis rows that lower the model's squared-loss objective most, one at a time (ICP).

    Each step looks at ``n_candidates`` random rows and takes the one whose coefficient, added to
    the fit, lowers the objective most; then all coefficients are fitted again.

    Parameters
    ----------
    n_candidates : int, default=59
        Number of candidates in each step. The best of 59 is among the best 5 % with probability
        0.95, the best of 22 among the best 10 % with probability 0.9.
    tol : float, default=0.0
        Stop when the best candidate lowers the objective, divided by C, by no more than this.
    keep_pool : bool, default=True
        Keep good candidates in a pool. Up to ``n_candidates`` / 5 of them become points, one after
        the other; then new rows replace them and the worst third of the pool. So each point is the
        best of about 4 * ``n_candidates`` rows. False draws all candidates anew for every point,
        as the paper's Algorithm 2 does; that is several times slower.
    random_state : int, RandomState instance or None, default=None
        Seed for the order of the candidates; None uses that of the estimator.

    Notes
    -----
    Rows of zero weight, and rows that the basis already represents up to rounding, are never
    chosen. The ``report`` of the selection has the objective after each step (``"objective"``), the
    predicted decrease of each step divided by C (``"gain"``: the new point alone, the other
    coefficients as they are) and why it ended (``"stop"``:
    "n_basis", "tol", "rank" or "callback").

    References
    ----------
    S. Zhou, "Sparse LSSVM in primal using Cholesky factorization for large-scale problems",
    IEEE Transactions on Neural Networks and Learning Systems, 2016, Algorithm 2.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm.basis import Fit
    >>> from leansvm.basis.backfitting import Backfitting
    >>> from leansvm.rows import MemoryBlocks
    >>> from leansvm.kernels import Kernel
    >>> X = np.linspace(-3, 3, 200)[:, None]
    >>> blocks = MemoryBlocks(X, np.sin(X))
    >>> selector = Backfitting(n_candidates=20, random_state=0)
    >>> found = selector.select(blocks, Kernel("rbf", gamma=0.5), 5, fit=Fit(C=100.0))
    >>> len(found.indices), bool(np.all(np.diff(found.report["objective"]) < 0))
    (5, True)
    """

    uses_targets = True
    _competition = Rounds
    runs_where_rows_are = True

    def state_columns(self, n_basis: int) -> int:
        """Columns kept for every row: P, the candidates, D, weights and one output's residual."""
        return n_basis + self.n_candidates + 3
