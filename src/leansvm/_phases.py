"""Phases of a fit: their seconds, how far the fit is, and when its time is up.

Long loops call `step` between two steps, and `out_of_time` before one that can be left out. Both
ask the `Watch` of the fit that runs; without one they do nothing.
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
    """The clock of one fit.

    Parameters
    ----------
    limit : float
        Seconds after which learning and growing end with the best so far.
    say : callable, optional
        Gets a line for every phase: ``verbose``.
    tell : callable, optional
        Gets the share of the fit that is done: callbacks.
    """

    limit: float = math.inf
    say: Callable[[str], None] | None = None
    tell: Callable[[float], None] | None = None
    plan: dict[str, float] = field(default_factory=dict)  # expected work by phase, in their order
    cut: list[str] = field(default_factory=list)  # phases that ended early
    start: float = field(default_factory=time.perf_counter)
    inside: list[str] = field(default_factory=list)  # phases, the outermost first
    done: float = 0.0  # work of the phases that ended
    steps: float = 0.0  # of the present phase
    knows: bool = False  # whether that is told by `reach`, and steps do not count
    asked: float = 0.0  # elapsed seconds at the last `out_of_time`

    @property
    def elapsed(self) -> float:
        """Seconds since the fit began."""
        return time.perf_counter() - self.start

    @property
    def share(self) -> float:
        """Share of the planned work that is done; 0 where nothing is planned."""
        now = self.plan.get(self.inside[-1], 0.0) if self.inside else 0.0
        # how many steps a phase takes is not known: each covers less than the one before
        done = self.done + now * self.steps / (1.0 + self.steps)
        return done / sum(self.plan.values()) if self.plan else 0.0

    def begin(self, name: str) -> None:
        """Begin a phase; those planned before it are over, or do not come."""
        self.inside.append(name)
        self.steps, self.knows, self.asked = 0.0, False, self.elapsed
        if name in self.plan:
            names = list(self.plan)
            before = sum(self.plan[other] for other in names[: names.index(name)])
            self.done = max(self.done, before)

    def end(self, seconds: float) -> None:
        """End the innermost phase; say what took how long, and how long the rest may take."""
        name = self.inside.pop()
        self.steps, self.knows, self.done = 0.0, False, self.done + self.plan.get(name, 0.0)
        self.step(0.0)
        if self.say is not None and not self.inside and seconds >= 0.005:
            known = self.share > 0.1 and not self.cut
            left = self.elapsed * (1.0 / self.share - 1.0) if known else 0.0
            rest = f", about {left:.0f} s to go" if left > 1 else ""
            self.say(f"{name} {seconds:.2f} s{rest}")

    def step(self, weight: float) -> None:
        """Count a step of the present phase."""
        self.steps += 0.0 if self.knows else weight
        if self.tell is not None and self.plan:
            self.tell(min(self.share, 1.0))

    def out_of_time(self, share: float, growth: float) -> bool:
        """Whether the next step, ``growth`` times the last, ends after a share of the limit."""
        now, last = self.elapsed, self.elapsed - self.asked
        self.asked = now
        late = now + growth * last > share * self.limit
        if late and self.inside and self.inside[0] not in self.cut:
            self.cut.append(self.inside[0])
        return late


_watch: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watched_by(watch: Watch) -> Iterator[None]:
    """Let a watch hear of all that happens inside."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)


def step(weight: float) -> None:
    """Tell that a step is done; a phase is about half done when its weights add up to 1."""
    watch = _watch.get()
    if watch is not None:
        watch.step(weight)


def reach(part: float) -> None:
    """Tell that a part of the present phase is done, where that is known; below 1."""
    watch = _watch.get()
    if watch is not None:
        watch.steps, watch.knows = part / (1.0 - part), True
        watch.step(0.0)


def out_of_time(share: float = 1.0, growth: float = 1.0) -> bool:
    """Whether there is no time for a step that takes ``growth`` times as long as the last.

    Parameters
    ----------
    share : float, default=1.0
        Share of the time limit that this part of the fit may use.
    growth : float, default=1.0
        How much longer the next step takes than the time since the last question.
    """
    watch = _watch.get()
    return watch is not None and watch.out_of_time(share, growth)


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
        start, watch = time.perf_counter(), _watch.get()
        if watch is not None:
            watch.begin(name)
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[name] = self.seconds.get(name, 0.0) + spent
            if watch is not None:
                watch.end(spent)
