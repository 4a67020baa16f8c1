"""Losses L(u) of the slack u: zhou2013, Table 1 (smooth rows) and §4.2, plus the symmetric Huber.

Classification: u = 1 - y f(x); regression: u = y - f(x). Each loss gives L, L', L'' (what Newton
needs) and the conjugate L*(v) = sup_u {uv - L(u)} (what a duality gap needs), element by element.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import numpy as np

from leansvm._array_api import foreign_namespace
from leansvm._loss_check import check_given, check_loss

__all__ = [
    "Huber",
    "Logistic",
    "Loss",
    "Squared",
    "SquaredHinge",
    "SymmetricHuber",
    "check_loss",
    "floating",
    "get_loss",
    "smooth_loss",
]

Array = Any  # numpy, or any array-API array (torch, CuPy, array_api_strict)
_UNWRITTEN = (
    "{0}.{1} is not written: a loss needs value, derivative, second_derivative and conjugate."
)


class Loss:
    """What solvers may ask of a loss.

    To write your own, derive from this class and define `value`, `derivative`,
    `second_derivative` and `conjugate`. Set the class attributes whose defaults are wrong for it;
    `check_loss` says what is wrong. `floating` gives the array library of an argument. Methods
    keep shape, array namespace and floating dtype; NumPy integers become float64.
    """

    name: str  #: The name that `get_loss` takes, or any other.
    symmetric: bool = False  #: Whether L(-u) = L(u), as regression needs.
    domain: tuple[float, float] = (0.0, 1.0)  #: Range of L'; L* is finite there.
    max_curvature: float = 1.0  #: The largest value of L''.
    curvature_is_piecewise_constant: bool = True  #: Whether L'' is always 0 or `max_curvature`.

    def value(self, u: Array) -> Array:
        """Return L(u)."""
        raise NotImplementedError(_UNWRITTEN.format(type(self).__name__, "value"))

    def derivative(self, u: Array) -> Array:
        """Return L'(u)."""
        raise NotImplementedError(_UNWRITTEN.format(type(self).__name__, "derivative"))

    def second_derivative(self, u: Array) -> Array:
        """Return L''(u); at a breakpoint, the one-sided value that the class names."""
        raise NotImplementedError(_UNWRITTEN.format(type(self).__name__, "second_derivative"))

    def conjugate(self, v: Array) -> Array:
        """Return L*(v), and +inf outside `domain`, however close to it.

        Newton's method asks only for values inside `domain`.
        """
        raise NotImplementedError(_UNWRITTEN.format(type(self).__name__, "conjugate"))

    def smoothing_path(self) -> tuple[Loss, ...]:
        """Return losses to solve one after another, each from the last solution; ends with self."""
        return (self,)

    def smoothed_over(self, width: float) -> Loss:
        """Return a smoother loss, curved over this length of u; self if it is smooth enough."""
        return self


class ClippedQuadratic(Loss):
    """u²/2 where u is in `domain`, straight lines beyond: L' is u clipped, L*(v) = v²/2."""

    def value(self, u: Array) -> Array:
        """Return L(u)."""
        xp, u = floating(u)
        w = xp.clip(u, *self.domain)
        return 0.5 * w * w + w * (u - w)  # = u w - L*(w) at w = L'(u)

    def derivative(self, u: Array) -> Array:
        """Return L'(u)."""
        xp, u = floating(u)
        return xp.clip(u, *self.domain)

    def second_derivative(self, u: Array) -> Array:
        """Return L''(u), 0 at the ends of `domain`."""
        xp, u = floating(u)
        return xp.where((u > self.domain[0]) & (u < self.domain[1]), 1.0, xp.zeros_like(u))

    def conjugate(self, v: Array) -> Array:
        """Return L*(v), +inf outside `domain`."""
        xp, v = floating(v)
        lo, hi = self.domain
        w = xp.clip(v, lo, hi)
        return xp.where((v < lo) | (v > hi), math.inf, 0.5 * w * w)


class Squared(ClippedQuadratic):
    """Least squares: L(u) = u²/2, L*(v) = v²/2.

    Examples
    --------
    >>> Squared().value([-2.0, 1.0]).tolist()
    [2.0, 0.5]
    """

    name = "squared"
    symmetric = True
    domain = (-math.inf, math.inf)


class SquaredHinge(ClippedQuadratic):
    """Squared hinge: L(u) = max(0, u)²/2, L*(v) = v²/2 for v >= 0; L''(0) = 0.

    Examples
    --------
    >>> SquaredHinge().value([-2.0, 1.0]).tolist()
    [0.0, 0.5]
    """

    name = "squared_hinge"
    domain = (0.0, math.inf)


