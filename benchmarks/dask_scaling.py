"""One and two single-threaded workers of a local Dask cluster, and what they send each other.

1,000,000 rows with 20 features, already on the workers in ten chunks; 500 random basis points, C
by generalised cross-validation. Beside it, on a fifth of the rows, points by pivoted Cholesky,
which keeps 500 numbers per row and has the client factor candidates between passes. Both clusters
are there all the time and take turns. Bytes are what workers received from each other, as their
own logs have it, while points are chosen.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np

from ._harness import Options, Report, SkipBenchmark, ratio, time_interleaved

ROWS, QUICK_ROWS, CHUNKS = 1_000_000, 20_000, 10
FEATURES = 20
BASES = {"random": 1, "pivoted-cholesky": 5}  # the part of the rows


def run(options: Options) -> Report:
    """Time fits on both clusters, then count the bytes of fits on few and on many rows."""
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise SkipBenchmark("distributed is not installed") from error
    report = Report("dask_scaling", "SparseLSSVC on one and on two Dask workers", options)
    rows, basis_size = options.pick((ROWS, 500), (QUICK_ROWS, 50))
    with ExitStack() as stack:
        clients = {}
        for n_workers in (1, 2):
            cluster = LocalCluster(
                n_workers=n_workers, threads_per_worker=1, dashboard_address=":0"
            )
            stack.enter_context(cluster)
            clients[n_workers] = stack.enter_context(Client(cluster, set_as_default=False))
        for basis, part in BASES.items():
            _time(report, clients, basis, rows // part, basis_size, options)
        _count(report, clients[2], rows // 5, basis_size)
    return report


def _time(
    report: Report, clients: dict, basis: str, rows: int, size: int, options: Options
) -> None:
    fits = {f"{n} workers": _fit_on(client, basis, rows, size) for n, client in clients.items()}
    timings = time_interleaved(fits, repeats=options.pick(3, 1), keep=lambda model: model)
    report.add_timings(basis, timings)
    speedup = ratio(timings["1 workers"], timings["2 workers"])
    one, two = (timings[f"{n} workers"] for n in (1, 2))
    agree = np.abs(one.kept[0].dual_coef_ - two.kept[0].dual_coef_).max()
    scale = np.abs(one.kept[0].dual_coef_).max()
    report.rows.append(
        {
            "basis": basis,
            "rows": rows,
            "1 worker, s": f"{one:.2f}",
            "2 workers, s": f"{two:.2f}",
            "speedup": speedup.median,
            "relative difference of the coefficients": agree / scale,
        }
    )
    if basis == "random":
        report.at_least(f"speedup of two workers, {rows:,} rows", speedup.median, 1.7)


def _fit_on(client: Any, basis: str, rows: int, size: int) -> Callable[[], Any]:
    X, y = _collections(client, rows)

    def fit() -> Any:
        with client.as_current():
            return _model(basis, size).fit(X, y)

    return fit


def _model(basis: str, size: int) -> Any:
    from leansvm import SparseLSSVC

    return SparseLSSVC("gcv", gamma="scale", basis=basis, n_basis=size, random_state=0)


def _collections(client: Any, rows: int) -> tuple[Any, Any]:
    """Return rows and labels that are on the workers."""
    import dask.array as da
    from distributed import wait

    with client.as_current():
        chunks = (rows // CHUNKS, FEATURES)
        X = da.random.default_rng(0).standard_normal((rows, FEATURES), chunks=chunks)
        y = (da.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] > 0).astype(np.int8)
        X, y = client.persist([X, y])
        wait([X, y])
    return X, y


def _count(report: Report, client: Any, rows: int, size: int) -> None:
    """Bytes that workers sent each other in a round, for a fourth of the rows and for all."""
    received = {}
    for n_rows in (rows // 4, rows):
        X, y = _collections(client, n_rows)
        with client.as_current():
            rounds, total = _choose(client, X, y, size)
        received[n_rows] = total / rounds
        report.rows.append(
            {
                "basis": "pivoted-cholesky",
                "rows": n_rows,
                "rounds": rounds,
                "received by workers, a round, kB": received[n_rows] / 1e3,
            }
        )
    report.at_most(
        "bytes between workers a round, all rows / a fourth of them",
        received[rows] / received[rows // 4],
        1.1,
    )


def _choose(client: Any, X: Any, y: Any, size: int) -> tuple[int, int]:
    """Choose basis points; return the number of rounds and the bytes that workers received."""
    from leansvm.basis import PivotedCholesky
    from leansvm.blocks import Targets, source_of
    from leansvm.kernels import Kernel

    blocks = source_of(X, y).blocks(Targets(None), columns=3 * size)
    blocks.variance()  # neighbouring chunks are together now
    _fetched(client)
    found = PivotedCholesky().select(blocks, Kernel("rbf", gamma=1 / FEATURES), size)
    return found.report["rounds"], _fetched(client)


def _fetched(client: Any) -> int:
    """Return the bytes that workers received from each other since the last call."""
    return sum(client.run(_clear_log).values())


def _clear_log(dask_worker: Any) -> int:
    log = dask_worker.transfer_incoming_log
    total = sum(entry["total"] for entry in log)
    log.clear()
    return total
