"""All kernels with a name. To add one, write its file and list its class here."""

from __future__ import annotations

from typing import Any

from leansvm.kernels._function import KernelFunction
from leansvm.kernels._radial import Radial
from leansvm.kernels.chi2 import Chi2
from leansvm.kernels.cosine import Cosine
from leansvm.kernels.given import Precomputed
from leansvm.kernels.laplacian import Laplacian
from leansvm.kernels.linear import Linear
from leansvm.kernels.matern import Matern12, Matern32, Matern52
from leansvm.kernels.poly import Poly
from leansvm.kernels.rbf import Gaussian
from leansvm.kernels.sigmoid import Sigmoid

_CLASSES: tuple[type[KernelFunction], ...] = (
    Linear,
    Gaussian,
    Matern12,
    Matern32,
    Matern52,
    Laplacian,
    Poly,
    Sigmoid,
    Chi2,
    Cosine,
    Precomputed,
)
FUNCTIONS = {name: kind for kind in _CLASSES for name in (kind.name, *kind.aliases)}
KERNELS = tuple(FUNCTIONS)
PER_FEATURE = tuple(n for n, kind in FUNCTIONS.items() if kind.gamma_is == "one or per feature")
WITH_GAMMA = tuple(n for n, kind in FUNCTIONS.items() if kind.gamma_is != "unused")


def radial(name: str, D: Any) -> tuple[Any, Any]:
    """Return k and dk/dD of a radial kernel, D = sum_f gamma_f (x_f - z_f)^2.

    Parameters
    ----------
    name : {"rbf", "matern12", "matern32", "matern52"}
        Kernel.
    D : array
        Scaled squared distances, >= 0, of any array library.

    Returns
    -------
    value, slope : array
        The slope of "matern12", -e^-r / (2 r), has a pole at 0: 1e-12 is added to D under the
        root, so that the slope at 0 is -5e5. Its product with (x_f - z_f)^2 tends to 0 there.

    Examples
    --------
    >>> import numpy as np
    >>> from leansvm.kernels import radial
    >>> value, slope = radial("matern32", np.array([0.0, 1.0]))
    >>> slope
    array([-1.5       , -0.26538181])
    """
    function = FUNCTIONS[name]()
    assert isinstance(function, Radial)
    return function.value_and_slope(D)
