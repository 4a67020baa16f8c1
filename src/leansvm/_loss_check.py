"""Whether a loss keeps its promises: derivatives, conjugate, domain and the other class attributes.

Newton's method relies on them. With a wrong domain or conjugate it still ends, but the duality gap
is wrong, so that it does not certify the solution.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_FAR = 1e4  # slack at which the derivative is compared with the domain
_STEP = 1e-6  # of the finite differences

# What Newton's method asks of a loss.
_NEEDS: tuple[str, ...] = ("value", "derivative", "second_derivative", "conjugate")
_NEEDS += ("smoothing_path", "domain", "max_curvature", "curvature_is_piecewise_constant")


def check_given(loss: Any, symmetric: bool) -> None:
    """Refuse an object that Newton's method cannot use as a loss, or not for regression."""
    missing = [name for name in _NEEDS if not hasattr(loss, name)]
    if missing:
        raise ValueError(
            f"loss={loss!r} does not work with Newton's method: it lacks {', '.join(missing)}. "
            f"Derive it from leansvm.losses.Loss, or use 'squared_hinge', 'squared', 'huber' or "
            f"'logistic'."
        )
    if isinstance(loss, type):
        raise ValueError(f"loss must be an instance, got the class {loss.__name__}: add ().")
    if symmetric and not getattr(loss, "symmetric", False):
        raise ValueError(
            f"Regression needs a loss with L(-u) = L(u), but {type(loss).__name__} has "
            f"symmetric = False: use 'huber' or 'squared'."
        )
    if not type(loss).__module__.startswith("leansvm."):
        check_loss(loss)


def check_loss(loss: Any) -> None:
    """Raise a ValueError if a loss contradicts itself at 4,001 values between -5 and 5.

    The derivatives are compared with finite differences, the conjugate with Fenchel's equality
    L(u) + L*(L'(u)) = u L'(u). The loss must be convex, and its ``domain``, ``max_curvature``,
    ``curvature_is_piecewise_constant`` and ``symmetric`` must be right. `leansvm.ReducedSVC` and
    `leansvm.ReducedSVR` call this function for every loss that you wrote.

    Parameters
    ----------
    loss : Loss
        An instance of a class derived from `leansvm.losses.Loss`.

    Examples
    --------
    >>> from leansvm.losses import SquaredHinge, check_loss
    >>> check_loss(SquaredHinge())
    >>> class Doubled(SquaredHinge):
    ...     def value(self, u):
    ...         return 2 * super().value(u)
    >>> check_loss(Doubled())
    Traceback (most recent call last):
    ...
    ValueError: Doubled: derivative(u) and the slope of value differ most at u = 5: 5 and 10.
    """
    name, most = type(loss).__name__, float(loss.max_curvature)
    u = np.linspace(-5.0, 5.0, 4001)
    sides = (_numbers(loss, "second_derivative", u + side) for side in (-2 * _STEP, 2 * _STEP))
    jumps = np.abs(np.subtract(*sides)) > 1e-3 * most  # finite differences mean nothing there
    u = u[~jumps]
    value, slope, curve = (_numbers(loss, what, u) for what in _MADE_OF_U)

    found = _rise(loss, "value", u)
    _compare(name, "derivative(u) and the slope of value", u, slope, found, 1e-6 + most * _STEP)
    found = _rise(loss, "derivative", u)
    bend = "second_derivative(u) and the slope of derivative"
    _compare(name, bend, u, curve, found, 1e-3 * max(most, 1e-3))
    if curve.min() < 0:
        at = u[curve.argmin()]
        raise ValueError(
            f"{name} is not convex: its second derivative is {curve.min():.4g} at u = {at:.4g}. "
            f"Newton's method needs a convex loss."
        )
    if curve.max() > most * (1 + 1e-9):
        at = u[curve.argmax()]
        raise ValueError(
            f"{name}: the second derivative is {curve.max():.4g} at u = {at:.4g}, but "
            f"max_curvature = {most:g}: set max_curvature to the largest value."
        )
    if loss.curvature_is_piecewise_constant and not np.isin(curve, (0.0, most)).all():
        raise ValueError(
            f"{name}: the second derivative has other values than 0 and max_curvature = {most:g}: "
            f"set curvature_is_piecewise_constant = False."
        )
    _check_domain(loss, name)
    conjugate = _numbers(loss, "conjugate", slope)
    fenchel = "value(u) + conjugate(derivative(u)) and u derivative(u)"
    _compare(name, fenchel, u, value + conjugate, u * slope, 1e-9 * (1.0 + np.abs(value).max()))
    if getattr(loss, "symmetric", False):
        mirrored = _numbers(loss, "value", -u)
        _compare(name, "symmetric = True, but value(u) and value(-u)", u, value, mirrored, 1e-9)


_MADE_OF_U = ("value", "derivative", "second_derivative")


def _numbers(loss: Any, what: str, u: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a method's values; refuse those of another shape."""
    found = np.asarray(getattr(loss, what)(u))
    if found.shape != u.shape:
        raise ValueError(
            f"{type(loss).__name__}.{what} must return one number for every slack: got shape "
            f"{found.shape} for {u.shape}."
        )
    return found.astype(np.float64)


def _rise(loss: Any, what: str, u: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the slope of a method by central differences."""
    above, below = u + _STEP, u - _STEP
    return (_numbers(loss, what, above) - _numbers(loss, what, below)) / (above - below)


def _compare(
    name: str,
    what: str,
    u: NDArray[np.float64],
    one: NDArray[np.float64],
    other: NDArray[np.float64],
    allowed: float,
) -> None:
    """Raise an error if two curves differ; not-a-number and infinity count as a difference."""
    apart = np.where(np.isfinite(one) & np.isfinite(other), np.abs(one - other), np.inf)
    if apart.max() > allowed:
        k = int(apart.argmax())
        raise ValueError(
            f"{name}: {what} differ most at u = {u[k]:.4g}: {one[k]:.4g} and {other[k]:.4g}."
        )


def _check_domain(loss: Any, name: str) -> None:
    """Compare the derivative far out with the domain, beyond which L* is infinite."""
    low, high = loss.domain
    far = np.array([-_FAR, -5.0, 5.0, _FAR])
    slope = _numbers(loss, "derivative", far)
    outside = (slope < low - 1e-9) | (slope > high + 1e-9)
    if outside.any():
        k = int(outside.argmax())
        raise ValueError(
            f"{name}: the derivative is {slope[k]:.4g} at u = {far[k]:g}, outside "
            f"domain = ({low:g}, {high:g}): set domain to the range of the derivative."
        )
