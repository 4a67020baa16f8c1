"""The Matérn kernels: accuracy where rows are nearly equal, and slopes."""

from __future__ import annotations

from itertools import product

import array_api_strict
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from leansvm.kernels import FUNCTIONS, Kernel, radial
from leansvm.kernels import _radial as module
from tests.loops import case

MATERN = ["matern12", "matern32", "matern52"]
every_matern = pytest.mark.parametrize("name", MATERN)


@every_matern
def test_nearly_equal_rows(name, points, direct):
    # the product alone is off by 1e-6 here in Matérn-1/2
    for d, gap in product([1, 5, 300], [0.0, 1e-12, 1e-9, 1e-7, 1e-5, 1e-3]):
        Z = points(50, d, mean=2.0)
        X = Z + gap * points(50, d, seed=1)
        gamma = 20.0 / d
        expected = direct(name, X, Z, gamma)
        tol = 1e-7 if name == "matern12" else 1e-9
        for convert in (np.asarray, sparse.csr_array):
            with case(d=d, gap=gap, convert=convert):
                K = Kernel(name, gamma=gamma).block(convert(X), convert(Z))
                assert_allclose(K, expected, rtol=0, atol=tol)
                if gap == 0.0 and name == "matern12":
                    assert_array_equal(K.diagonal(), 1.0)


def test_nearly_equal_rows_in_float32(points, direct):
    gammas = 0.1, 2.0, 50.0, [0.3, 0.1, 2.0]
    for gap, gamma in product([0.0, 1e-6, 1e-4, 1e-2], gammas):
        with case(gap=gap, gamma=gamma):
            Z = points(200, 3, mean=1.0, dtype=np.float32)
            X = (Z + gap * points(200, 3, seed=1)).astype(np.float32)
            K = Kernel("matern12", gamma=gamma).block(X, Z)
            assert K.dtype == np.float32
            assert_allclose(K, direct("matern12", X, Z, gamma), rtol=0, atol=5e-5)


@every_matern
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_array])
def test_many_copies_of_few_rows(name, convert, points, direct, monkeypatch):
    """So many pairs are equal that a tile is measured as a whole, from differences."""
    few = points(4, 3)
    X = few[np.random.default_rng(0).integers(4, size=400)]
    measured = []
    original = module.measure_near
    monkeypatch.setattr(
        module, "measure_near", lambda *args: measured.append(original(*args)) or measured[-1]
    )
    K = Kernel(name, gamma=0.7).block(convert(X), convert(X))
    assert not any(measured)
    assert bool(measured) == (name == "matern12")
    assert_allclose(K, direct(name, X, X, 0.7), rtol=0, atol=1e-9)
    assert_allclose(K.diagonal(), 1.0, rtol=0, atol=0 if name == "matern12" else 1e-12)


@every_matern
def test_the_compiled_pass_is_exact_to_rounding(name):
    # from the smallest to the largest distances; -1 stands for rounding below 0
    D = np.concatenate([[-1.0, 0.0], np.logspace(-300, 300, 5000), [np.inf]])
    function = FUNCTIONS[name]()
    factor = function.multiple
    found = function.in_place(factor * D)
    r = np.sqrt(factor * np.clip(D, 0.0, 1e7).astype(np.longdouble))
    polynomial = {"matern12": 1, "matern32": 1 + r, "matern52": 1 + r + r**2 / 3}[name]
    assert_allclose(found[r < 700], (polynomial * np.exp(-r))[r < 700].astype(float), rtol=1e-13)
    assert np.all((found[r >= 700] >= 0) & (found[r >= 700] < 1e-290))
    single = FUNCTIONS[name]().in_place((factor * D[D < 1e30]).astype(np.float32))
    assert_allclose(single, found[D < 1e30], rtol=2e-5, atol=1e-30)


@every_matern
@pytest.mark.parametrize("order", ["C", "F"])
def test_the_pass_writes_where_it_is_told(name, order):
    D = np.random.default_rng(0).gamma(1.0, size=(20, 30))
    expected = FUNCTIONS[name]().in_place(D.copy())
    spacious = np.full((40, 60), np.nan, order=order)
    spacious[::2, 5:35] = D
    assert_array_equal(FUNCTIONS[name]().in_place(spacious[::2, 5:35]), expected)
    assert_array_equal(spacious[::2, 5:35], expected)
    assert np.isnan(spacious[1::2]).all()


# ------------------------------------------------------------------ value and slope


@pytest.mark.parametrize("name", ["rbf", *MATERN])
@pytest.mark.parametrize("library", ["numpy", "strict", "torch"])
def test_radial_gives_value_and_slope(name, library, direct):
    D = np.concatenate([np.logspace(-3, 1.5, 40)])
    if library == "strict":
        given = array_api_strict.asarray(D)
    elif library == "torch":
        given = pytest.importorskip("torch", reason="torch is not installed").asarray(D)
    else:
        given = D
    value, slope = (np.asarray(found) for found in radial(name, given))
    expected = direct(name, np.sqrt(D)[:, None], np.zeros((1, 1)), 1.0)[:, 0]
    assert_allclose(value, expected, rtol=1e-13)
    step = 1e-6 * D
    difference = (radial(name, D + step)[0] - radial(name, D - step)[0]) / (2 * step)
    assert_allclose(slope, difference, rtol=1e-6, atol=1e-9)


def test_slopes_at_0():
    limits = {"rbf": -1.0, "matern12": -5e5, "matern32": -1.5, "matern52": -5.0 / 6.0}
    for name, limit in limits.items():
        value, slope = radial(name, np.zeros(2))
        assert_array_equal(value, 1.0)
        assert_allclose(slope, limit)
