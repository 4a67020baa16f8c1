"""Thin scikit-learn classes that put kernel + basis + loss + solver together."""

from leansvm.estimators.kernel_basis import KernelBasis
from leansvm.estimators.l2svc import L2SVC
from leansvm.estimators.low_rank import LowRankLSSVC, LowRankLSSVR
from leansvm.estimators.lssvm import LSSVC, LSSVR
from leansvm.estimators.reduced import ReducedSVC, ReducedSVR
from leansvm.estimators.sparse import SparseLSSVC, SparseLSSVR

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
