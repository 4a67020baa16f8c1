"""Mergeable fits: what a model needs of its rows, as a small object.

It can be added and subtracted, sent to another site and saved without pickle.
"""

from leansvm.state._errors import StateError
from leansvm.state._state import FORMAT, FitState

__all__ = ["FORMAT", "FitState", "StateError"]
