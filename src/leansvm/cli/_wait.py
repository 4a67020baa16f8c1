"""Long computations in a thread: the bar moves meanwhile, and Ctrl-C is answered at once.

Python answers a signal between two of its own instructions, and a fit may spend many seconds in
one of them. So the main thread only waits and draws. An interrupted computation cannot be stopped:
the process ends without it. Nothing that writes files may run here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

Result = TypeVar("Result")
_STEP = 0.1  # seconds between two looks at the computation
_running: list[threading.Thread] = []


def wait_for(work: Callable[[], Result], tick: Callable[[float], None] | None = None) -> Result:
    """Run `work` in a thread and return its result; `tick` gets the seconds since the start."""
    found: dict[str, Any] = {}

    def run() -> None:
        try:
            found["result"] = work()
        except BaseException as error:
            found["error"] = error

    thread = threading.Thread(target=run, daemon=True)
    _running.append(thread)
    start = time.perf_counter()
    thread.start()
    while thread.is_alive():
        thread.join(_STEP)
        if tick is not None:
            tick(time.perf_counter() - start)
    _running.remove(thread)
    if "error" in found:
        raise found["error"]
    result: Result = found["result"]
    return result


def still_running() -> bool:
    """Return whether a computation goes on that nobody waits for any more."""
    return any(thread.is_alive() for thread in _running)


def wait_with_bar(
    work: Callable[[], Result], bars: Progress, description: str, expected: float | None
) -> Result:
    """Run `work` under a bar that fills in the expected seconds, slower and slower after them."""
    total = None if expected is None else 1.0
    words = f"{description}, about {_words(expected)}" if expected is not None else description
    task = bars.add_task(words, total=total)

    def tick(seconds: float) -> None:
        if expected is not None:  # two thirds full at the expected time, and never at its end
            share = seconds / expected
            bars.update(task, completed=share / (share + 0.5) if share < 1 else 1 - 1 / (3 * share))

    result = wait_for(work, tick)
    bars.update(task, total=1.0, completed=1.0)
    return result


def _words(seconds: float) -> str:
    if seconds < 1:
        return "a second"
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
