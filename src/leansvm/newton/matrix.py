"""Newton's matrix lam diag(rho) + Phi' diag(s L'') Phi and its direction (zhou2013, (18), (20)).

Piecewise quadratic losses keep the Gram matrix of their curved rows and update it by the rows that
entered and left, (23) and (25); fewer curved rows than features are handled by Woodbury's
identity (28), for both regularisers since both are the identity in their features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from leansvm._accelerated import add_to_diagonal, cholesky_lower
from leansvm._array_api import foreign_namespace, like_rows, namespace, zeros
from leansvm._parallel import in_order
from leansvm.basis import on_device
from leansvm.basis.features import FeatureMap
from leansvm.linalg import cholesky_in_place, cholesky_solve, right_solve_in_place
from leansvm.losses import Loss, Squared
from leansvm.newton import passes
from leansvm.newton.passes import HessianPlan, NewtonPass
from leansvm.rows import RowBlocks

Array = NDArray[np.float64]

_REBUILD_AFTER = 20  # updates of a Gram matrix, whose rounding errors add up
_CG_FROM = 1000  # columns of all outputs; fewer, and a new Gram matrix costs less
_CG_STEPS, _CG_TOL = 30, 1e-2  # of conjugate gradients, and the share of the gradient they leave
_NO_SLOPE = 1e-8  # of the gradient at zero: below it, a bias without curved rows does not move
_EPS = float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)


def no_steps() -> dict[str, list[Any]]:
    """Return the history of an output before its first step."""
    return {"objective": [], "gradient": [], "curved": [], "step": [], "hessian": []}


@dataclass
class Output:
    """One binary problem or regression target: where it is and what is known there."""

    number: int  # column of the targets
    theta: Array
    gradient: Array  # of the objective
    loss: Loss = field(default_factory=Squared)  # of the present stage
    stages: list[Loss] = field(default_factory=list)  # losses still to come
    gram: Any = None  # of the rows marked in_gram, weighted by s; large ones where the rows are
    updates: int = 0
    objective: float = 0.0  # what is minimised, divided by C
    counts: tuple[int, int, int] = (0, 0, 0)  # rows curved, entering and leaving the Gram matrix
    scale: float = 1.0  # gradient norm at zero
    sums: tuple[float, Array, float] | None = None  # of losses, slopes and |slopes|: free of C
    residual: float = np.inf  # gradient norm relative to it
    gap: float = np.inf  # relative duality gap
    lowest: tuple[float, float] = (np.inf, np.inf)  # objective and residual at this loss and C
    idle: int = 0  # steps since one of them fell notably
    n_iter: int = 0
    state: str = "running"  # "converged", "stalled"
    history: dict[str, list[Any]] = field(default_factory=no_steps)


Job = tuple[Output, HessianPlan, Any]  # what the blocks sent for this plan


@dataclass(frozen=True)
class NewtonFactor:
    """Newton's matrix H of one output, factored: A A' = H, or by Woodbury's identity (28).

    With the curved rows Z in the variables sqrt(rho) theta, A A' = lam I + Z Z'. A free bias is
    eliminated: its row of the system is W b + W mean'theta, and the rows of Z are centred.
    """

    A: Any  # lower triangular, on the host or where the rows are
    Z: Array | None = None
    lam: float = 1.0
    half: Array | float = 1.0  # 1 / sqrt(rho)
    mean: Array | None = None  # where a free bias is eliminated
    W: float = np.inf

    def solve(self, v: Array) -> Array:
        """Return H^-1 v."""
        if self.Z is None:
            on_host = isinstance(self.A, np.ndarray)
            return (cholesky_solve if on_host else on_device.solve_factored)(self.A, v)
        if self.mean is None:
            return np.asarray(self.half * self._shrunk(self.Z, self.half * v))
        theta = self._shrunk(self.Z, v[:-1] - self.mean * v[-1])
        return np.append(theta, v[-1] / self.W - self.mean @ theta)

    def _shrunk(self, Z: Array, v: Array) -> Array:
        """Return (lam I + Z'Z)^-1 v by the system of the size of Z's rows."""
        known = Z.T @ cholesky_solve(self.A, Z @ v) if len(Z) else 0.0
        return np.asarray((v - known) / self.lam)

    def leverages(self, Phi: Any) -> Any:
        """Return h = phi' H^-1 phi of the rows of Phi."""
        xp = namespace(Phi)
        if self.Z is None:
            return xp.sum(self._solved(Phi) ** 2, axis=1)
        if self.mean is None:
            Phi = Phi * like_rows(np.asarray(self.half), Phi)
        else:
            Phi = Phi[:, :-1] - like_rows(self.mean, Phi)
        known = xp.sum(self._solved(Phi @ like_rows(self.Z.T, Phi)) ** 2, axis=1)
        return (xp.sum(Phi * Phi, axis=1) - known) / self.lam + 1.0 / self.W

    def _solved(self, rows: Any) -> Any:
        """Return rows A^-T."""
        if foreign_namespace(rows) is not None:
            return on_device.placed(self.A, rows).apply(rows + 0.0)
        rows = np.array(rows)
        right_solve_in_place(rows, self.A)
        return rows


class NewtonMatrices:
    """What is minimised, the Gram matrices of all outputs, and the directions that they give."""

    blocks: RowBlocks
    features: FeatureMap
    margin: bool  # classification
    rho: Array  # regulariser of every feature; 0 for a free bias
    lam: float = 1.0  # 1 / C
    free_bias: bool
    centre: Array | None = None  # of the targets, which a free bias takes up
    at_once: int  # outputs whose matrices there is room for
    keeps: bool  # Gram matrices of all outputs from one step to the next

    def task(self, outputs: list[Output]) -> NewtonPass:
        """Return what passes over the rows need to know of these outputs."""
        columns = tuple([(o.number, o.loss) for o in outputs])
        return NewtonPass(self.features, self.margin, columns, self.centre)

    def for_each(
        self, outputs: list[Output], function: Callable[..., Any], *args: Any
    ) -> list[Any]:
        """Return ``function((output, its plan, its rows), *args)``, several outputs at a time.

        Each has a thread to itself; matrices of all outputs need not fit at once. One pass over the
        rows collects what the plans need. Outputs whose loss is curved at every row, as at zero,
        share one Gram matrix, which is sent once.
        """
        results: list[Any] = []
        for start in range(0, len(outputs), self.at_once):
            some = outputs[start : start + self.at_once]
            plans, same, asks = list(map(self.plan, some)), list[int](), False
            for c, (o, plan) in enumerate(zip(some, plans, strict=True)):
                constant, asks = o.loss.curvature_is_piecewise_constant, asks or plan.kind != "none"
                whole = plan.as_gram and constant and o.counts[0] == self.blocks.n_rows
                if whole and plan.kind == "rebuild":
                    same.append(c)
                    plans[c] = plan if len(same) == 1 else HessianPlan("shared")
            parts: list[Any] = [0] * len(plans)
            if asks:
                parts = [*self.blocks.sum_there(passes.curvature, self.task(some), plans)]
            for c in same[1:]:
                plans[c], parts[c] = plans[same[0]], parts[same[0]]
            jobs = list(zip(some, plans, parts, strict=True))
            several = len(jobs) > 1  # one alone has BLAS's threads
            results += in_order(function, jobs, *args) if several else [function(jobs[0], *args)]
            if not self.keeps:
                for o in some:
                    o.gram = None
        return results

    def directions(self, outputs: list[Output]) -> Array:
        """Return -H^-1 g of outputs, a column each.

        Where the curvature varies, every step has another Gram matrix. An earlier one, if there is
        any, is close enough to precondition conjugate gradients, which take a few passes.
        """
        if len(outputs) <= self.at_once and len(outputs) * self.features.width >= _CG_FROM:
            earlier = [
                isinstance(o.gram, np.ndarray) and not o.loss.curvature_is_piecewise_constant
                for o in outputs
            ]
            found = self._by_conjugate_gradients(outputs) if all(earlier) else None
            if found is not None:
                return found
        return np.stack(self.for_each(outputs, self.direction), axis=1)

    def _by_conjugate_gradients(self, outputs: list[Output]) -> Array | None:
        """Solve to two digits for all outputs at once; None if that takes too many steps."""
        task, ridge = self.task(outputs), self.lam * self.rho
        factors = [factored(o.gram, ridge, o.loss.max_curvature) for o in outputs]
        R = -np.stack([o.gradient for o in outputs], axis=1)
        D, P, before = np.zeros_like(R), np.zeros_like(R), np.ones(len(outputs))
        enough = _CG_TOL * np.linalg.norm(R, axis=0)
        for _ in range(_CG_STEPS):
            Z = np.stack([cholesky_solve(L, r) for L, r in zip(factors, R.T, strict=True)], axis=1)
            now = np.sum(R * Z, axis=0)
            P = Z + now / before * P
            HP = ridge[:, None] * P + self.blocks.sum(passes.curvature_times, task, P)
            length = now / np.maximum(np.sum(P * HP, axis=0), _TINY)
            D, R, before = D + length * P, R - length * HP, np.maximum(now, _TINY)
            if np.all(np.linalg.norm(R, axis=0) <= enough):
                for o in outputs:
                    o.history["hessian"].append("conjugate gradients")
                return D
        return None

    def direction(self, job: Job) -> Array:
        """Return -H^-1 g of one output; without curved rows, only its bias moves, if that helps."""
        o, plan, _ = job
        factor = self.factor(job)
        o.history["hessian"].append(plan.kind)
        if o.counts[0] == 0 and self.free_bias and abs(o.gradient[-1]) > _NO_SLOPE * o.scale:
            return np.append(np.zeros(self.features.size), -o.gradient[-1])
        return factor.solve(-o.gradient)

    def plan(self, o: Output, woodbury: bool = True) -> HessianPlan:
        """Choose the cheapest way to the Newton matrix by counting multiplications."""
        width, (now, entering, leaving) = self.features.width, o.counts
        if now == 0:
            return HessianPlan("none")
        rebuild = o.gram is None or not o.loss.curvature_is_piecewise_constant
        rebuild = rebuild or entering + leaving >= now or o.updates >= _REBUILD_AFTER
        rows = now if rebuild else entering + leaving
        there = on_device.stays(self.blocks.place, width)
        if woodbury and now < width and not there:  # products there cost less than to send rows
            by_gram = rows * width**2 + width**3 / 3
            if width * now**2 + now**3 / 3 < by_gram:
                return HessianPlan("woodbury")
        if rows == 0:
            return HessianPlan("none")
        kind = "rebuild" if rebuild else "update"
        return HessianPlan(kind, as_gram=there or rows > width, stays=there)

    def factor(self, job: Job) -> NewtonFactor:
        """Bring the Gram matrix of an output up to date; factor its Newton matrix."""
        o, plan, part = job
        width, Z = self.features.width, np.empty((0, self.features.width))
        if plan.kind == "rebuild":
            o.gram, o.updates = zeros((width, width), part if plan.stays else None), 0
        o.updates += plan.kind == "update"
        if plan.as_gram:
            o.gram += part
        elif part:
            Z, left = map(np.concatenate, zip(*part, strict=True))
            if plan.kind != "woodbury":
                o.gram += Z.T @ Z
                o.gram -= left.T @ left
        if plan.kind == "woodbury" or o.counts[0] == 0:
            return self._by_woodbury(np.sqrt(o.loss.max_curvature) * Z)
        return NewtonFactor(factored(o.gram, self.lam * self.rho, o.loss.max_curvature))

    def _by_woodbury(self, curved: Array) -> NewtonFactor:
        """NewtonFactor lam I + Z Z' of the curved rows; H itself where lam is lost in rounding."""
        half, mean, W, Z = np.ones(1), None, np.inf, curved
        if self.free_bias:
            root, Z = curved[:, -1], curved[:, :-1]
            mean = np.zeros(Z.shape[1])
            if len(Z):  # else the bias does not move
                W = float(root @ root)
                mean = (root @ Z) / W
                Z = Z - np.outer(root, mean)
        else:
            half = 1.0 / np.sqrt(self.rho)
            Z = Z * half
        small = Z @ Z.T
        small.flat[:: len(small) + 1] += self.lam
        try:
            return NewtonFactor(_lower(cholesky_in_place(small)), Z, self.lam, half, mean, W)
        except np.linalg.LinAlgError:
            return NewtonFactor(factored(curved.T @ curved, self.lam * self.rho))


def factored(gram: Any, ridge: Array, curvature: float = 1.0) -> Any:
    """Return L with L L' = curvature * gram + diag(ridge), where the Gram matrix is.

    If rounding makes the sum indefinite, the ridge is raised until it is positive definite.
    """
    xp, on_host = namespace(gram), isinstance(gram, np.ndarray)
    if not bool(xp.all(xp.isfinite(gram))):
        raise np.linalg.LinAlgError("Newton's matrix is not finite")
    diagonal = gram.diagonal() if on_host else xp.linalg.diagonal(gram)
    largest = curvature * float(xp.max(diagonal)) if gram.shape[0] else 0.0
    noise = _EPS * (max(largest, float(ridge.max(initial=0.0))) or 1.0)
    while True:
        H = curvature * gram
        try:
            if not on_host:
                return cholesky_lower(add_to_diagonal(H, like_rows(ridge, gram)))
            H.flat[:: len(H) + 1] += ridge
            return _lower(cholesky_in_place(H))
        except np.linalg.LinAlgError:
            if not np.isfinite(noise):
                raise
            ridge = ridge + noise
            noise *= 10


def _lower(A: Array) -> Array:
    """Put zeros above the diagonal, without a copy."""
    for i, row in enumerate(A):
        row[i + 1 :] = 0.0
    return A
