"""No fit and no predict takes more than ``cache_size`` and a fifth above its data.

The cases are those of the table that ``python -m benchmarks budgets`` prints, each in a process
of its own, which has fitted a small model of the kind before.
"""

import pytest

from benchmarks._isolated import run_isolated
from benchmarks.budgets import CASES, EXCESS

QUICK = ["select pivoted-cholesky", "KernelBasis", "SparseLSSVC all"]


def assert_within(found, cache_size):
    assert found["fit [MB]"] <= EXCESS * cache_size
    assert found["predict [MB]"] <= EXCESS * cache_size
    if found["outcome"] != "fitted":
        assert "bytes" in found["outcome"] and "cache_size" in found["outcome"]


def test_budgets_are_kept():
    outcome = run_isolated(
        "benchmarks.budgets:peaks_of", names=QUICK, cache_size=50.0, threads=2, time_limit=100
    )
    assert outcome.ok, outcome.status
    for name in QUICK:
        assert outcome.value[name]["outcome"] == "fitted"
        assert_within(outcome.value[name], 50.0)


@pytest.mark.slow
@pytest.mark.parametrize("cache_size", [50.0, 100.0])
@pytest.mark.parametrize("name", CASES)
def test_every_estimator_keeps_its_budget(name, cache_size):
    outcome = run_isolated(
        "benchmarks.budgets:peaks", name=name, cache_size=cache_size, threads=2, time_limit=300
    )
    assert outcome.ok, outcome.status
    assert_within(outcome.value, cache_size)
