"""How examples are run: how many, in how many parts, with a limit of time for each.

The profile "slow" (``make fuzz``) runs 50,000 examples that it draws anew; without it a few run,
always the same.
"""

import signal
import traceback
import warnings
from contextlib import contextmanager
from importlib.util import find_spec

import numpy as np
from hypothesis import HealthCheck, given, settings

LONG = settings.default.max_examples >= 50_000  # as in the profile "slow"
PARTS = range(8 if LONG else 1)  # of the examples of a test, for machines with many processors
SECONDS = 20  # more is a hang
ALLOWED = (ValueError, TypeError, MemoryError)
# What other libraries say when they are given what they should not have been given.
UNCLEAR = ("zero-size", "broadcast", "infs or NaNs", "argmin of an empty", "shapes ", "SVD did")
HAS_SKOPS = find_spec("skops") is not None  # model files


def run_examples(check, strategy, examples, *, short):
    """Call ``check`` with one part of ``examples``; with ``short`` ones in quick runs."""
    settings(
        max_examples=-(-examples // len(PARTS)) if LONG else short,
        derandomize=not LONG,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )(given(strategy)(check))()


@contextmanager
def alarm(seconds=SECONDS):
    """Fail where something takes as long as a hang does, by the processor's clock.

    Others may be busy: what waits for ever is ended after ten times as long on the wall's.
    """

    def too_long(*_):
        raise AssertionError(f"more than {seconds} s")

    before = [signal.signal(number, too_long) for number in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(10 * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for number, handler in zip((signal.SIGPROF, signal.SIGALRM), before, strict=True):
            signal.signal(number, handler)


@contextmanager
def quiet():
    """Show no warnings: what is wrong is looked for in the values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def assert_clear(error: Exception) -> None:
    """An error names what is wrong: it comes from a check, not from the middle of a computation."""
    where = traceback.extract_tb(error.__traceback__)[-1].filename
    ours = "leansvm" in where or "sklearn" in where
    unclear = isinstance(error, np.linalg.LinAlgError) or not ours or not str(error)
    if unclear or any(words in str(error) for words in UNCLEAR):
        raise AssertionError(f"unclear: {type(error).__name__}: {error}") from error


def assert_close(a, b, share):
    """Two models say the same, to a share of what they say."""
    assert np.abs(a - b).max() <= share * max(np.std(a), np.abs(a).max(), 1e-3)


def values_of(model, X):
    """Decision values of a classifier, numbers of a regressor."""
    return getattr(model, "decision_function", model.predict)(X)
