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
from leansvm._array_api import like_rows, namespace, zeros
from leansvm._parallel import in_order
from leansvm.basis import on_device
from leansvm.basis.features import FeatureMap
from leansvm.linalg import cholesky_in_place, cholesky_solve
from leansvm.losses import Loss, Squared
from leansvm.newton import passes
from leansvm.newton.passes import HessianPlan, NewtonPass
from leansvm.rows import RowBlocks

Array = NDArray[np.float64]

_REBUILD_AFTER = 20  # updates of a Gram matrix, whose rounding errors add up
_CG_FROM = 1000  # columns of all outputs; fewer, and a new Gram matrix costs less
_CG_STEPS, _CG_TOL = 30, 1e-2  # of conjugate gradients, and the share of the gradient they leave
_NO_SLOPE = 1e-8  # of the gradient at zero: without curved rows, the bias has nothing to gain
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
    sums: tuple[float, Array] | None = None  # losses and their slopes where it is: free of C
    residual: float = np.inf  # gradient norm relative to it
    gap: float = np.inf  # relative duality gap
    lowest: tuple[float, float] = (np.inf, np.inf)  # objective and residual at this loss and C
    idle: int = 0  # steps since one of them fell notably
    n_iter: int = 0
    state: str = "running"  # "converged", "stalled", "stopped"
    history: dict[str, list[Any]] = field(default_factory=no_steps)


Job = tuple[Output, HessianPlan, Any]  # what the blocks sent for this plan


@dataclass
class NewtonMatrices:
    """Gram matrices of all outputs, and the directions that come from them."""

    blocks: RowBlocks
    features: FeatureMap
    margin: bool  # classification
    rho: Array  # regulariser of every feature; 0 for a free bias
    free_bias: bool
    at_once: int = 1  # outputs whose matrices there is room for
    keeps: bool = True  # Gram matrices of all outputs from one step to the next
    rows: int = -1  # of positive weight, where outputs may share a Gram matrix
    centre: Array | None = None  # of the targets, which a free bias takes up

    def task(self, outputs: list[Output]) -> NewtonPass:
        """Return what passes over the rows need to know of these outputs."""
        columns = tuple((o.number, o.loss) for o in outputs)
        return NewtonPass(self.features, self.margin, columns, self.centre)

    def for_each(
        self, outputs: list[Output], function: Callable[..., Any], *args: Any
    ) -> list[Any]:
        """Return ``function((output, its plan, its rows), *args)``, several outputs at a time.

        Each has a thread to itself; matrices of all outputs need not fit. What the plans ask of
        the rows takes one pass. Outputs of which every row is curved, as at zero, have one Gram
        matrix: it is sent once.
        """
        results: list[Any] = []
        for start in range(0, len(outputs), self.at_once):
            some, plans, same = outputs[start : start + self.at_once], [], []
            wanted = False
            for c, o in enumerate(some):
                plan, constant = self.plan(o), o.loss.curvature_is_piecewise_constant
                wanted |= plan.kind != "none"
                whole = plan.as_gram and constant and o.counts[0] == self.rows
                if whole and plan.kind == "rebuild":
                    same.append(c)
                    plan = plan if len(same) == 1 else HessianPlan("shared")
                plans.append(plan)
            parts: list[Any] = [None] * len(plans)
            if wanted:
                parts = self.blocks.fold(_both, passes.curvature, self.task(some), plans)
            for c in same[1:]:
                plans[c], parts[c] = plans[same[0]], parts[same[0]]
            jobs = list(zip(some, plans, parts, strict=True))
            if len(jobs) == 1:
                results.append(function(jobs[0], *args))
            else:
                results.extend(in_order(function, jobs, *args))
            if not self.keeps:
                for o in some:
                    o.gram = None
        return results

    def directions(self, outputs: list[Output], lam: float) -> Array:
        """Return -H^-1 g of outputs, a column each.

        Where the curvature varies, every step has another Gram matrix. An earlier one, if there is
        any, is close enough to precondition conjugate gradients, which take a few passes.
        """
        there_is_room = len(outputs) <= self.at_once  # for the factors of all
        many = len(outputs) * self.features.width >= _CG_FROM
        if there_is_room and many and all(_has_earlier_gram(o) for o in outputs):
            found = self._by_conjugate_gradients(outputs, lam)
            if found is not None:
                return found
        return np.stack(self.for_each(outputs, self.direction, lam), axis=1)

    def _by_conjugate_gradients(self, outputs: list[Output], lam: float) -> Array | None:
        """Solve to two digits for all outputs at once; None if that takes too many steps."""
        task, ridge = self.task(outputs), lam * self.rho
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

    def direction(self, job: Job, lam: float) -> Array:
        """Return -H^-1 g of one output; brings its Gram matrix up to date."""
        o, plan, _ = job
        Z = self.bring_up_to_date(job)
        o.history["hessian"].append(plan.kind)
        if o.counts[0] == 0:
            return self._without_curvature(o, lam)
        if plan.kind == "woodbury":
            return self._by_woodbury(o, Z, lam)
        L = factored(o.gram, lam * self.rho, o.loss.max_curvature)
        solve = cholesky_solve if isinstance(L, np.ndarray) else on_device.solve_factored
        return -solve(L, o.gradient)

    def plan(self, o: Output, woodbury: bool = True) -> HessianPlan:
        """Choose the cheapest way to the Newton matrix by counting multiplications."""
        width, (now, entering, leaving) = self.features.width, o.counts
        if now == 0:
            return HessianPlan("none")
        constant = o.loss.curvature_is_piecewise_constant
        rebuild = o.gram is None or not constant
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

    def bring_up_to_date(self, job: Job) -> Array:
        """Bring a Gram matrix up to date; return the curved rows where Woodbury wants them."""
        o, plan, part = job
        if plan.kind == "rebuild":
            o.gram, o.updates = zeros((self.features.width,) * 2, part if plan.stays else None), 0
        o.updates += plan.kind == "update"
        if part is None:
            return np.empty((0, self.features.width))
        if plan.as_gram:
            assert o.gram is not None
            o.gram += part
            return np.empty((0, self.features.width))
        plus, minus = np.concatenate(part[0]), np.concatenate(part[1])
        if plan.kind != "woodbury":
            assert o.gram is not None
            o.gram += plus.T @ plus
            o.gram -= minus.T @ minus
        return plus

    def _by_woodbury(self, o: Output, Z: Array, lam: float) -> Array:
        """Solve with the curved rows Z: (28) in the variables sqrt(rho) theta."""
        Z, v = np.sqrt(o.loss.max_curvature) * Z, -o.gradient
        if self.free_bias:  # eliminate b: its row of the system is W b + (Phi'w)'theta
            Z, mean, W = without_bias(Z)
            theta = _shrunk(Z, v[:-1] - mean * v[-1], lam)
            return np.append(theta, v[-1] / W - mean @ theta)
        half = 1.0 / np.sqrt(self.rho)
        return np.asarray(half * _shrunk(Z * half, half * v, lam))

    def _without_curvature(self, o: Output, lam: float) -> Array:
        """No row is curved: the free bias alone if it can gain, else the penalised part."""
        g = o.gradient
        if self.free_bias and abs(g[-1]) > _NO_SLOPE * o.scale:
            return np.append(np.zeros(len(g) - 1), -g[-1])
        return np.where(self.rho > 0, -g / np.maximum(lam * self.rho, _TINY), 0.0)


