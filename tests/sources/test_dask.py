"""Dask collections: lazy results, frames, unknown chunks, a lost worker, bytes that travel."""

import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import make_moons

from leansvm import LSSVC
from leansvm.basis import PivotedCholesky
from leansvm.kernels import Kernel
from tests.loops import case
from tests.plain import PlainReducedSVC, PlainSparseLSSVC, PlainSparseLSSVR

da = pytest.importorskip("dask.array", reason="dask is not installed")
pytest.importorskip("distributed", reason="distributed is not installed")

X, y = make_moons(400, noise=0.2, random_state=0)
NAMES = np.array(["left", "right"])[y]


def frames(npartitions=3):
    import dask.dataframe as dd
    import pandas as pd

    frame = pd.DataFrame(X, columns=["a", "b"])
    return [
        dd.from_pandas(part, npartitions=npartitions)
        for part in (frame, pd.Series(NAMES, dtype=object))
    ]


def test_data_frames(scheduler):
    rows, labels = frames()
    model = PlainSparseLSSVC(n_basis=30, calibrate=True, random_state=0)
    expected = model.fit(X, NAMES).predict_proba(X)
    model.fit(rows, labels)
    assert list(model.feature_names_in_) == ["a", "b"]
    assert list(model.classes_) == ["left", "right"]
    found = model.predict_proba(rows)
    assert isinstance(found, da.Array) and found.shape[1] == 2
    assert_allclose(found.compute(), expected, atol=1e-8)
    assert set(model.predict(rows).compute()) == {"left", "right"}
    assert model.score(rows, labels) > 0.9
    with pytest.raises(ValueError, match="feature names"):
        model.predict(rows.rename(columns={"a": "c"}))


def test_unknown_chunks_and_arrays_from_a_filter(scheduler):
    source = da.from_array(np.column_stack([X, y]), chunks=(90, 3))
    kept = source[source[:, 0] > -0.5]  # chunks of unknown size
    expected = PlainSparseLSSVC(C=10.0, gamma=1.0, n_basis=20, random_state=0)
    mask = X[:, 0] > -0.5
    values = expected.fit(X[mask], y[mask]).decision_function(X[mask])
    model = PlainSparseLSSVC(C=10.0, gamma=1.0, n_basis=20, random_state=0)
    found = model.fit(kept[:, :2], kept[:, 2]).decision_function(kept[:, :2])
    assert np.isnan(found.shape[0])
    assert_allclose(found.compute(), values, atol=1e-8)
    assert_array_equal(model.support_, expected.support_)


def test_targets_in_memory_and_balanced_weights(scheduler):
    rows = da.from_array(X, chunks=(150, 1))
    model = PlainSparseLSSVC(C=10.0, n_basis=20, class_weight={0: 3.0, 1: 1.0}, random_state=0)
    expected = model.fit(X, y).decision_function(X)
    assert_allclose(model.fit(rows, y).decision_function(rows).compute(), expected, atol=1e-8)
    model.set_params(class_weight="balanced")
    expected = model.fit(X[:300], y[:300]).decision_function(X)
    model.fit(rows[:300], da.from_array(y[:300], chunks=70))
    assert_allclose(model.decision_function(X), expected, atol=1e-8)


def test_parquet_frames_of_which_dask_joins_partitions(scheduler, tmp_path):
    import dask.dataframe as dd
    import pandas as pd

    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": NAMES[::-1], "y": y, "w": y + 1.0})
    files = [str(tmp_path / f"{i}.parquet") for i in range(4)]
    for i, file in enumerate(files):
        table.iloc[[0, 90, 90, 250, 400][i] : [90, 90, 250, 400][i]].to_parquet(file)
    frame = dd.read_parquet(files)
    rows, target, weight = frame[["a", "b", "c"]], frame.y, frame.w
    assert len(target.to_delayed()) < len(rows.to_delayed())  # what this test is about
    model = PlainSparseLSSVC(C=10.0, gamma=1.0, basis=np.arange(0, 400, 20))
    expected = model.fit(table[["a", "b", "c"]], y, table.w).decision_function(table)
    for given in (
        (rows, target, weight),
        (frame.persist()[["a", "b", "c"]], target.persist(), weight),
        (rows, y, table.w),
        (rows, table.y, weight),
        (rows, target.values, weight),
    ):
        with case(types=[type(part).__name__ for part in given]):
            found = model.fit(*given).decision_function(rows).compute()
            assert_allclose(found, expected, atol=1e-8)
    with pytest.raises(ValueError, match="X has 400 rows, y has 399"):
        model.fit(rows, y[:399])
    exact = LSSVC(10.0, gamma=1.0)
    expected = exact.fit(table[["a", "b", "c"]], y).decision_function(table)
    found = exact.fit(rows, y).decision_function(rows).compute()
    assert_allclose(found, expected, atol=1e-8)


