"""Seconds by phase of a fit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Phases:
    """Adds up the time spent in named parts of a fit.

    >>> phases = Phases()
    >>> with phases("solve"):
    ...     pass
    >>> list(phases.seconds)
    ['solve']
    """

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Add the time spent inside to ``name``."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + spent