def _has_earlier_gram(o: Output) -> bool:
    return isinstance(o.gram, np.ndarray) and not o.loss.curvature_is_piecewise_constant


def without_bias(Z: Array) -> tuple[Array, Array, float]:
    """Eliminate the last column, a free bias: return centred rows, their mean and its weight."""
    root = Z[:, -1]
    W = float(root @ root)
    mean = (root @ Z[:, :-1]) / W
    return Z[:, :-1] - np.outer(root, mean), mean, W


def factored(gram: Any, ridge: Array, curvature: float = 1.0) -> Any:
    """Return L with L L' = curvature * gram + diag(ridge), where the Gram matrix is.

    What the sum lacks to be positive definite is rounding: the ridge is raised until it is. On the
    host the upper triangle of L is not set to zero.
    """
    xp, on_host = namespace(gram), isinstance(gram, np.ndarray)
    if not bool(xp.all(xp.isfinite(gram))):
        raise np.linalg.LinAlgError("Newton's matrix is not finite")
    diagonal = gram.diagonal() if on_host else xp.linalg.diagonal(gram)
    largest = curvature * float(xp.max(diagonal)) if gram.shape[0] else 0.0
    noise = _EPS * max(largest, float(ridge.max(initial=0.0)))
    while True:
        H = curvature * gram
        try:
            if not on_host:
                return cholesky_lower(add_to_diagonal(H, like_rows(ridge, gram)))
            H.flat[:: len(H) + 1] += ridge
            return cholesky_in_place(H)
        except np.linalg.LinAlgError:
            if not np.isfinite(noise):
                raise
            ridge = ridge + noise
            noise *= 10


def _shrunk(Z: Array, v: Array, lam: float) -> Array:
    """Return (lam I + Z'Z)^-1 v by a system of the size of Z's rows.

    Where lam is lost in the rounding of that one, by the system of the size of v.
    """
    small = Z @ Z.T
    small.flat[:: len(small) + 1] += lam
    try:
        inner = cholesky_solve(cholesky_in_place(small), Z @ v)
    except np.linalg.LinAlgError:
        return cholesky_solve(factored(Z.T @ Z, np.full(len(v), lam)), v)
    return np.asarray((v - Z.T @ inner) / lam)


def _both(a: list[Any], b: list[Any]) -> list[Any]:
    """Combine what `curvature` returns of two blocks: Gram matrices are added, rows listed."""
    return [
        None
        if first is None
        else tuple(rows + more for rows, more in zip(first, second, strict=True))
        if isinstance(first, tuple)
        else first + second
        for first, second in zip(a, b, strict=True)
    ]
