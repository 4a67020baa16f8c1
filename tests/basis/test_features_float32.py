"""Decision values of float32 rows where float32 is too small for the kernel."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from leansvm import SparseLSSVR


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(("unit", "gamma"), [(1e3, 1e4), (1e-30, "scale"), (1e30, "scale")])
def test_float32_rows_are_predicted_where_kernel_values_exceed_float32(layout, unit, gamma):
    rng = np.random.default_rng(0)
    X = layout((unit * rng.integers(1, 4, size=(20, 2))).astype(np.float32))
    y = rng.normal(size=20)
    model = SparseLSSVR(C=1e-3, kernel="poly", gamma=gamma, degree=4, coef0=1.0, basis="all")
    predicted = model.fit(X, y).predict(X)
    assert predicted.dtype == np.float32
    assert_allclose(predicted, model.predict(X.astype(np.float64)), rtol=1e-4, atol=1e-4)
