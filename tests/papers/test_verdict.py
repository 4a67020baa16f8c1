"""The rules by which a row counts as reproduced."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leansvm.papers._published import Printed, Row, Table, paper
from leansvm.papers._verdict import Verdict, agrees, judge, summarise


def _judged(metric, printed, ours, tolerance, **more):
    row = Row("fang2019", "table-9", {"method": "x"}, {metric: printed}, {}, **more)
    table = Table("fang2019", "table-9", "results", "", {}, tolerance, (row,))
    entry = {"status": "done", "metrics": {metric: {"mean": ours, "std": 0.0, "n": 1}}}
    return judge(row, table, entry).verdict


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        (90.0, Verdict.REACHED),
        (92.0, Verdict.REACHED),
        (92.1, Verdict.BETTER),
        (89.5, Verdict.WITHIN),
        (89.0, Verdict.WITHIN),
        (88.9, Verdict.SHORT),
    ],
)
def test_accuracy(ours, verdict):
    tolerance = {"points": 0.3, "stds": 2}
    assert _judged("test_accuracy", Printed(90.0, 0.5), ours, tolerance) == verdict


def test_points_hold_where_no_deviation_is_printed():
    tolerance = {"points": 0.3, "stds": 2}
    assert _judged("test_error", Printed(5.0), 5.3, tolerance) == Verdict.WITHIN
    assert _judged("test_error", Printed(5.0), 5.4, tolerance) == Verdict.SHORT


@given(
    printed=st.floats(0, 100), ours=st.floats(0, 100), better=st.floats(0, 10),
    std=st.floats(0, 5),
)  # fmt: skip
def test_a_better_figure_never_gets_a_worse_verdict(printed, ours, better, std):
    order = [Verdict.SHORT, Verdict.WITHIN, Verdict.REACHED, Verdict.BETTER]
    tolerance = {"points": 0.1, "stds": 1}
    one = _judged("test_error", Printed(printed, std), ours, tolerance)
    other = _judged("test_error", Printed(printed, std), ours - better, tolerance)
    assert order.index(other) >= order.index(one)


def test_times_are_not_judged():
    assert _judged("train_time", Printed(1.0), 100.0, None) == Verdict.MEASURED


def test_exact_numbers():
    assert _judged("n_features", Printed(60), 61.0, None) == Verdict.SHORT
    assert _judged("bias", Printed(-0.9999), -0.99990001, None) == Verdict.REACHED


@pytest.mark.parametrize("metric", ["n_features", "C", "gamma", "loss_difference"])
def test_what_was_not_fitted_is_no_result(metric):
    assert _judged(metric, Printed(60), 60.0, None) == Verdict.SETTINGS
    assert _judged(metric, Printed(60), 61.0, None) == Verdict.SHORT


def test_the_worst_metric_decides():
    row = next(r for r in paper("peng2016").tables["table-1"].rows if r.method == "RLSSVM")
    table = paper("peng2016").tables["table-1"]
    metrics = {m: {"mean": p.mean, "std": 0.0, "n": 1} for m, p in row.published.items()}
    assert judge(row, table, {"status": "done", "metrics": metrics}).verdict == Verdict.REACHED
    metrics["bias"]["mean"] += 0.01
    assert judge(row, table, {"status": "done", "metrics": metrics}).verdict == Verdict.SHORT


def test_what_was_not_run():
    row = paper("fang2019").tables["table-1"].rows[0]
    table = paper("fang2019").tables["table-1"]
    assert judge(row, table, None).verdict == Verdict.NOT_RUN
    skipped = judge(row, table, {"status": "skipped", "reason": "no data"})
    assert (skipped.verdict, skipped.text) == (Verdict.NOT_RUN, "no data")
    failed = judge(row, table, {"status": "failed", "reason": "ValueError: x"})
    assert failed.verdict == Verdict.FAILED
    assert judge(replace(row, source="[1]"), table, None).verdict == Verdict.QUOTED


def test_counts_are_compared():
    assert agrees("n_sv", Printed(100.0, 10.0), 119.0)
    assert not agrees("n_sv", Printed(100.0, 1.0), 106.0)
    assert agrees("train_time", Printed(1.0), 5.0) is None


def test_summaries():
    assert summarise([1.0, 3.0]) == {"mean": 2.0, "std": 1.0, "n": 2}
    assert summarise([1.0, 1.0, 100.0], seconds=True)["mean"] == 1.0
