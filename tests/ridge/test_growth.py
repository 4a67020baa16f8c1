"""Growing a basis: where doubling stops."""

from types import SimpleNamespace

import numpy as np
import pytest

from leansvm.ridge.growth import grow


@pytest.mark.parametrize(
    ("errors", "size"),
    [
        ({50: 1.0, 100: 0.5, 200: 0.499, 400: 0.1}, 100),
        ({50: 1.0, 100: 0.5, 200: np.nan, 400: 0.1}, 100),
        ({50: np.nan, 100: np.nan}, 50),
        ({50: np.inf, 100: 1.0, 200: 0.5, 400: 0.1}, 400),
    ],
)
def test_growth_ends_where_the_error_hardly_falls_or_is_no_number(errors, size):
    def solve(size):
        found = SimpleNamespace(error=errors[size])
        return SimpleNamespace(features=SimpleNamespace(size=size), solution=found)

    assert grow(solve, 50, 400).features.size == size
