"""Basis functions with learnable parameters, and the models that are made of a few of them."""

from leansvm.low_rank.description import ReadableModel, names_of_features
from leansvm.low_rank.functions import (
    FUNCTIONS,
    RBF,
    BasisFunction,
    RobustRBF,
    SeparableFunction,
    Simplex,
    get_function,
)

__all__ = [
    "FUNCTIONS",
    "RBF",
    "BasisFunction",
    "ReadableModel",
    "RobustRBF",
    "SeparableFunction",
    "Simplex",
    "get_function",
    "names_of_features",
]
