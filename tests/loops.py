"""One test for many cases: a loop costs less than as many tests."""

from contextlib import contextmanager


@contextmanager
def case(**values):
    """Name the case of a loop in the report of what fails in it."""
    try:
        yield
    except BaseException as error:  # pytest's own failures are no `Exception`
        error.add_note(f"in the case {values}")
        raise
