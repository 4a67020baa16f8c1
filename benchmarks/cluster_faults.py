"""Twenty fits on a Dask cluster whose workers are killed, paused or gone: no hang, no wrong model.

Two worker processes hold the rows in eight chunks. A fault happens at a random moment of a fit: one
worker is killed, both are killed, or one is paused for three seconds. Killed workers are started
again, as on most clusters. The fit must give the model of the same rows in memory, or raise an
error that names the cluster; either way within a minute. Two more fits meet a cluster without
workers: they must end after `leansvm.cluster-timeout`.
"""

import os
import signal
import threading
import time
from typing import Any

import numpy as np

from ._harness import Options, Report, SkipBenchmark

ROWS, QUICK_ROWS, CHUNKS, FEATURES = 40_000, 4_000, 8, 8
PATIENCE = 20.0  # seconds without progress until a fit gives up
SLOWEST = 60.0  # seconds that a fit with a fault may take
PAUSE = 3.0
FAULTS = ("one killed", "both killed", "one paused")
MODELS = {  # estimator and parameters
    "random points, gcv": ("SparseLSSVC", {"C": "gcv", "gamma": 0.1, "n_basis": 200}),
    "random points, loo": ("SparseLSSVC", {"C": "loo", "gamma": 0.1, "n_basis": 200}),
    "pivots": (
        "SparseLSSVC",
        {"C": 1.0, "gamma": 0.1, "basis": "pivoted-cholesky", "n_basis": 100},
    ),
    "folds": ("SparseLSSVC", {"C": "kfold", "gamma": 0.1, "n_basis": 100}),
    "learned kernel": ("SparseLSSVC", {"n_basis": 100}),
    "logistic loss": ("ReducedSVC", {"C": 1.0, "kernel": "rbf", "gamma": 0.1, "n_basis": 100}),
}


def run(options: Options) -> Report:
    """Fit every model with every fault, then two without any worker."""
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise SkipBenchmark("distributed is not installed") from error
    report = Report("cluster_faults", "fits on a Dask cluster that loses its workers", options)
    rows, faults = options.pick((ROWS, FAULTS), (QUICK_ROWS, FAULTS[:1]))
    rng, wrong, slowest = np.random.default_rng(0), 0, 0.0
    X = rng.normal(size=(rows, FEATURES))
    y = (np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] > 0).astype(int)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        for name in MODELS:
            seconds, expected = _timed(name, *_collections(client, X, y))
            in_memory = _decisions(_model(name).fit(X, y), X)
            apart = np.abs(_decisions(expected, X) - in_memory).max()
            for fault in faults:
                delay = float(rng.uniform(0.05, 0.9)) * seconds
                outcome, took = _with_fault(client, name, X, y, fault, delay, in_memory)
                wrong += outcome not in ("same model", "clear error")
                slowest = max(slowest, took)
                report.rows.append(
                    {
                        "model": name,
                        "fault": fault,
                        "after [s]": round(delay, 2),
                        "fit without a fault [s]": round(seconds, 2),
                        "with it [s]": round(took, 2),
                        "outcome": outcome,
                        "cluster and memory apart": f"{apart:.1g}",
                    }
                )
    for name in list(MODELS)[:2]:
        outcome, took = _without_workers(name, X, y)
        wrong += outcome != "clear error"
        report.rows.append(
            {"model": name, "fault": "no workers", "with it [s]": took, "outcome": outcome}
        )
    report.at_most("fits that hang or give another model", wrong, 0)
    report.at_most("slowest fit with a fault [s]", slowest, SLOWEST)
    return report


def _model(name: str) -> Any:
    import leansvm

    estimator, parameters = MODELS[name]
    return getattr(leansvm, estimator)(random_state=0, **parameters)


def _collections(client: Any, X: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    """Return rows and labels in chunks on the workers."""
    import dask.array as da

    client.wait_for_workers(2, timeout=60)
    size = len(X) // CHUNKS
    return da.from_array(X, chunks=(size, FEATURES)), da.from_array(y, chunks=size)


def _decisions(model: Any, X: np.ndarray) -> np.ndarray:
    return np.asarray(model.decision_function(X[:1000]))


def _timed(name: str, X: Any, y: Any) -> tuple[float, Any]:
    """Fit twice, the first time to compile and load everything; return seconds and model."""
    _model(name).fit(X, y)
    start = time.perf_counter()
    model = _model(name).fit(X, y)
    return time.perf_counter() - start, model


def _with_fault(
    client: Any,
    name: str,
    X: np.ndarray,
    y: np.ndarray,
    fault: str,
    delay: float,
    in_memory: np.ndarray,
) -> tuple[str, float]:
    """Fit while a fault happens; return what came of it, and the seconds."""
    import dask

    rows, labels = _collections(client, X, y)
    processes = list(client.run(os.getpid).values())
    timer = threading.Timer(delay, _break, [processes, fault])
    start = time.perf_counter()
    timer.start()
    try:
        with dask.config.set({"leansvm.cluster-timeout": PATIENCE}):
            model = _model(name).fit(rows, labels)
        same = np.allclose(_decisions(model, X), in_memory, atol=1e-6)
        outcome = "same model" if same else "another model"
    except (TimeoutError, ConnectionError, RuntimeError) as error:
        outcome = (
            "clear error" if "cluster" in str(error) or "worker" in str(error) else repr(error)
        )
    took = time.perf_counter() - start
    timer.join()
    return outcome, took


def _break(processes: list[int], fault: str) -> None:
    """Kill or pause workers."""
    if fault == "one paused":
        os.kill(processes[0], signal.SIGSTOP)
        time.sleep(PAUSE)
        os.kill(processes[0], signal.SIGCONT)
        return
    for process in processes[: 1 if fault == "one killed" else 2]:
        os.kill(process, signal.SIGKILL)


def _without_workers(name: str, X: np.ndarray, y: np.ndarray) -> tuple[str, float]:
    """Fit on a cluster that has no worker and gets none."""
    import dask
    import dask.array as da
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as cluster,
        Client(cluster),
        dask.config.set({"leansvm.cluster-timeout": 2.0}),
    ):
        start = time.perf_counter()
        try:
            _model(name).fit(da.from_array(X, chunks=(len(X) // 2, FEATURES)), y)
        except TimeoutError as error:
            took = round(time.perf_counter() - start, 2)
            return "clear error" if "workers" in str(error) and took < 15 else repr(error), took
        return "a model without workers", round(time.perf_counter() - start, 2)
