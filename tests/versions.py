"""What tests need to know of versions: what is skipped, with the version which has the news."""

from contextlib import contextmanager

import pytest
from scipy import sparse

from leansvm._sklearn import HAS_CALLBACKS, VERSION

needs_callbacks = pytest.mark.skipif(
    not HAS_CALLBACKS, reason="callbacks are new in scikit-learn 1.9"
)

_REFUSALS = ("Arrays of other libraries need scikit-learn 1.7", "array_api_compat is required")


@contextmanager
def skip_refused_arrays():
    """Skip what needs arrays of other libraries where scikit-learn is too old for them."""
    try:
        yield
    except ImportError as error:
        if VERSION < (1, 7) and str(error).startswith(_REFUSALS):
            pytest.skip("arrays of other libraries are new in scikit-learn 1.7")
        raise


def random_csr(shape, density, rng):
    """`scipy.sparse.random_array`, whose parameters were renamed in SciPy 1.15."""
    return sparse.csr_array(sparse.random(*shape, density, "csr", None, rng))