def test_partial_fit_adds_a_collection(scheduler):
    rows, labels = da.from_array(X, chunks=(60, 2)), da.from_array(y, chunks=60)
    model = PlainSparseLSSVC(C=10.0, gamma=1.0, basis=np.arange(20))
    expected = model.fit(X, y).decision_function(X)
    model = PlainSparseLSSVC(C=10.0, gamma=1.0, basis=np.arange(20))
    for part in (slice(0, 120), slice(120, 400)):
        model.partial_fit(rows[part], labels[part])
    assert_allclose(model.decision_function(X), expected, atol=1e-8)


def test_clear_errors(scheduler):
    rows = da.from_array(X, chunks=(100, 2))
    with pytest.raises(ValueError, match="requires y"):
        PlainSparseLSSVC().fit(rows)
    with pytest.raises(ValueError, match="400 rows, y has 399"):
        PlainSparseLSSVC().fit(rows, y[:399])
    first = int(np.flatnonzero((X > 1).any(axis=1))[0])
    partition = f"partition {first // 100}, row {first % 100} "
    place = partition if scheduler == "threads" else f"row {first} "
    column = int(np.argmax(X[first] > 1))
    holes = X.copy()
    holes[:100][X[:100] > 1] = np.nan  # in one partition: of several, any may answer first
    with pytest.raises(ValueError, match=rf"NaN. The first is in {place}.*, column {column}"):
        PlainSparseLSSVR(n_basis=5, basis=np.arange(5)).fit(
            da.from_array(holes, chunks=(100, 2)), y.astype(float)
        )
    with pytest.raises(ValueError, match="greater than one"):
        PlainSparseLSSVC().fit(rows, np.zeros(400))
    model = PlainSparseLSSVC(n_basis=5).fit(rows, y)
    with pytest.raises(ValueError, match="expecting 2 features"):
        model.predict(rows[:, :1])


def test_results_are_lazy_and_tasks_have_names(client):
    rows = da.from_array(X, chunks=(100, 2))
    model = PlainSparseLSSVC(n_basis=5, random_state=0).fit(rows, y)
    found = model.predict(rows)
    names = {str(key) for key in found.__dask_graph__()}
    assert any("leansvm-predict" in name for name in names)
    assert_array_equal(found.compute(), model.predict(X))
    assert LSSVC().fit(rows, y).predict(X).shape == (400,)  # the exact machine takes arrays


def test_lost_workers_change_nothing(client, monkeypatch):
    from leansvm.rows._cluster import ClusterBlocks

    rng = np.random.default_rng(0)
    source = rng.normal(size=(2000, 5))
    labels = (np.sin(2 * source[:, 0]) + source[:, 1] > 0).astype(int)
    rows = da.from_array(source, chunks=(250, 5))
    model = PlainSparseLSSVC(basis=PivotedCholesky(batch=8), n_basis=40, random_state=0)
    expected = model.fit(rows, labels)
    coef, support = expected.dual_coef_, expected.support_
    run, passes = ClusterBlocks._run, []

    def interrupted(self, *args):
        passes.append(args[1].__name__)
        if len(passes) in (7, 13):  # one of them first, then all
            workers = list(client.run(os.getpid).values())
            for lost in workers[:1] if len(passes) == 7 else workers:
                os.kill(lost, signal.SIGKILL)
        return run(self, *args)

    monkeypatch.setattr(ClusterBlocks, "_run", interrupted)
    model.fit(rows, labels)
    # both times while points were chosen
    assert passes[6] == passes[12] == "_candidates_of_part"
    assert_array_equal(model.support_, support)
    assert_array_equal(model.dual_coef_, coef)  # to the last bit
    client.wait_for_workers(2, timeout=120)


