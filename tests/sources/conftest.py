"""The same rows from every place they can live: one test suite, one column a source.

A source fits an estimator on rows that it puts somewhere (an array library, a file, a cluster)
and brings what the fitted estimator returns back to the host, checking its kind on the way.
To add one, write a class with `fit` and `apply` and list it in ``SOURCES``.
"""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
from sklearn import config_context


class NumPy:
    """Arrays in memory: the reference."""

    def __init__(self, tmp_path=None):
        self.tmp_path = tmp_path

    @contextmanager
    def ready(self):
        yield self

    def rows(self, array):
        """Put a host array where this source keeps its rows."""
        return array

    def host(self, array):
        """Bring a result to the host; it must be of the kind that the source promises."""
        assert isinstance(array, np.ndarray)
        return array

    def fit(self, estimator, X, y, sample_weight=None):
        """Fit on the rows where they are."""
        weight = None if sample_weight is None else self.rows(sample_weight)
        return estimator.fit(self.rows(X), self.rows(y), sample_weight=weight)

    def apply(self, estimator, method, X):
        """Return ``estimator.method(X)`` of rows where they are, on the host."""
        return self.host(getattr(estimator, method)(self.rows(X)))


class ArrayAPI(NumPy):
    """Arrays of another library, with scikit-learn's dispatch switched on."""

    library = "array_api_strict"
    device = None

    @contextmanager
    def ready(self):
        self.xp = pytest.importorskip(self.library, reason=f"{self.library} is not installed")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SCIPY_ARRAY_API", "1")  # scikit-learn asks for it
            with config_context(array_api_dispatch=True):
                yield self

    def rows(self, array):
        return self.xp.asarray(array, device=self.device)

    def host(self, array):
        assert type(array) is type(self.rows(np.zeros(1)))
        return np.from_dlpack(array)


class TorchCPU(ArrayAPI):
    library = "torch"
    device = "cpu"

    def host(self, array):
        assert isinstance(array, self.xp.Tensor)
        assert array.device == self.rows(np.zeros(1)).device
        return array.cpu().numpy()


class TorchCUDA(TorchCPU):
    """On machines with a GPU only."""

    device = "cuda"

    @contextmanager
    def ready(self):
        torch = pytest.importorskip("torch", reason="torch is not installed")
        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")
        with super().ready():
            yield self


class CuPy(ArrayAPI):
    """On machines with a GPU only."""

    library = "cupy"

    @contextmanager
    def ready(self):
        cupy = pytest.importorskip("cupy", reason="cupy is not installed")
        if not cupy.cuda.is_available():
            pytest.skip("no CUDA device")
        with super().ready():
            yield self

    def rows(self, array):
        return self.xp.asarray(array)

    def host(self, array):
        assert isinstance(array, self.xp.ndarray)
        return self.xp.asnumpy(array)


SOURCES = {
    "numpy": NumPy,
    "array-api-strict": ArrayAPI,
    "torch-cpu": TorchCPU,
    "torch-cuda": TorchCUDA,
    "cupy": CuPy,
}
# Sources that only some estimators can fit from say so here.
ARRAY_SOURCES = ("array-api-strict", "torch-cpu", "torch-cuda", "cupy")


@pytest.fixture(params=SOURCES)
def source(request, tmp_path):
    """One of all sources."""
    with SOURCES[request.param](tmp_path).ready() as ready:
        yield ready


@pytest.fixture(params=ARRAY_SOURCES)
def array_source(request, tmp_path):
    """One of the array libraries other than NumPy."""
    with SOURCES[request.param](tmp_path).ready() as ready:
        yield ready
