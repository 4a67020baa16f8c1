"""The plan of a fit, from which the time to go is told: every phase that takes time is in it."""

import numpy as np
import pytest

from leansvm import SparseLSSVC


@pytest.mark.parametrize("n_basis", ["auto", 40])
def test_every_phase_that_takes_time_is_planned(n_basis):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    model = SparseLSSVC(n_basis=n_basis, random_state=0).fit(X, X[:, 0] * X[:, 1] > 0)
    plan = model._planned(*X.shape)
    planned = {phase for phase, work in plan.items() if work > 0}
    report = model.fit_report_
    taken = report["seconds"] | report["learning"]["seconds"]
    slow = {phase for phase, seconds in taken.items() if seconds > 0.1 * sum(taken.values())}
    assert slow - {"learn"} <= planned  # whose parts are planned


def test_sizes_are_planned_on_a_sample_and_the_pass_on_all_rows():
    few, many, more = (SparseLSSVC()._planned(n, 20) for n in (5_000, 100_000, 1_000_000))
    assert few["sums"] == 0
    assert many["sizes"] == more["sizes"] == 2 * few["sizes"]
    assert more["sums"] == pytest.approx(10 * many["sums"])
    assert more["solve"] == many["solve"]
