"""Methods that the papers compare against: sparse LS-SVMs that drop rows from the loss as well.

They solve the dual on the chosen rows alone (zhou2016, eq. (13)). The primal estimators fit all
rows with basis functions at few rows, and need far fewer rows for this.
"""

from leansvm.papers.baselines._fsa import FSALSSVC
from leansvm.papers.baselines._pruned import PrunedLSSVC
from leansvm.papers.baselines._reduced_dual import RandomReducedDualLSSVC

__all__ = ["FSALSSVC", "PrunedLSSVC", "RandomReducedDualLSSVC"]
