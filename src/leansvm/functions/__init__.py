"""Basis functions with learnable parameters; one small class per function."""

from __future__ import annotations

from typing import Any

from leansvm.functions._base import BasisFunction
from leansvm.functions._medoids import pam
from leansvm.functions._separable import SeparableFunction
from leansvm.functions.description import ReadableModel, describe, names_of_features
from leansvm.functions.rbf import RBF
from leansvm.functions.robust_rbf import RobustRBF
from leansvm.functions.simplex import Simplex

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
