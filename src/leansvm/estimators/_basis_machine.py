"""What estimators on a chosen basis share: the parameters ``basis``, ``n_basis``, ``select_on``."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any, ClassVar, TypeVar

from sklearn.utils._param_validation import Interval, StrOptions

from leansvm.basis import BasisSelector
from leansvm.basis.choose import FIRST_SIZE, basis_size, grows
from leansvm.estimators._base import KernelMachine

_FLAT = 0.01  # n_basis="auto" stops where doubling improves the criterion by less

Fitted = TypeVar("Fitted")


class BasisMachine(KernelMachine):
    """Parameters of the basis, and its size."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **KernelMachine._parameter_constraints,
        "basis": [str, BasisSelector, "array-like"],
        "n_basis": [
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, 1, closed="neither"),
            StrOptions({"auto"}),
        ],
        "select_on": [
            StrOptions({"auto", "all"}),
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0, 1, closed="neither"),
        ],
        "random_state": ["random_state"],
    }

    def _is_auto(self, selector: Any) -> bool:
        return grows(selector, self.n_basis)

    def _size(self, selector: Any, n_rows: int) -> int:
        """Return the number of basis points; the largest that "auto" may try."""
        return basis_size(selector, self.n_basis, n_rows)


def grow(
    solve: Callable[[int], Fitted],
    largest: int,
    size_of: Callable[[Fitted], int],
    error_of: Callable[[Fitted], float],
    first: int = FIRST_SIZE,
) -> Fitted:
    """Double the basis until the estimated error hardly falls."""
    size = min(first, largest)
    fitted = solve(size)
    while size < largest and size_of(fitted) == size:
        size = min(2 * size, largest)
        larger = solve(size)
        if error_of(larger) > (1.0 - _FLAT) * error_of(fitted):
            break
        fitted = larger
    return fitted
