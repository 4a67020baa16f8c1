"""Basis functions with learnable parameters; one small class per function."""

from __future__ import annotations

from typing import Any

from leansvm.low_rank._base import BasisFunction
from leansvm.low_rank._medoids import pam
from leansvm.low_rank.description import ReadableModel, describe, names_of_features
from leansvm.low_rank.functions import RBF, RobustRBF, SeparableFunction, Simplex

__all__ = [
    "FUNCTIONS",
    "RBF",
    "BasisFunction",
    "ReadableModel",
    "RobustRBF",
    "SeparableFunction",
    "Simplex",
    "describe",
    "get_function",
    "names_of_features",
    "pam",
]

FUNCTIONS: dict[str, type[BasisFunction]] = {kind.name: kind for kind in (RBF, RobustRBF, Simplex)}


def get_function(function: Any) -> BasisFunction:
    """Return the basis function of that name, or the instance itself.

    >>> get_function("simplex")
    Simplex()
    """
    return FUNCTIONS[function]() if isinstance(function, str) else function
