"""Marks of tests that need news of scikit-learn: skipped with the version that has them."""

import pytest

from leansvm._sklearn import HAS_CALLBACKS

needs_callbacks = pytest.mark.skipif(
    not HAS_CALLBACKS, reason="callbacks are new in scikit-learn 1.9"
)