def test_a_round_of_pivots_is_one_pass_on_eight_workers_that_get_lost(monkeypatch):
    from distributed import Client, LocalCluster

    from leansvm.rows import MemoryBlocks, Targets, source_of
    from leansvm.rows._cluster import ClusterBlocks

    # sorted, so that the parts differ; integers, so that there are ties between them
    source = np.sort(np.random.default_rng(0).integers(0, 9, size=(1600, 3)), axis=0).astype(float)
    kernel, run, offers = Kernel("rbf", gamma=0.1), ClusterBlocks._run, []
    expected = PivotedCholesky(batch=40).select(MemoryBlocks(source), kernel, 60)
    with (
        LocalCluster(
            n_workers=8, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):

        def interrupted(self, *args):
            offers.append(args[1].__name__)
            if len(offers) in (4, 6):  # what these workers hold is gone with them
                client.sync(cluster.workers[len(offers)].close)
            return run(self, *args)

        monkeypatch.setattr(ClusterBlocks, "_run", interrupted)
        rows = da.from_array(source, chunks=(100, 3))
        blocks = source_of(rows, np.zeros(1600)).blocks(Targets(None), columns=60)
        assert blocks.n_parts == 8
        found = PivotedCholesky(batch=40).select(blocks, kernel, 60)
        assert len(client.nthreads()) == 6
    assert_array_equal(found.indices, expected.indices)
    assert_allclose(found.L, expected.L, atol=1e-9)
    assert_allclose(found.report["trace"], expected.report["trace"], atol=1e-8)
    # the diagonal, a look at rounding, and every round with its last
    assert offers[:2] == ["start", "rows_with_numbers"]
    assert offers[2:] == ["_candidates_of_part"] * (found.report["rounds"] + 1)


def test_the_scale_of_gamma_takes_no_pass(client, monkeypatch):
    from leansvm.rows import Targets, source_of
    from leansvm.rows._cluster import ClusterBlocks

    run, passes = ClusterBlocks._run, []
    monkeypatch.setattr(
        ClusterBlocks, "_run", lambda self, *args: passes.append(args) or run(self, *args)
    )
    rows, weight = da.from_array(X, chunks=(90, 2)), np.arange(400.0) % 3
    source = source_of(rows, da.from_array(y, chunks=90), da.from_array(weight, chunks=90))
    found = source.blocks(Targets(None, weighted=True)).variance()
    mean = np.average(X, weights=np.repeat(weight, 2).reshape(X.shape))
    assert found == pytest.approx(np.average((X - mean) ** 2, axis=0, weights=weight).mean())
    assert not passes
    huge = da.from_array(np.array([[1e200, -1e200]] * 50), chunks=(25, 2))
    with pytest.raises(ValueError, match="too large or too small"):
        PlainSparseLSSVC(gamma="scale", n_basis=3).fit(huge, np.arange(50) % 2)
    with pytest.raises(ValueError, match=r"NaN. The first is in row 6 "):  # of no weight
        holes = X.copy()
        holes[6] = np.nan
        weight[6] = 0.0
        PlainSparseLSSVC(C=1.0, gamma=1.0, n_basis=3).fit(
            da.from_array(holes, chunks=(90, 2)), y, sample_weight=weight
        )


def test_a_standstill_is_an_error(client):
    import dask

    from leansvm.rows._cluster import gather

    nobody = client.submit(abs, -1, workers=["tcp://127.0.0.1:1"], pure=False)
    with (
        dask.config.set({"leansvm.cluster-timeout": 0.1}),
        pytest.raises(TimeoutError, match=r"no progress for 0.1 seconds: none of its 2 workers"),
    ):
        gather(client, [nobody])


def test_a_cluster_without_workers_is_not_waited_for_longer_than_allowed():
    import dask
    from distributed import Client, LocalCluster

    rows = da.from_array(X, chunks=(90, 2))
    with (
        LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        for patience in (0.3, 0):  # Dask itself takes 0 for no limit
            start = time.monotonic()
            with (
                dask.config.set({"leansvm.cluster-timeout": patience}),
                pytest.raises(
                    TimeoutError, match=rf"no progress for {patience} seconds: it has no workers"
                ),
            ):
                PlainSparseLSSVC(C=1.0, gamma=1.0, n_basis=3).fit(rows, y)
            assert time.monotonic() - start < 10


def test_a_lost_scheduler_is_named():
    from distributed import Client

    from leansvm.rows._cluster import gather

    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0"]
    scheduler = subprocess.Popen(
        [*command, "--no-dashboard"], stderr=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        lines = iter(scheduler.stderr.readline, "")
        address = next(found[0] for line in lines if (found := re.findall(r"tcp://\S+", line)))
        with Client(address, timeout=60, set_as_default=False) as client:
            client._timeout = 1  # for the time after it is lost
            task = client.submit(abs, -1)  # there is no worker
            scheduler.kill()
            with pytest.raises(ConnectionError, match=r"the Dask scheduler tcp.* was lost"):
                gather(client, [task])
    finally:
        scheduler.kill()
        scheduler.communicate()


def sent(dask_worker):
    log = dask_worker.transfer_outgoing_log  # to other workers and to the client
    total = sum(entry["total"] for entry in log)
    log.clear()
    return total


def test_bytes_from_workers_do_not_grow_with_the_rows(client):
    from leansvm.rows import Targets, source_of

    moved = {}
    for n_rows in (4_000, 32_000):
        rows = da.random.default_rng(0).standard_normal((n_rows, 4), chunks=(n_rows // 8, 4))
        blocks = source_of(rows, np.zeros(n_rows)).blocks(Targets(None), columns=100)
        blocks.variance()  # loaded, and neighbours together
        client.run(sent)
        rounds = []
        PivotedCholesky(batch=16).select(
            blocks, Kernel("rbf", gamma=0.1), 40, on_step=lambda k, seen=rounds: seen.append(k)
        )
        moved[n_rows] = sum(client.run(sent).values()) / len(rounds)
    # what a round sends: candidates of both workers and their rows of the factor
    assert 8 * 16 * 4 < moved[32_000] < 1.3 * moved[4_000] + 4_096
    assert moved[32_000] < 2 * 8 * 16 * (40 + 4 + 2) + 20_000


def test_many_threads_combine_their_sums_on_the_workers():
    from distributed import Client

    rows = da.from_array(X, chunks=(20, 2))
    parameters = {"C": 10.0, "gamma": 1.0, "n_basis": 20, "random_state": 0}
    expected = PlainSparseLSSVC(**parameters).fit(X, y).decision_function(X)
    with Client(processes=False, n_workers=1, threads_per_worker=20, dashboard_address=":0"):
        found = PlainSparseLSSVC(**parameters).fit(rows, y)
    assert_allclose(found.decision_function(X), expected, atol=1e-8)


def test_a_function_that_changes_what_it_did_not_declare_is_stopped(client):
    from dataclasses import dataclass
    from typing import Any

    from leansvm.rows import Targets, declare, source_of

    @dataclass
    class Count:
        a: Any

    @declare("X", keeps=Count)
    def begin(block):
        block.keep(Count(np.zeros(block.stop - block.start)))

    @declare()
    def cheat(block):
        block.kept(Count).a += 1.0

    @declare(keeps=Count, changes=("a",))
    def honest(block):
        block.kept(Count).a += 1.0
        return block.kept(Count).a.sum()

    def undeclared(block):
        return block.X.sum()

    blocks = source_of(da.from_array(X, chunks=(100, 2))).blocks(Targets(None))
    blocks.map(begin)
    with pytest.raises(ValueError, match="read-only"):
        blocks.map(cheat)
    assert blocks.sum(honest) == 400.0
    assert blocks.sum(honest) == 800.0
    with pytest.raises(TypeError, match=r"undeclared does not say .*leansvm.rows.declare"):
        blocks.sum(undeclared)


def test_reduced_machines(scheduler):
    rows, labels = da.from_array(X, chunks=(150, 2)), da.from_array(y, chunks=150)
    model = PlainReducedSVC(C=10.0, gamma=1.0, n_basis=20, random_state=0, tol=1e-9)
    expected = model.fit(X, y).decision_function(X)
    found = model.fit(rows, labels).decision_function(rows)
    assert_allclose(found.compute(), expected, atol=1e-7)
