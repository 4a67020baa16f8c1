"""Thin scikit-learn classes that put kernel + basis + loss + solver together."""

from leansvm.estimators._kernel_basis import KernelBasis
from leansvm.estimators._l2svc import L2SVC
from leansvm.estimators._low_rank import LowRankLSSVC, LowRankLSSVR
from leansvm.estimators._lssvm import LSSVC, LSSVR
from leansvm.estimators._reduced import ReducedSVC, ReducedSVR
from leansvm.estimators._sparse import SparseLSSVC, SparseLSSVR

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
]
