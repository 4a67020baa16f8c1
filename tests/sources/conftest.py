"""The same rows from every place they can live: one test suite, one column a source.

A source fits an estimator on rows that it puts somewhere (an array library, a file, a cluster)
and brings what the fitted estimator returns back to the host, checking its kind on the way.
To add one, write a class with `fit` and `apply` and list it in ``SOURCES``.
"""

from __future__ import annotations

import multiprocessing
from contextlib import contextmanager
from functools import cache

import numpy as np
import pytest
from sklearn import config_context

import leansvm


class NumPy:
    """Arrays in memory, in several blocks: the reference has them in one."""

    slow = False  # a pass costs more than the rows of a test

    def __init__(self, tmp_path=None):
        self.tmp_path = tmp_path

    @contextmanager
    def ready(self):
        with config_context(working_memory=0.1):  # several blocks, of few rows
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


class Memmap(NumPy):
    """A memory-mapped file."""

    def rows(self, array):
        if array.ndim < 2:
            return array
        path = self.tmp_path / f"{id(array)}.npy"
        np.save(path, array)
        return np.load(path, mmap_mode="r")


class ConvertedMemmap(NumPy):
    """A memory map that has to be converted, which is done batch by batch."""

    def rows(self, array):
        if array.ndim < 2:
            return array
        path = self.tmp_path / f"{id(array)}.bin"
        columns = np.memmap(path, array.dtype, "w+", shape=array.shape, order="F")
        columns[...] = array
        return columns


class Parquet(NumPy):
    """Two files with several row groups, read as often as the fit goes over the rows."""

    slow = True
    suffix = "parquet"

    @contextmanager
    def ready(self):
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
        with super().ready():
            yield self

    def write(self, table, path):
        from pyarrow import parquet

        parquet.write_table(table, path, row_group_size=70)

    def dataset(self, X, y=None, sample_weight=None):
        import pyarrow

        columns = {f"x{j}": X[:, j] for j in range(X.shape[1])}
        targets = None
        if y is not None:
            Y = y.reshape(len(y), -1)
            targets = [f"y{j}" for j in range(Y.shape[1])]
            columns |= dict(zip(targets, Y.T, strict=True))
        if sample_weight is not None:
            columns["w"] = sample_weight
        table = pyarrow.table(columns)
        folder = self.tmp_path / str(len(list(self.tmp_path.iterdir())))
        folder.mkdir()
        half = len(X) // 2 + 3
        self.write(table.slice(0, half), folder / f"a.{self.suffix}")
        self.write(table.slice(half), folder / f"b.{self.suffix}")
        if targets is not None and y.ndim == 1:
            targets = targets[0]
        weight = None if sample_weight is None else "w"
        return leansvm.open_dataset(folder, target=targets, sample_weight=weight)

    def rows(self, array):
        return self.dataset(array)

    def fit(self, estimator, X, y, sample_weight=None):
        return estimator.fit(self.dataset(X, y, sample_weight))


class DaskThreads(NumPy):
    """Uneven chunks, one of them empty, that the local scheduler computes."""

    slow = True

    @contextmanager
    def ready(self):
        self.da = pytest.importorskip("dask.array", reason="dask is not installed")
        with super().ready():
            yield self

    def rows(self, array):
        chunks = (len(array) // 3, 0, len(array) // 2)
        rest = (len(array) - sum(chunks),)
        columns = () if array.ndim == 1 else (array.shape[1] // 2 + 1,)
        return self.da.from_array(array, chunks=(chunks + rest, *columns))

    def host(self, array):
        assert isinstance(array, self.da.Array)
        return array.compute()


class DaskCluster(DaskThreads):
    """The same on two worker processes."""

    @contextmanager
    def ready(self):
        pytest.importorskip("distributed", reason="distributed is not installed")
        with super().ready(), local_cluster().as_current():
            yield self


# A cluster watches itself fifty times a second, also while it waits: 8 % of a processor, for all
# tests that come after the first of it.
_QUIET = {
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.tick.limit": "30s",
    "distributed.admin.tick.cycle": "10s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.worker.memory.monitor-interval": "1s",
    "distributed.worker.profile.enabled": False,
}
_PRELOAD = ["distributed", "leansvm.estimators", "leansvm.kernels._compiled"]


@cache
def local_cluster():
    """Return the client of one cluster for all tests of a process."""
    import dask
    from distributed import Client, LocalCluster
    from distributed.utils import get_mp_context

    dask.config.set(_QUIET)  # to stay: a worker that is started again takes it over, too
    if "forkserver" in multiprocessing.get_all_start_methods():
        # a worker is a copy of a process that has everything loaded
        dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
        get_mp_context().set_forkserver_preload(_PRELOAD)
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    return Client(cluster, set_as_default=False)


@pytest.fixture
def client():
    """The client of the cluster, which is current meanwhile."""
    pytest.importorskip("distributed", reason="distributed is not installed")
    with local_cluster().as_current():
        yield local_cluster()


@pytest.fixture(params=["threads", "cluster"])
def scheduler(request):
    """Dask's local scheduler, and the cluster."""
    if request.param == "cluster":
        request.getfixturevalue("client")
    return request.param


@pytest.fixture(scope="session", autouse=True)
def _close_cluster():
    yield
    if local_cluster.cache_info().currsize:
        client = local_cluster()
        client.close()
        client.cluster.close()
        if "forkserver" in multiprocessing.get_all_start_methods():
            from multiprocessing import forkserver

            forkserver._forkserver._stop()  # waits: what its workers took counts as ours


SOURCES = {
    "numpy": NumPy,
    "array-api-strict": ArrayAPI,
    "torch-cpu": TorchCPU,
    "torch-cuda": TorchCUDA,
    "cupy": CuPy,
    "memmap": Memmap,
    "converted-memmap": ConvertedMemmap,
    "parquet": Parquet,
    "dask-threads": DaskThreads,
    "dask-cluster": DaskCluster,
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