class SymmetricHuber(ClippedQuadratic):
    """Huber's loss for regression: u²/2 for |u| <= delta, delta (|u| - delta/2) beyond.

    L*(v) = v²/2 for |v| <= delta; L''(±delta) = 0.

    Parameters
    ----------
    delta : float, default=1.35
        Residual where the linear part starts, > 0, in units of the target.

    Examples
    --------
    >>> SymmetricHuber(delta=1.0).value([-2.0, 1.0]).tolist()
    [1.5, 0.5]
    """

    name = "huber"
    symmetric = True

    def __init__(self, delta: float = 1.35) -> None:
        self.delta = _positive("delta", delta)
        self.domain = (-self.delta, self.delta)


class Huber(Loss):
    """One-sided Huber: max(0, u) for |u| > delta, (u + delta)²/(4 delta) for |u| <= delta.

    L*(v) = delta v (v - 1) on [0, 1]; L''(±delta) = 1/(2 delta); L <= max(0, u) + delta/4.

    Parameters
    ----------
    delta : float, default=1e-4
        Half-width of the quadratic zone, > 0; the default is the last value zhou2013 uses.

    Examples
    --------
    >>> Huber(delta=1.0).value([-2.0, 0.0, 2.0]).tolist()
    [0.0, 0.25, 2.0]
    """

    name = "huber"

    def __init__(self, delta: float = 1e-4) -> None:
        self.delta = _positive("delta", delta)
        self.max_curvature = 0.5 / self.delta

    def value(self, u: Array) -> Array:
        """Return L(u)."""
        xp, u = floating(u)
        # (u + delta)²/(4 delta) = max(0, u) + (delta - |u|)²/(4 delta)
        gap = xp.clip(self.delta - abs(u), 0.0, None)
        return xp.clip(u, 0.0, None) + gap * (gap / (4.0 * self.delta))

    def derivative(self, u: Array) -> Array:
        """Return L'(u)."""
        xp, u = floating(u)
        return (xp.clip(u, -self.delta, self.delta) + self.delta) / (2.0 * self.delta)

    def second_derivative(self, u: Array) -> Array:
        """Return L''(u), 1/(2 delta) for |u| <= delta."""
        xp, u = floating(u)
        return xp.where(abs(u) <= self.delta, self.max_curvature, xp.zeros_like(u))

    def conjugate(self, v: Array) -> Array:
        """Return L*(v), +inf outside [0, 1]."""
        xp, v = floating(v)
        w = xp.clip(v, 0.0, 1.0)
        return xp.where((v < 0.0) | (v > 1.0), math.inf, self.delta * w * (w - 1.0))

    def smoothed_over(self, width: float) -> Huber:
        """Return the loss with a quadratic zone of at least this half-width."""
        return self if width <= self.delta else Huber(width)

    def smoothing_path(self) -> tuple[Huber, ...]:
        """Return delta = 1, 0.1, ... down to this one (zhou2013 §4.2.3)."""
        return (*(Huber(10.0**-k) for k in range(9) if 10.0**-k > self.delta), self)


class Logistic(Loss):
    """Logistic: L(u) = log(1 + exp(p (u - 1 + margin)))/p.

    ``margin=1`` gives a smooth hinge, L <= max(0, u) + log(2)/p (zhou2013). ``margin=0`` with p = 1
    gives the loss of logistic regression, log(1 + exp(-y f)), for which f are log odds.
    L*(v) = (v log v + (1 - v) log(1 - v))/p + (1 - margin) v on [0, 1], with 0 log 0 = 0.

    Parameters
    ----------
    p : float, default=1e4
        Sharpness, > 0; the default is the last value zhou2013 uses.
    margin : float, default=1.0
        Value of y f at the middle of the bend.

    Examples
    --------
    >>> Logistic(p=1.0).derivative([-1e4, 0.0, 1e4]).tolist()
    [0.0, 0.5, 1.0]
    """

    name = "logistic"
    curvature_is_piecewise_constant = False
    margin: float = 1.0

    def __init__(self, p: float = 1e4, margin: float = 1.0) -> None:
        self.p = _positive("p", p)
        self.margin = float(margin)
        self.max_curvature = 0.25 * self.p

    def value(self, u: Array) -> Array:
        """Return L(u)."""
        xp, u = self._bent(u)
        # log(1 + exp(p u)) = p max(0, u) + log(1 + exp(-p|u|))
        return xp.clip(u, 0.0, None) + xp.log1p(xp.exp(-self.p * abs(u))) / self.p

    def derivative(self, u: Array) -> Array:
        """Return L'(u)."""
        xp, u = self._bent(u)
        e = xp.exp(-self.p * abs(u))
        return xp.where(u < 0, e, 1.0) / (1.0 + e)

    def second_derivative(self, u: Array) -> Array:
        """Return L''(u)."""
        xp, u = self._bent(u)
        e = xp.exp(-self.p * abs(u))
        return self.p * e / (1.0 + e) ** 2

    def conjugate(self, v: Array) -> Array:
        """Return L*(v), +inf outside [0, 1]."""
        xp, v = floating(v)
        w = xp.clip(v, 0.0, 1.0)
        entropy = sum(x * xp.log(xp.where(x > 0, x, 1.0)) for x in (w, 1.0 - w))
        conjugate = entropy / self.p + (1.0 - self.margin) * w
        return xp.where((v < 0.0) | (v > 1.0), math.inf, conjugate)

    def log_odds(self, f: Array) -> Array:
        """Return log(q / (1 - q)), q the probability of +1 at which f has the least expected loss.

        At this f, q L'(1 - f) = (1 - q) L'(1 + f).

        Examples
        --------
        >>> Logistic(p=1.0).log_odds([-1.0, 0.0, 1.0]).round(3).tolist()
        [-0.566, 0.0, 0.566]
        """
        _, f = floating(f)
        above, below = self.p * (f - self.margin), -self.p * (f + self.margin)
        return (np.logaddexp(0.0, above) - np.logaddexp(0.0, below)).astype(f.dtype)

    def smoothed_over(self, width: float) -> Logistic:
        """Return the loss with a sharpness of at most 2 / width, as curved as Huber's."""
        return self if self.p * width <= 2.0 else Logistic(2.0 / width, self.margin)

    def smoothing_path(self) -> tuple[Logistic, ...]:
        """Return p = 10, 100, ... up to this one (zhou2013 §4.2.4)."""
        sharper = (Logistic(10.0**k, self.margin) for k in range(1, 9) if 10.0**k < self.p)
        return (*sharper, self)

    def _bent(self, u: Array) -> tuple[Any, Array]:
        """Return the namespace of u, and how far u is beyond the middle of the bend."""
        xp, u = floating(u)
        return xp, u if self.margin == 1.0 else u - (1.0 - self.margin)


