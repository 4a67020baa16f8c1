"""Ways to choose basis points; each returns row numbers in order."""

from leansvm.basis.backfitting import Backfitting
from leansvm.basis.csi import CSI
from leansvm.basis.entropy import RenyiEntropy
from leansvm.basis.forward import ForwardSelection
from leansvm.basis.medoids import KMedoids
from leansvm.basis.pivoted import PivotedCholesky
from leansvm.basis.random_pivoted import RandomPivotedCholesky
from leansvm.basis.selector import Basis, BasisSelector, Fit, RandomBasis
from leansvm.basis.sparse_greedy import SparseGreedy

__all__ = [
    "CSI",
    "Backfitting",
    "Basis",
    "BasisSelector",
    "Fit",
    "ForwardSelection",
    "KMedoids",
    "PivotedCholesky",
    "RandomBasis",
    "RandomPivotedCholesky",
    "RenyiEntropy",
    "SparseGreedy",
]
