"""Least-squares and reduced-basis kernel machines behind scikit-learn's API."""

from leansvm._device import to_device, to_numpy
from leansvm._version import __version__
from leansvm.blocks import open_dataset
from leansvm.estimators import (
    L2SVC,
    LSSVC,
    LSSVR,
    KernelBasis,
    LowRankLSSVC,
    LowRankLSSVR,
    ReducedSVC,
    ReducedSVR,
    SparseLSSVC,
    SparseLSSVR,
)

__all__ = [
    "L2SVC",
    "LSSVC",
    "LSSVR",
    "KernelBasis",
    "LowRankLSSVC",
    "LowRankLSSVR",
    "ReducedSVC",
    "ReducedSVR",
    "SparseLSSVC",
    "SparseLSSVR",
    "__version__",
    "open_dataset",
    "to_device",
    "to_numpy",
]
