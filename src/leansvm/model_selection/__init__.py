"""Paths over basis sizes and C, and validation from sums, for little more than one fit."""

from leansvm.model_selection.from_sums import (
    FoldErrors,
    LearningCurve,
    cross_val_from_sums,
    learning_curve_from_sums,
)
from leansvm.model_selection.paths import (
    BasisPath,
    CPath,
    basis_path,
    c_path,
)
from leansvm.model_selection.threshold import tune_threshold
from leansvm.ridge.kfold import KFoldSums

__all__ = [
    "BasisPath",
    "CPath",
    "FoldErrors",
    "KFoldSums",
    "LearningCurve",
    "basis_path",
    "c_path",
    "cross_val_from_sums",
    "learning_curve_from_sums",
    "tune_threshold",
]
