"""The error of states that do not belong together, and of files that are no state."""

from __future__ import annotations


class StateError(ValueError):
    """A state cannot be used this way; the message says why and what to do.

    Examples
    --------
    >>> from leansvm.ridge import StateError
    >>> issubclass(StateError, ValueError)
    True
    """
