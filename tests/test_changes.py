"""What counts as a change between two runs of a benchmark."""

import pytest

from benchmarks.changes import verdict


@pytest.mark.parametrize(
    ("before", "now", "goal", "expected"),
    [
        ("1.00", "1.09", "<= 1.3", "same"),
        ("1.00", "1.12", "<= 1.3", "WORSE"),
        ("1.00", "0.85", "<= 1.3", "better"),
        ("3.00", "2.75", ">= 2", "same"),
        ("3.00", "2.6", ">= 2", "WORSE"),
        ("3.00", "3.4", ">= 2", "better"),
        ("-0.01", "-0.03", ">= -0.5", "same"),  # next to nothing, both
        ("-0.01", "-0.2", ">= -0.5", "WORSE"),
        ("the same", "another", "the same", "WORSE"),
        ("another", "the same", "the same", "better"),
    ],
)
def test_verdicts(before, now, goal, expected):
    assert verdict(before, now, goal) == expected
