"""Kernels k(x, z): named ones, callables and precomputed matrices behind one small class.

Every kernel is one class, which knows all its formulas. Only this folder knows what ``gamma``
means: a number, or one value for each feature.
"""

from leansvm.kernels._gradients import gradients, mixed_derivatives, radial
from leansvm.kernels._kernel import (
    FUNCTIONS,
    KERNELS,
    PER_FEATURE,
    WITH_GAMMA,
    Kernel,
    resolve_gamma,
)
from leansvm.kernels.mixture import Mixture
from leansvm.linalg import clipped

__all__ = [
    "FUNCTIONS",
    "KERNELS",
    "PER_FEATURE",
    "WITH_GAMMA",
    "Kernel",
    "Mixture",
    "clipped",
    "gradients",
    "mixed_derivatives",
    "radial",
    "resolve_gamma",
]
