"""scikit-learn's own checks of an estimator, all of them in one test."""

import re
from unittest import SkipTest

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from tests.versions import skip_refused_arrays


def names(estimator):
    """Return the id of a test: the estimator with its parameters."""
    return re.sub(r"\s+", "", repr(estimator))


def run_checks(estimator):
    """Run every check, also after one has failed; then raise all failures together."""
    passed, failures = 0, []
    for instance, check in estimator_checks_generator(estimator):
        try:
            with skip_refused_arrays():
                check(instance)
        except (SkipTest, pytest.skip.Exception):
            continue
        except Exception as error:
            error.add_note(f"in {check} of {instance}")
            failures.append(error)
        else:
            passed += 1
    if failures:
        raise ExceptionGroup(f"checks that {estimator} does not pass", failures)
    assert passed > 30