_LOSSES: dict[str, dict[str, Callable[..., Loss]]] = {
    "classification": {c.name: c for c in (SquaredHinge, Squared, Huber, Logistic)},
    "regression": {c.name: c for c in (SymmetricHuber, Squared)},
}


def get_loss(
    name: str, task: str = "classification", *, delta: float | None = None, p: float | None = None
) -> Loss:
    """Return a loss by name.

    Parameters
    ----------
    name : {"squared", "squared_hinge", "huber", "logistic"}
        For regression only "squared" and "huber": the others do not penalise u < 0.
    task : {"classification", "regression"}, default="classification"
        Decides whether "huber" is :class:`Huber` or :class:`SymmetricHuber`.
    delta, p : float, optional
        Parameter of "huber" and of "logistic", > 0; the other losses ignore it.
    """
    if task not in sorted(_LOSSES):
        raise ValueError(f"task must be one of {sorted(_LOSSES)}, got {task!r}")
    if name not in (names := sorted(_LOSSES[task])):
        raise ValueError(f"loss must be one of {names} for {task}, got {name!r}")
    parameter = {"huber": delta, "logistic": p}.get(name)
    return _LOSSES[task][name](*(() if parameter is None else (parameter,)))


# Losses without a second derivative, and what stands for them.
_KINKED = {
    "hinge": "'huber' (delta) or 'logistic' (p)",
    "absolute": "'huber' with a small delta",
    "epsilon_insensitive": "'huber'",
}


def smooth_loss(
    loss: str | Loss, margin: bool, delta: float | None, p: float | None, least: float = 0.0
) -> Loss:
    """Return the loss of that name, or the given one; refuse what Newton's method cannot use.

    In classification ``delta=None`` of "huber" is 1e-4 or, if that is larger, ``least``; ``p=None``
    of "logistic" is logistic regression's loss.
    """
    task = "classification" if margin else "regression"
    if not isinstance(loss, str):
        check_given(loss, symmetric=not margin)
        return loss
    if loss in _KINKED:
        raise ValueError(
            f"loss={loss!r} does not work with Newton's method: it lacks a second derivative. "
            f"Use {_KINKED[loss]} instead, which approximates it as closely as you like."
        )
    if loss not in _LOSSES[task]:
        names = ", ".join(map(repr, _LOSSES[task]))
        raise ValueError(f"loss must be one of {names} or a Loss, got {loss!r}.")
    if margin and loss == "logistic" and p is None:
        return Logistic(1.0, margin=0.0)
    if margin and delta is None:
        delta = max(1e-4, least)
    return get_loss(loss, task, delta=delta, p=p)


def _positive(name: str, value: float) -> float:
    """Return `value` as a Python float (so float32 arrays stay float32) if it is > 0."""
    if not isinstance(value, Real) or not 0 < float(value) < math.inf:
        raise ValueError(f"{name} must be a finite number > 0, got {value!r}")
    return float(value)


def floating(u: Array) -> tuple[Any, Array]:
    """Return the namespace of `u`, and `u` as an array of floating-point numbers.

    Examples
    --------
    >>> xp, u = floating([1, 2])
    >>> xp.sqrt(u).round(2).tolist()
    [1.0, 1.41]
    """
    on_host = isinstance(u, np.ndarray | list | tuple)
    if not on_host and (xp := foreign_namespace(u)) is not None:
        return xp, u
    u = np.asarray(u)
    return np, u if np.issubdtype(u.dtype, np.floating) else u.astype(np.float64)
