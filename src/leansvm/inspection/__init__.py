"""Questions that a fit can answer about its rows and its features.

Intervals and sets are methods of the estimators: ``predict_interval`` and ``predict_set``.
"""

from leansvm.inspection.effects import Effects, effects
from leansvm.inspection.explain import Explanation, explain
from leansvm.inspection.importance import Importance, importance
from leansvm.inspection.neighbours import Neighbours, neighbours
from leansvm.inspection.rows import RowInspection, inspect_rows, novelty

__all__ = [
    "Effects",
    "Explanation",
    "Importance",
    "Neighbours",
    "RowInspection",
    "effects",
    "explain",
    "importance",
    "inspect_rows",
    "neighbours",
    "novelty",
]
