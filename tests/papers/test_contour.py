"""Level lines by marching squares."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leansvm.papers._contour import contours, regions

X = np.linspace(-2, 2, 81)
Y = np.linspace(-1.5, 1.5, 61)
GX, GY = np.meshgrid(X, Y)


def _area(line):
    x, y = line[:, 0], line[:, 1]
    return 0.5 * float(np.sum(x[:-1] * y[1:] - x[1:] * y[:-1]))


def test_a_circle_is_one_closed_line():
    lines = contours(X, Y, GX**2 + GY**2, 1.0)
    assert len(lines) == 1
    np.testing.assert_allclose(lines[0][0], lines[0][-1])
    np.testing.assert_allclose(np.hypot(*lines[0].T), 1.0, atol=1e-3)
    assert abs(_area(lines[0])) == pytest.approx(np.pi, rel=2e-3)


def test_a_linear_function_has_a_straight_line_from_edge_to_edge():
    lines = contours(X, Y, GX - 0.3 * GY, 0.1)
    assert len(lines) == 1
    np.testing.assert_allclose(lines[0][:, 0] - 0.3 * lines[0][:, 1], 0.1, atol=1e-12)
    assert {round(lines[0][0][1], 6), round(lines[0][-1][1], 6)} == {-1.5, 1.5}


def test_no_line_where_the_level_is_not_met():
    assert contours(X, Y, GX**2 + GY**2, -1.0) == []
    assert regions(X, Y, -np.ones_like(GX)) == []


def test_a_positive_function_fills_everything():
    (line,) = regions(X, Y, np.ones_like(GX))
    assert abs(_area(line)) == pytest.approx(4 * 3, rel=1e-4)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_regions_are_closed_and_cover_what_is_positive(seed):
    rng = np.random.default_rng(seed)
    waves, phases = rng.normal(size=(4, 2)) * 2, rng.uniform(0, 6, 4)
    values = sum(np.cos(w[0] * GX + w[1] * GY + p) for w, p in zip(waves, phases, strict=True))
    lines = regions(X, Y, values)
    assert all(np.array_equal(line[0], line[-1]) for line in lines)
    # even-odd: the number of lines around a point says on which side of zero it is
    points = rng.uniform([-1.9, -1.4], [1.9, 1.4], size=(40, 2))
    for px, py in points:
        exact = sum(np.cos(w[0] * px + w[1] * py + p) for w, p in zip(waves, phases, strict=True))
        if abs(exact) < 0.05:
            continue
        crossings = sum(_crossings(line, px, py) for line in lines)
        assert (crossings % 2 == 1) == (exact > 0)


def _crossings(line, px, py):
    (x0, y0), (x1, y1) = line[:-1].T, line[1:].T
    over = (y0 > py) != (y1 > py)
    at = x0[over] + (py - y0[over]) / (y1[over] - y0[over]) * (x1[over] - x0[over])
    return int(np.sum(at > px))
