"""Pictures of fitted models and paths, after scikit-learn's Display convention.

Matplotlib is loaded when something is drawn (the extra ``plot``).
"""

from leansvm.plotting.effects import EffectsDisplay
from leansvm.plotting.explanation import ExplanationDisplay
from leansvm.plotting.groups import GroupErrorsDisplay
from leansvm.plotting.importance import ImportanceDisplay
from leansvm.plotting.learning_curve import LearningCurveDisplay
from leansvm.plotting.low_rank import LowRankDisplay
from leansvm.plotting.scales import FeatureScalesDisplay
from leansvm.plotting.sparsity import SparsityPathDisplay

__all__ = [
    "EffectsDisplay",
    "ExplanationDisplay",
    "FeatureScalesDisplay",
    "GroupErrorsDisplay",
    "ImportanceDisplay",
    "LearningCurveDisplay",
    "LowRankDisplay",
    "SparsityPathDisplay",
]
