"""Phases of a fit: their seconds, how far the fit is, and when its time is up.

Long loops call `step` between two steps, and `out_of_time` before a step that can be skipped. Both
use the `Watch` of the running fit; without one they do nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass
class Watch:
    """The clock of one fit."""

    limit: float = math.inf  # seconds after which learning and growing end with the best so far
    say: Callable[[str], None] | None = None  # gets a line for every phase: ``verbose``
    tell: Callable[[float], None] | None = None  # gets the share that is done: callbacks
    plan: dict[str, float] = field(default_factory=dict)  # expected work by phase, in their order
    cut: list[str] = field(default_factory=list)  # phases that the limit ended early
    stopped: list[str] = field(default_factory=list)  # phases that a callback ended
    start: float = field(default_factory=time.perf_counter)
    inside: list[str] = field(default_factory=list)  # phases, the outermost first
    done: float = 0.0  # work of the phases that ended
    steps: float = 0.0  # of the present phase
    # True once `step` was told ``reached``; ``weight`` is ignored from then on
    knows: bool = False
    asked: float = 0.0  # seconds until the last call of `out_of_time`, or the begin of the phase

    @property
    def elapsed(self) -> float:
        """Seconds since the fit began."""
        return time.perf_counter() - self.start

    @property
    def share(self) -> float:
        """Share of the planned work that is done; 0 if nothing is planned."""
        now = self.plan.get(self.inside[-1], 0.0) if self.inside else 0.0
        # the number of steps of a phase is unknown: each step covers less than the previous one
        done = self.done + now * self.steps / (1.0 + self.steps)
        return done / sum(self.plan.values()) if self.plan else 0.0


# the watch that hears of all that happens: `leansvm.estimators.machine.running` sets it
watching: ContextVar[Watch | None] = ContextVar("watching", default=None)


def step(weight: float, reached: float | None = None) -> None:
    """Tell that a step is done; a phase is about half done when its weights add up to 1.

    If it is known how much of the phase is done, pass it as ``reached`` (below 1).
    """
    watch = watching.get()
    if watch is None:
        return
    if reached is not None:
        watch.steps, watch.knows = reached / (1.0 - reached), True
    watch.steps += 0.0 if watch.knows else weight
    if watch.tell is not None and watch.plan:
        watch.tell(min(watch.share, 1.0))


def out_of_time(share: float = 1.0, growth: float = 1.0) -> bool:
    """Whether there is no time for a step that takes ``growth`` times as long as the last.

    This part of the fit may use a ``share`` of the time limit. The last step began at the previous
    call of this function, or with the phase.
    """
    watch = watching.get()
    if watch is None or watch.limit == math.inf:
        return False
    now = time.perf_counter() - watch.start
    last, watch.asked = now - watch.asked, now
    late = now + growth * last > share * watch.limit
    if late and watch.inside and watch.inside[0] not in watch.cut:
        watch.cut.append(watch.inside[0])
    return late


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
        start, watch = time.perf_counter(), watching.get()
        if watch is not None:
            watch.inside.append(name)
            watch.steps, watch.knows, watch.asked = 0.0, False, start - watch.start
            if name in watch.plan:  # phases planned before it are over, or were skipped
                names = list(watch.plan)
                before = sum(map(watch.plan.__getitem__, names[: names.index(name)]))
                watch.done = max(watch.done, before)
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + spent
            if watch is not None:
                watch.inside.pop()
                watch.steps, watch.knows = 0.0, False
                watch.done += watch.plan.get(name, 0.0)
                step(0.0)
                if watch.say is not None and not watch.inside and spent >= 0.005:
                    known = watch.share > 0.1 and not watch.cut
                    left = watch.elapsed * (1.0 / watch.share - 1.0) if known else 0.0
                    rest = f", about {left:.0f} s to go" if left > 1 else ""
                    watch.say(f"{name} {spent:.2f} s{rest}")
