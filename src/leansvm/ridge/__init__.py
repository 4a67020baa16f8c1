"""Mergeable fits: what a model needs of its rows, as a small object.

It can be added and subtracted, sent to another site and saved without pickle.
"""

from leansvm.ridge._state import FORMAT, FitState
from leansvm.ridge._state_errors import StateError

__all__ = ["FORMAT", "FitState", "StateError"]
