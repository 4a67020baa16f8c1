"""Long computations in a thread: the bar moves meanwhile, and Ctrl-C is answered at once.

Python answers a signal between two of its own instructions, and a fit may spend many seconds in
one of them. So the main thread only waits and draws. An interrupted computation cannot be stopped:
the process ends without it. Nothing that writes files may run here.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

Result = TypeVar("Result")
_STEP = 0.1  # seconds between two looks at the computation
_running: list[threading.Thread] = []


def wait_for(work: Callable[[], Result], tick: Callable[[float], None] | None = None) -> Result:
    """Run `work` in a thread and return its result; `tick` gets the seconds since the start."""
    if not gc.isenabled():  # collect garbage from now on, but not among the loaded modules
        gc.freeze()
        gc.enable()
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
    """Return whether an interrupted computation is still running."""
    return any(thread.is_alive() for thread in _running)


class Percents:
    """A callback of scikit-learn that hears which share of a fit is done."""

    share = 0.0

    def setup(self, estimator: Any, context: Any) -> None:
        """Need nothing."""

    def teardown(self, estimator: Any, context: Any) -> None:
        """Leave nothing."""

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Wait for the end of a task."""

    def on_fit_task_end(self, estimator: Any, context: Any) -> None:
        """Count a percent."""
        self.share += 0.01 * (context.task_name == "percent")


def fit_with_bar(pipeline: Any, X: Any, y: Any, bars: Progress, description: str) -> None:
    """Fit under a bar that moves with the work, if the machine tells how far it is."""
    heard, task = Percents(), bars.add_task(description, total=None)
    machine = pipeline[-1]
    if hasattr(machine, "set_callbacks"):  # scikit-learn 1.9
        machine.set_callbacks(heard)

    def tick(seconds: float) -> None:
        if heard.share:
            bars.update(task, total=1.0, completed=heard.share)

    try:
        wait_for(partial(pipeline.fit, X, y), tick)
    finally:
        vars(machine).pop("_skl_callbacks", None)  # which no file has to hold
    bars.update(task, total=1.0, completed=1.0)
