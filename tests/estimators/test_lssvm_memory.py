"""Fits stay within the bytes they state, and refuse before they allocate what does not fit."""

import re
import time
import tracemalloc
import warnings
from contextlib import contextmanager

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import linear_kernel, rbf_kernel
from threadpoolctl import threadpool_limits

from leansvm import LSSVC, LSSVR
from leansvm.dual import cholesky
from tests.versions import random_csr

MB = 2**20
SLACK = 6 * MB  # tiles, and what does not grow with the rows squared
M = 1500

rng = np.random.default_rng(11)
X = rng.normal(size=(M, 4))
TARGET = np.sin(X[:, 0])
LABELS = np.where(X[:, 0] > 0, "up", "down")


class Peak:
    """Most bytes that were allocated at once."""

    bytes = 0


@contextmanager
def traced():
    """Measure what Python and NumPy allocate inside, in one thread: each holds tiles of its own."""
    peak = Peak()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tracemalloc.start()
        try:
            yield peak
        finally:
            peak.bytes = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()


def assert_within_stated_bytes(model, *data):
    with traced() as peak:
        model.fit(*data)
    stated = model.fit_report_["bytes"]
    assert peak.bytes <= 1.1 * stated + SLACK, (
        f"{peak.bytes / MB:.1f} MB at the peak, {stated / MB:.1f} MB stated"
    )
    # a statement that is far too large would refuse fits that are possible
    assert stated <= 4 * peak.bytes
    return peak.bytes


@pytest.mark.parametrize(
    "model",
    [
        LSSVR(solver="cholesky"),
        LSSVR(kernel="linear", C=0.1),
        LSSVR(kernel="laplacian"),
        LSSVR(solver="cg", max_iter=20),
        LSSVR(solver="cg", C=1000.0, gamma=1.0, max_iter=20),
        LSSVR(solver="cg", max_iter=20, cache_size=24.0),
        LSSVR(solver="cg", C=1000.0, gamma=1.0, max_iter=20, cache_size=24.0),
        LSSVR(solver="smo", gamma=1.0),
        LSSVR(solver="smo", gamma=1.0, cache_size=12.0),
        LSSVR(solver="sumt", gamma=1.0, cache_size=6.0, tol=1e-2),
        LSSVR(solver="penalty-flow", gamma=1.0, cache_size=6.0, max_iter=20),
    ],
    ids=lambda model: repr(model).replace(" ", "").replace("\n", ""),
)
def test_fit_stays_within_its_stated_bytes(model):
    LSSVR(solver="smo").fit(X[:9], TARGET[:9])  # loads compiled code, which is not the fit's
    assert_within_stated_bytes(model, X, TARGET)


@pytest.mark.parametrize("C", ["gcv", "loo"])
def test_choice_of_C_stays_within_its_stated_bytes(C):
    assert_within_stated_bytes(LSSVR(C), X[:1000], TARGET[:1000])
    assert_within_stated_bytes(LSSVC(C), X[:1000], np.arange(1000) % 5)


def test_calibrated_fit_stays_within_its_stated_bytes():
    assert_within_stated_bytes(LSSVC(calibrate=True), X, LABELS)


def test_fit_of_float32_stays_within_its_stated_bytes():
    assert_within_stated_bytes(LSSVR(), X.astype(np.float32), TARGET)


def test_fit_of_many_outputs_stays_within_its_stated_bytes():
    targets = np.random.default_rng(1).normal(size=(M, 40))
    assert_within_stated_bytes(LSSVR(), X, targets)
    assert_within_stated_bytes(LSSVR(solver="cg", max_iter=20), X, targets)


@pytest.mark.parametrize("kernel", ["rbf", "linear", "laplacian"])
def test_fit_of_wide_rows_stays_within_its_stated_bytes(kernel):
    wide = np.random.default_rng(1).normal(size=(1000, 1500))
    assert_within_stated_bytes(LSSVR(kernel=kernel), wide, wide[:, 0])
    if kernel != "laplacian":  # slow
        model = LSSVR(kernel=kernel, solver="cg", max_iter=3, cache_size=32.0)
        assert_within_stated_bytes(model, wide, wide[:, 0])


def test_fit_of_wide_sparse_rows_stays_within_its_stated_bytes():
    wide = random_csr((M, 5000), 0.01, np.random.default_rng(1))
    assert_within_stated_bytes(LSSVR(), wide, TARGET)


