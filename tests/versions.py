"""What tests need to know of versions: marks that skip with the version which has the news."""

import pytest
from scipy import sparse

from leansvm._sklearn import HAS_CALLBACKS

needs_callbacks = pytest.mark.skipif(
    not HAS_CALLBACKS, reason="callbacks are new in scikit-learn 1.9"
)


def random_csr(shape, density, rng):
    """`scipy.sparse.random_array`, whose parameters were renamed in SciPy 1.15."""
    return sparse.csr_array(sparse.random(*shape, density, "csr", None, rng))
