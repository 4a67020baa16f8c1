"""Kernels k(x, z): named ones, callables and precomputed matrices behind one small class.

The only place that knows ``gamma``: a number, or one value for each feature.
"""

from leansvm.kernels._clip import clipped
from leansvm.kernels._coordinates import absolute_distances, absolute_moments
from leansvm.kernels._gamma import WITH_GAMMA, resolve_gamma
from leansvm.kernels._gradients import gradients, mixed_derivatives
from leansvm.kernels._kernel import KERNELS, Kernel
from leansvm.kernels._one_row import row_form
from leansvm.kernels._radial import MATERN, RADIAL, negative_distances, radial

__all__ = [
    "KERNELS",
    "MATERN",
    "RADIAL",
    "WITH_GAMMA",
    "Kernel",
    "absolute_distances",
    "absolute_moments",
    "clipped",
    "gradients",
    "mixed_derivatives",
    "negative_distances",
    "radial",
    "resolve_gamma",
    "row_form",
]