@pytest.mark.parametrize("kernel", ["rbf", "linear", "laplacian"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sparse_rows_are_not_made_dense(kernel, dtype):
    wide = random_csr((300, 40_000), 0.002, np.random.default_rng(1))  # 96 MB dense
    wide = (10 * wide).astype(dtype)  # gamma |x|^2 of hundreds
    model = LSSVR(0.1, kernel, gamma=0.1)
    with traced() as peak:
        model.fit(wide, TARGET[:300])
    assert peak.bytes < 40 * MB
    with traced() as peak:
        model.predict(wide)
    assert peak.bytes < 40 * MB


def test_fit_with_a_callable_kernel_stays_within_its_stated_bytes():
    assert_within_stated_bytes(LSSVR(kernel=linear_kernel, C=0.1), X, TARGET)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("solver", ["cholesky", "cg"])
@pytest.mark.parametrize("zeros", [False, True])
def test_precomputed_fit_stays_within_its_stated_bytes(dtype, solver, zeros):
    K = rbf_kernel(X).astype(dtype)
    weight = np.ones(M)
    weight[: M // 3 * zeros] = 0.0
    assert_within_stated_bytes(
        LSSVR(kernel="precomputed", solver=solver, max_iter=20), K, TARGET, weight
    )


def test_kernel_matrix_that_is_recomputed_takes_less_than_one_that_is_stored():
    options = {"solver": "cg", "C": 0.5, "max_iter": 5}
    stored = assert_within_stated_bytes(LSSVR(**options), X, TARGET)
    recomputed = assert_within_stated_bytes(LSSVR(cache_size=24.0, **options), X, TARGET)
    assert stored > 8 * M * M
    assert recomputed < 0.9 * 8 * M * M


def test_a_second_kernel_matrix_would_be_noticed(monkeypatch):
    gram = cholesky.gram

    def wasteful(problem):
        return gram(problem) + np.zeros((len(problem.weight), len(problem.weight)))

    monkeypatch.setattr(cholesky, "gram", wasteful)
    with pytest.raises(AssertionError, match="stated"):
        assert_within_stated_bytes(LSSVR(solver="cholesky"), X, TARGET)


# ---------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "options",
    [{}, {"solver": "cholesky"}, {"C": "loo"}, {"C": "gcv"}, {"calibrate": True}],
    ids=str,
)
def test_200_000_rows_are_refused_at_once(dtype, options):
    m = 200_000
    many = np.zeros((m, 2), dtype)
    many[:, 0] = np.arange(m)
    labels = np.arange(m) % 2
    start = time.process_time()  # of the processor: others may be busy
    with traced() as peak, pytest.raises(MemoryError) as refusal:
        LSSVC(cache_size=20_000, **options).fit(many, labels)
    message = str(refusal.value)
    assert "SparseLSSVC" in message
    if set(options) <= {"solver"}:  # otherwise a factorisation is needed
        assert "solver='cg'" in message
    (needed,) = re.findall(r"([\d,]+) bytes", message)
    assert int(needed.replace(",", "")) >= 8 * m * m
    assert "cache_size" in message
    assert peak.bytes < 40 * MB
    assert time.process_time() - start < 5  # at once: no pass over pairs of rows


def test_automatic_cache_size_refuses_what_the_machine_does_not_have():
    m = 1_000_000  # 8 TB
    with traced() as peak, pytest.raises(MemoryError, match="SparseLSSVR"):
        LSSVR().fit(np.arange(m, dtype=np.float32)[:, None], np.arange(m))
    assert peak.bytes < 100 * MB


@pytest.mark.parametrize(
    "model",
    [
        LSSVR(cache_size=15.0),
        LSSVR(cache_size=15.0, solver="cholesky"),
        LSSVR(cache_size=15.0, kernel="laplacian"),
        LSSVR(cache_size=30.0, C="loo"),
        LSSVR(cache_size=30.0, C="gcv"),
        LSSVR(cache_size=0.01, solver="cg"),
    ],
    ids=lambda model: repr(model).replace(" ", "").replace("\n", ""),
)
def test_cache_size_too_small_is_refused_before_allocating(model):
    with traced() as peak, pytest.raises(MemoryError, match="cache_size allows"):
        model.fit(X, TARGET)
    assert peak.bytes < 4 * MB


def test_cg_does_not_recommend_itself():
    with pytest.raises(MemoryError) as refusal:
        LSSVR(cache_size=0.01, solver="cg").fit(X, TARGET)
    assert "SparseLSSVR" in str(refusal.value)
    assert "solver='cg'" not in str(refusal.value)


@pytest.mark.parametrize("model", [LSSVC("loo"), LSSVC("gcv"), LSSVC(calibrate=True)], ids=str)
def test_what_needs_a_factorisation_recommends_cg_only_without_it(model):
    with pytest.raises(MemoryError) as refusal:
        model.set_params(cache_size=1.0).fit(X, LABELS)
    before, found, _ = str(refusal.value).partition("solver='cg'")
    assert not found or "fixed C" in before or "without calibrate" in before.lower()


def test_a_budget_of_the_stated_bytes_suffices():
    for options in ({}, {"C": "gcv"}, {"solver": "cg", "max_iter": 5}):
        needed = LSSVR(**options).fit(X[:300], TARGET[:300]).fit_report_["bytes"]
        exact = LSSVR(cache_size=(needed + 1) / MB, **options).fit(X[:300], TARGET[:300])
        assert exact.fit_report_["bytes"] == needed
        if options.get("solver") != "cg":  # which recomputes the matrix instead
            with pytest.raises(MemoryError):
                LSSVR(cache_size=(needed - 1) / MB, **options).fit(X[:300], TARGET[:300])


def test_a_refused_fit_leaves_no_model():
    model = LSSVR(cache_size=1.0)
    with pytest.raises(MemoryError):
        model.fit(X, TARGET)
    assert not hasattr(model, "dual_coef_")
    model.set_params(cache_size="auto").fit(X[:50], TARGET[:50])
    assert model.predict(X[:2]).shape == (2,)
