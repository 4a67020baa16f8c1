"""One and two single-threaded workers of a local Dask cluster, and what they send each other.

1,000,000 rows with 20 features, already on the workers in ten chunks; 500 random basis points, C
by generalised cross-validation. Beside it, on fewer rows, points by pivoted Cholesky, which keeps
500 numbers per row. The same rows in memory, with one thread, are the measure of a single
worker. All take turns. Passes are counted with a given gamma and with gamma="scale". Bytes are what
workers sent to each other and to the client, as their own logs have it, while points are chosen.

Then the default model, which learns its kernel and its size, on 400,000 rows: two workers beside
memory with all threads, the passes of the cluster, and how far apart results are: with sums in
single precision, as the default has them, and with the same kernel and points in double precision.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from ._harness import Options, Report, SkipBenchmark, ratio, time_interleaved

ROWS, QUICK_ROWS, WARM_UP_ROWS, CHUNKS = 1_000_000, 20_000, 5_000, 10
FEATURES = 20
FITS = (  # basis, share of the rows, rounds, goal of two workers
    ("random", 1.0, 2, 1.7),
    ("pivoted-cholesky", 0.2, 3, None),
    ("pivoted-cholesky", 0.4, 2, 1.6),
)
IN_MEMORY = "memory, 1 thread"
DEFAULT_ROWS, SLOWER, APART = 400_000, 1.25, 1e-10  # of the default model; two workers / memory


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
        for basis, share, repeats, goal in FITS:
            rounds = options.pick(repeats, 1)
            _time(report, clients, basis, int(share * rows), basis_size, rounds, goal)
        _compare_default(report, clients[2], options.pick(DEFAULT_ROWS, QUICK_ROWS))
        _count_passes(report, clients[2])
        _count(report, clients[2], rows // 5, basis_size)
    return report


def _time(
    report: Report,
    clients: dict,
    basis: str,
    rows: int,
    size: int,
    rounds: int,
    goal: float | None,
) -> None:
    fits = {f"{n} workers": _fit_on(client, basis, rows, size) for n, client in clients.items()}
    fits[IN_MEMORY] = _fit_in_memory(clients[1], basis, rows, size)
    timings = time_interleaved(fits, repeats=rounds, warmup=0, keep=lambda model: model)
    report.add_timings(f"{basis}, {rows:,} rows", timings)
    speedup = ratio(timings["1 workers"], timings["2 workers"])
    beside_memory = ratio(timings["1 workers"], timings[IN_MEMORY])
    one, two, memory = (timings[name] for name in ("1 workers", "2 workers", IN_MEMORY))
    scale = np.abs(memory.kept[0].dual_coef_).max()
    apart = max(
        np.abs(fit.kept[0].dual_coef_ - memory.kept[0].dual_coef_).max() for fit in (one, two)
    )
    report.rows.append(
        {
            "basis": basis,
            "rows": rows,
            "1 worker, s": f"{one:.2f}",
            "2 workers, s": f"{two:.2f}",
            "memory, 1 thread, s": f"{memory:.2f}",
            "speedup": speedup.median,
            "1 worker / memory": beside_memory.median,
            "relative difference of the coefficients": apart / scale,
        }
    )
    what = f"{basis}, {rows:,} rows"
    if goal is not None:
        report.at_least(f"speedup of two workers, {what}", speedup.median, goal)
    report.at_most(f"one worker / memory with one thread, {what}", beside_memory.median, 1.3)
    same = all(np.array_equal(fit.kept[0].support_, memory.kept[0].support_) for fit in (one, two))
    report.equals(
        f"points of the cluster, {what}",
        "those of memory" if same else "others",
        "those of memory",
    )


def _fit_on(client: Any, basis: str, rows: int, size: int) -> Callable[[], Any]:
    """Return a fit on a cluster, which has compiled and loaded everything before."""
    X, y = _collections(client, rows)

    def fit() -> Any:
        with client.as_current():
            return _model(basis, size).fit(X, y)

    with client.as_current():
        _model(basis, size).fit(*_collections(client, WARM_UP_ROWS))
    return fit


def _fit_in_memory(client: Any, basis: str, rows: int, size: int) -> Callable[[], Any]:
    with client.as_current():
        X, y = (part.compute() for part in _collections(client, rows))

    def fit() -> Any:
        with threadpool_limits(1):
            return _model(basis, size).fit(X, y)

    _model(basis, size).fit(X[:WARM_UP_ROWS], y[:WARM_UP_ROWS])
    return fit


def _model(basis: str, size: int) -> Any:
    from leansvm import SparseLSSVC

    return SparseLSSVC("gcv", gamma="scale", basis=basis, n_basis=size, random_state=0)


def _collections(client: Any, rows: int, noise: float = 0.0) -> tuple[Any, Any]:
    """Return rows and labels that are on the workers; a share of the labels is wrong."""
    import dask.array as da
    from distributed import wait

    with client.as_current():
        chunks = (rows // CHUNKS, FEATURES)
        rng = da.random.default_rng(0)
        X = rng.standard_normal((rows, FEATURES), chunks=chunks)
        y = (da.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] > 0).astype(np.int8)
        if noise:
            y ^= (rng.random(rows, chunks=chunks[0]) < noise).astype(np.int8)
        X, y = client.persist([X, y])
        wait([X, y])
    return X, y


def _compare_default(report: Report, client: Any, rows: int) -> None:
    """The default fit of noisy rows by two workers and in memory: seconds, passes, results."""
    from leansvm import SparseLSSVC
    from leansvm.kernels import Mixture

    X, y = _collections(client, rows, noise=0.05)
    with client.as_current():
        in_memory = [part.compute() for part in (X, y)]
        SparseLSSVC(random_state=0).fit(X[:WARM_UP_ROWS], y[:WARM_UP_ROWS])

    def fit_on_cluster() -> Any:
        with client.as_current():
            return SparseLSSVC(random_state=0).fit(X, y)

    timings = time_interleaved(
        {
            "2 workers": fit_on_cluster,
            "memory": lambda: SparseLSSVC(random_state=0).fit(*in_memory),
        },
        repeats=report.options.pick(3, 1),
        warmup=0,
        keep=lambda model: model,
    )
    report.add_timings(f"default, {rows:,} rows", timings)
    slower = ratio(timings["2 workers"], timings["memory"])
    two, memory = (timings[name].kept[-1] for name in ("2 workers", "memory"))
    with _counted_passes() as passes:
        fit_on_cluster()
    # the same kernel and points in double precision: sums differ in their order alone
    gamma = "learn" if isinstance(memory.kernel_, Mixture) else memory.gamma_
    given = {"kernel": memory.kernel_, "gamma": gamma, "n_basis": memory.n_support_}
    exact = SparseLSSVC(**given, random_state=0).fit(*in_memory)
    with client.as_current():
        exact_two = SparseLSSVC(**given, random_state=0).fit(X, y)
    apart = _apart(exact_two, exact, in_memory[0])
    report.rows.append(
        {
            "basis": f"default, {memory.n_support_:,} points",
            "rows": rows,
            "2 workers, s": f"{timings['2 workers']:.2f}",
            "memory, s": f"{timings['memory']:.2f}",
            "2 workers / memory": slower.median,
            "relative difference of decision values": _apart(two, memory, in_memory[0]),
            "the same in double precision": apart,
            "passes": len(passes),
        }
    )
    report.notes.append(f"passes of the default fit: {', '.join(passes)}")
    what = f"default, {rows:,} rows"
    report.at_most(f"{what}: two workers / memory", slower.median, SLOWER)
    same = np.array_equal(two.support_, memory.support_) and two.C_ == memory.C_
    report.equals(f"{what}: points and C of the cluster", str(same), "True")
    report.at_most(f"{what}: difference of decision values in double precision", apart, APART)


def _apart(model: Any, other: Any, X: np.ndarray) -> float:
    """Return the largest difference of decision values at some rows, beside the largest value."""
    one, two = (each.decision_function(X[:1000]) for each in (model, other))
    return float(np.abs(one - two).max() / np.abs(two).max())


@contextmanager
def _counted_passes() -> Iterator[list[str]]:
    """Note the names of the functions that run over the rows of a cluster."""
    from leansvm.rows._cluster import ClusterBlocks

    run, seen = ClusterBlocks._run, []

    def counted(self: Any, verb: Any, function: Callable[..., Any], args: Any) -> Any:
        seen.append(function.__name__.strip("_"))
        return run(self, verb, function, args)

    ClusterBlocks._run = counted
    try:
        yield seen
    finally:
        ClusterBlocks._run = run


def _count_passes(report: Report, client: Any) -> None:
    """Passes of a fit on a random basis, with gamma given and with the scale of the rows."""
    X, y = _collections(client, WARM_UP_ROWS)
    passes = {}
    for gamma in (0.05, "scale"):
        with client.as_current(), _counted_passes() as seen:
            _model("random", 50).set_params(gamma=gamma).fit(X, y)
        passes[gamma] = len(seen)
        report.rows.append({"basis": "random", "gamma": gamma, "passes": len(seen)})
    report.equals(
        "passes for gamma='scale' beyond those of a given gamma",
        str(passes["scale"] - passes[0.05]),
        "0",
    )


def _count(report: Report, client: Any, rows: int, size: int) -> None:
    """Bytes that workers sent in a round, for a fourth of the rows and for all."""
    sent = {}
    for n_rows in (rows // 4, rows):
        X, y = _collections(client, n_rows)
        with client.as_current():
            rounds, total = _choose(client, X, y, size)
        sent[n_rows] = total / rounds
        report.rows.append(
            {
                "basis": "pivoted-cholesky",
                "rows": n_rows,
                "rounds": rounds,
                "sent by workers, a round, kB": sent[n_rows] / 1e3,
            }
        )
    report.at_most(
        "bytes from workers a round, all rows / a fourth of them",
        sent[rows] / sent[rows // 4],
        1.1,
    )


def _choose(client: Any, X: Any, y: Any, size: int) -> tuple[int, int]:
    """Choose basis points; return the number of rounds and the bytes that workers sent."""
    from leansvm.basis import PivotedCholesky
    from leansvm.kernels import Kernel
    from leansvm.rows import Targets, source_of

    blocks = source_of(X, y).blocks(Targets(None), columns=3 * size)
    blocks.variance()  # neighbouring chunks are together now
    _sent(client)
    found = PivotedCholesky().select(blocks, Kernel("rbf", gamma=1 / FEATURES), size)
    return found.report["rounds"], _sent(client)


def _sent(client: Any) -> int:
    """Return the bytes that workers sent since the last call."""
    return sum(client.run(_clear_log).values())


def _clear_log(dask_worker: Any) -> int:
    log = dask_worker.transfer_outgoing_log
    total = sum(entry["total"] for entry in log)
    log.clear()
    return total
