"""Paths over basis sizes, gamma and C, and validation from sums, for little more than one fit."""

from leansvm.model_selection.from_sums import (
    FoldErrors,
    LearningCurve,
    cross_val_from_sums,
    learning_curve_from_sums,
)
from leansvm.model_selection.paths import (
    BasisPath,
    CPath,
    GammaPath,
    basis_path,
    c_path,
    gamma_path,
)
from leansvm.ridge.kfold import KFoldSums

__all__ = [
    "BasisPath",
    "CPath",
    "FoldErrors",
    "GammaPath",
    "KFoldSums",
    "LearningCurve",
    "basis_path",
    "c_path",
    "cross_val_from_sums",
    "gamma_path",
    "learning_curve_from_sums",
]
