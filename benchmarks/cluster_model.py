"""The cost model of docs/cost_model.md against eight machines, simulated in one process.

The constants come from one machine without a network, on an eighth of the rows. Then the model says
what eight machines on all rows need, with 2 ms for a message, 1 GB/s and machines that are lost
while points are chosen, and the simulation (`_simulated`) shows it: the tasks are those of a Dask
cluster and their CPU seconds count, so that a busy machine does little harm. The last rows are
what the constants say of a billion rows.
"""

from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from ._cost_model import Constants, Job, computing, predict, travelling
from ._harness import Options, Report
from ._simulated import Network, SimulatedCluster

ROWS, FEATURES, POINTS, MACHINES = 200_000, 20, 500, 8
NETWORK, NONE = Network(2e-3, 1e9), Network(0.0, 1e15)
LOST_AT = (300, 400)  # points chosen when a machine is lost
BILLION, THOUSAND, THREADS = 1e9, 1000, 32  # rows, points, threads of a machine there


def run(options: Options) -> Report:
    """Calibrate on one machine, predict eight, simulate them with and without losses."""
    report = Report("cluster_model", "The cost model and eight simulated machines", options)
    rows, points = options.pick((ROWS, POINTS), (16_000, 100))
    lost_at = options.pick(LOST_AT, (60, 80))
    X, Y = _rows(rows)
    with threadpool_limits(1):
        by, rounds = _calibrated(X[: rows // MACHINES], Y[: rows // MACHINES], points)
        report.notes.append(f"one thread: {by}")
        expected = _fit(_memory(X, Y, points), "pivoted-cholesky", points)
        for basis, losses in (
            ("random", ()),
            ("pivoted-cholesky", ()),
            ("pivoted-cholesky", lost_at),
        ):
            cluster = SimulatedCluster(X, Y, MACHINES, NETWORK, 3 * points)
            found = _fit(cluster, basis, points, losses)
            seconds = cluster.finish()
            done = found.basis.report.get("rounds", 0)
            job = Job(rows, FEATURES, points, MACHINES, done)
            model = predict(job, by, NETWORK, losses)
            report.rows.append(
                {
                    "basis": basis,
                    "machines lost": len(losses),
                    "rounds": done,
                    "passes": cluster.passes,
                    "simulated, s": seconds,
                    "model, s": model,
                    "of it computing": computing(job, by),
                    "travelling": travelling(job, NETWORK),
                    "sent, MB": cluster.sent / 1e6,
                    "received, MB": cluster.received / 1e6,
                }
            )
            what = f"{basis}, {len(losses)} lost"
            report.at_most(f"model / simulation, {what}", model / seconds, 1.25)
            report.at_least(f"model / simulation, {what}", model / seconds, 0.8)
            if basis != "random":
                _compare(report, what, found, expected)
    for machines in (1, 10, 100):
        report.rows.append(_billion(by, machines, rounds * THOUSAND // points))
    return report


def _compare(report: Report, what: str, found: Any, expected: Any) -> None:
    same = np.array_equal(found.basis.indices, expected.basis.indices)
    report.equals(f"points, {what}", "as in memory" if same else "others", "as in memory")
    scale = np.abs(expected.solution.coef).max()
    apart = np.abs(found.solution.coef - expected.solution.coef).max() / scale
    report.at_most(f"relative difference of the coefficients, {what}", float(apart), 1e-6)


def _rows(n_rows: int) -> tuple[Any, Any]:
    X = np.random.default_rng(0).standard_normal((n_rows, FEATURES))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] > 0
    return X, np.where(y, 1.0, -1.0)[:, None]


def _memory(X: Any, Y: Any, points: int) -> Any:
    from leansvm.rows import MemoryBlocks

    return MemoryBlocks(X, Y, columns=3 * points)


def _fit(blocks: Any, basis: str, points: int, losses: tuple[int, ...] = ()) -> Any:
    """Fit as SparseLSSVC does, with C by generalised cross-validation."""
    from leansvm.basis.choose import choose, resolve_basis
    from leansvm.kernels import Kernel
    from leansvm.ridge.criteria import Criterion
    from leansvm.ridge.primal import SparseProblem

    left = list(losses)

    def on_step(size: int) -> bool:
        if left and size >= left[0]:
            blocks.lose(MACHINES - len(left))
            left.pop(0)
        return False

    kernel = Kernel("rbf", gamma=1 / (FEATURES * blocks.variance()))
    budget = 2**33
    criterion = Criterion(np.logspace(-6, 7, 50), "gcv")
    problem = SparseProblem(blocks, kernel, 0.0, criterion, None, budget)
    selector = resolve_basis(basis, FEATURES, blocks.n_rows, False)
    options = {"select_on": "all", "budget": budget, "random_state": 0, "on_step": on_step}
    return problem.solve(partial(choose, blocks, kernel, selector, **options), points)


def _calibrated(X: Any, Y: Any, points: int) -> tuple[Constants, int]:
    """Return what one thread does in every kind of work, from fits on one machine.

    The mean of two: one that takes its memory from the system, and one that finds it there.
    """
    for basis in ("random", "pivoted-cholesky"):  # compiles
        _fit(SimulatedCluster(X[:4000], Y[:4000], 1, NONE, 3 * points), basis, points)
    found = [_seconds_of_one(X, Y, points) for _ in range(2)]
    rounds = found[0][1]
    spent = np.mean([seconds for seconds, _ in found], axis=0)
    loaded, sums, pivots, kept_sums, by_round, solve = spent.tolist()
    job = Job(len(X), FEATURES, points, 1, rounds)
    plain = Job(len(X), FEATURES, points, 1)
    return Constants(
        entries=X.size / loaded,
        pivots=job.choice_flops / pivots,
        sums=plain.sums_flops / sums,
        kept_sums=job.sums_flops / kept_sums,
        round=by_round,
        solve=solve,
    ), rounds


def _seconds_of_one(X: Any, Y: Any, points: int) -> tuple[list[float], int]:
    """Return the seconds of all kinds of work of a fit on one machine, and the rounds."""
    one = SimulatedCluster(X, Y, 1, NONE, 3 * points)
    loaded = one.computed
    _fit(one, "random", points)
    sums = one.computed - loaded
    one = SimulatedCluster(X, Y, 1, NONE, 3 * points)
    loaded = one.computed
    rounds = _fit(one, "pivoted-cholesky", points).basis.report["rounds"]
    kept_sums, solve = one.spent_on("_gram_of_block"), one.client_after("_gram_of_block")
    pivots = one.computed - loaded - kept_sums
    by_round = (one.finish() - one.computed - solve) / rounds
    return [loaded, sums, pivots, kept_sums, by_round, solve], rounds


def _billion(by: Constants, machines: int, rounds: int) -> dict[str, Any]:
    """What the model says of a billion rows: a random basis, and pivots on all rows."""
    threads = THREADS * machines
    random = Job(BILLION, FEATURES, THOUSAND, threads)
    pivots = Job(BILLION, FEATURES, THOUSAND, threads, rounds)
    return {
        "machines of 32 threads": machines,
        "random: computing, s": computing(random, by),
        "travelling, s": travelling(random, NETWORK),
        "pivots: computing, s": computing(pivots, by),
        "pivots: travelling, s": travelling(pivots, NETWORK),
        "pivots: client, s": rounds * by.round * THOUSAND / POINTS,
        "pivots: state a machine, GB": 8 * BILLION * (THOUSAND + 1) / machines / 1e9,
    }
