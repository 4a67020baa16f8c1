"""Run a function in a fresh interpreter: crashes, time limits and peak memory are its own.

The parent calls :func:`run_isolated` with the name of a function and JSON arguments; the child
(``python -m benchmarks._isolated``) calls it and prints what it returned as JSON. A function that
wants its memory measured wraps the interesting call in :func:`measure`.
"""

import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MARK = "benchmark-result:"

# What libraries read that are loaded during the call; threadpoolctl sees those loaded before it.
THREAD_LIMITS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "LOKY_MAX_CPU_COUNT",
)


@dataclass
class Outcome:
    """How an isolated call ended.

    Parameters
    ----------
    status : str
        "ok", "crashed (signal 11, SIGSEGV)", "stopped after 600 s" or "failed: <error>".
    value : object
        What the function returned; None unless the status is "ok".
    """

    status: str
    value: Any = None

    @property
    def ok(self) -> bool:
        return self.status == "ok"


def run_isolated(
    function: str,
    *,
    python: str | None = None,
    threads: int | None = None,
    time_limit: float = 600.0,
    **arguments: Any,
) -> Outcome:
    """Call a function in a fresh interpreter.

    Parameters
    ----------
    function : str
        "benchmarks.module:function".
    python : str, default=None
        Interpreter; None: the running one.
    threads : int, default=None
        Limit of the BLAS, OpenMP, Numba and joblib threads; None: their own default.
    time_limit : float, default=600
        Seconds after which the child is stopped.
    **arguments
        Keyword arguments of the function; must survive JSON.

    Returns
    -------
    Outcome
        The function's result or the way it failed.
    """
    command = [python or sys.executable, "-m", "benchmarks._isolated"]
    request = json.dumps({"function": function, "threads": threads, "arguments": arguments})
    # an interpreter of peers has no leansvm, whose loaders all benchmarks share
    path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    limits = {} if threads is None else dict.fromkeys(THREAD_LIMITS, str(threads))
    try:
        child = subprocess.run(
            command,
            input=request,
            capture_output=True,
            text=True,
            timeout=time_limit,
            cwd=ROOT,
            env={**os.environ, **limits, "PYTHONPATH": path},
        )
    except subprocess.TimeoutExpired:
        return Outcome(f"stopped after {time_limit:g} s")
    except OSError as error:
        return Outcome(f"failed: {error.strerror}")
    return _outcome_of(child)


def _outcome_of(child: "subprocess.CompletedProcess[str]") -> Outcome:
    if child.returncode < 0:
        number = -child.returncode
        return Outcome(f"crashed (signal {number}, {signal.Signals(number).name})")
    results = [line for line in child.stdout.splitlines() if line.startswith(MARK)]
    if child.returncode or not results:
        lines = child.stderr.strip().splitlines()
        return Outcome(f"failed: {lines[-1] if lines else f'exit status {child.returncode}'}")
    return Outcome("ok", json.loads(results[-1].removeprefix(MARK)))


def measure(call: Callable[[], Any]) -> dict[str, float]:
    """Time a call and find by how much it raised the process's resident memory at its peak.

    Linux resets its high-water mark on request, which makes the peak exact. Elsewhere the larger
    of a sample every few milliseconds and a newly set record of ``ru_maxrss`` is taken.

    Parameters
    ----------
    call : callable
        Function without arguments.

    Returns
    -------
    dict
        "seconds" and "peak_bytes" (above what was resident just before the call).
    """
    exact = _reset_high_water_mark()
    record = _high_water_mark()
    before = _resident_bytes()
    with nullcontext() if exact else _Sampler() as sampler:
        start = time.perf_counter()
        result = call()
        seconds = time.perf_counter() - start
    peak = _high_water_mark()
    if sampler is not None:
        peak = max(sampler.peak, peak if peak > record else 0)
    del result
    return {"seconds": seconds, "peak_bytes": max(0, peak - before)}


def _reset_high_water_mark() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def _high_water_mark() -> int:
    hwm = _status_bytes("VmHWM")
    if hwm is not None:
        return hwm
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _resident_bytes() -> int:
    rss = _status_bytes("VmRSS")
    return _high_water_mark() if rss is None else rss


def _status_bytes(key: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(key)), None)


class _Sampler(threading.Thread):
    """Largest resident size seen by a thread that looks every `interval` seconds."""

    def __init__(self, interval: float = 0.005) -> None:
        super().__init__(daemon=True)
        self.interval = interval
        self.peak = 0
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(self.interval):
            self.peak = max(self.peak, _resident_bytes())

    def __enter__(self) -> "_Sampler":
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        self.join()


def _child() -> None:
    request = json.loads(sys.stdin.read())
    module, name = request["function"].split(":")
    function = getattr(importlib.import_module(module), name)
    if request["threads"] is None:
        limited: Any = nullcontext()
    else:
        from threadpoolctl import threadpool_limits

        limited = threadpool_limits(request["threads"])
    with limited:
        value = function(**request["arguments"])
    print(MARK + json.dumps(value), flush=True)


if __name__ == "__main__":
    _child()
