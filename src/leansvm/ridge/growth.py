"""Let a basis grow: double its size until the estimated error hardly falls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from leansvm.basis.features import FeatureMap
from leansvm.solution import Solution

FIRST_SIZE = 50
_FLAT = 0.01  # twice the size has to lower the error by this share


class OnBasis(Protocol):
    """A solution on a basis of some size."""

    @property
    def features(self) -> FeatureMap:
        """The features made of the basis."""

    @property
    def solution(self) -> Solution:
        """The solution; its ``error`` is compared."""


Found = TypeVar("Found", bound=OnBasis)


def grow(solve: Callable[[int], Found], first: int, largest: int) -> Found:
    """Return ``solve(size)`` at the first size that doubling hardly improves.

    An error that is not a number is no improvement.
    """
    size = min(first, largest)
    found = solve(size)
    while size < largest and found.features.size == size:
        size = min(2 * size, largest)
        larger = solve(size)
        if not larger.solution.error <= (1.0 - _FLAT) * found.solution.error:
            break
        found = larger
    return found
