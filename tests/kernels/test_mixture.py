"""Mixtures of kernels: values, derivatives and averages against sums of plain kernels."""

import copy
import pickle
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from leansvm.inspection._dependence import averages
from leansvm.kernels import Kernel, Mixture, gradients, mixed_derivatives
from leansvm.kernels._columns import Curve

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 3)) * 2
Z = X[:30]
CLIP = (np.array([-2.0, -np.inf, -1.0]), np.array([2.0, np.inf, 1.5]))
LINEAR_CLIP = (np.array([-4.0, -9.0, -np.inf]), np.array([3.0, 9.0, np.inf]))
ORIGIN = np.array([0.1, 0.2, 0.3])
KNOTS = [
    (0, np.linspace(-3, 3, 7), np.sort(RNG.normal(size=7))),
    (2, np.linspace(-3, 3, 5), np.sort(RNG.normal(size=5))),
]
DISTANCES = ("rbf", "matern12", "matern32", "matern52", "laplacian")
ALL = {"clip": CLIP, "linear_clip": LINEAR_CLIP, "origin": ORIGIN, "knots": KNOTS}


def parts(names=DISTANCES, seed=0):
    rng = np.random.default_rng(seed)
    found = [(rng.uniform(0.1, 1), name, rng.uniform(0.1, 1, 5)) for name in names]
    return [*found, (0.2, "linear", np.array([0.5, 0.0, 0.7]))]


def reference(rows, points, mixture_parts, clip=None, linear_clip=None, origin=None, knots=()):
    """Return the sum of plain kernels, from columns that are made one by one."""

    def seen(A):
        inside = A if clip is None else np.clip(A, *clip)
        return np.column_stack([inside, *(np.interp(A[:, f], x, y) for f, x, y in knots)])

    def centred(A):
        return (A if linear_clip is None else np.clip(A, *linear_clip)) - (
            0 if origin is None else origin
        )

    total = np.zeros((len(rows), len(points)))
    for weight, name, gamma in mixture_parts:
        if name == "linear":
            total += weight * (centred(rows) * gamma) @ centred(points).T
        else:
            total += weight * Kernel(name, gamma=gamma).block(seen(rows), seen(points))
    return total


MIXTURE = Mixture(parts(), **ALL)


@cache
def expected():
    return reference(X, Z, parts(), **ALL)


def test_values():
    kernel = Kernel(MIXTURE)
    np.testing.assert_allclose(kernel.block(X, Z), expected(), rtol=0, atol=1e-13)
    np.testing.assert_allclose(kernel.diag(Z), np.diag(expected()), rtol=0, atol=1e-13)
    out = np.empty((200, 30))
    assert kernel.block(X, Z, out) is out
    np.testing.assert_array_equal(out, kernel.block(X, Z))
    assert kernel.block(X[:0], Z).shape == (0, 30)


def test_many_rows_are_as_few():
    rows = np.random.default_rng(1).normal(size=(70_000, 3))
    found = Kernel(MIXTURE).block(rows, Z)
    for start in (0, 32_760, 69_990):
        some = slice(start, start + 10)
        np.testing.assert_allclose(found[some], reference(rows[some], Z, parts(), **ALL), 0, 1e-13)


@pytest.mark.parametrize("name", DISTANCES)
def test_a_mixture_of_one_is_that_kernel(name):
    gamma = np.array([0.3, 0.0, 1.2])
    one, plain = Kernel(Mixture([(1.0, name, gamma)])), Kernel(name, gamma=gamma)
    np.testing.assert_array_equal(one.block(X, Z), plain.block(X, Z))
    np.testing.assert_array_equal(one.diag(X), plain.diag(X))
    assert one.has_unit_diagonal == plain.has_unit_diagonal


def test_clipped_mixture_of_one():
    gamma = np.array([0.3, 0.0, 1.2])
    one, plain = Mixture([(1.0, "rbf", gamma)], clip=CLIP), Kernel("rbf", gamma=gamma, clip=CLIP)
    np.testing.assert_array_equal(Kernel(one).block(X, Z), plain.block(X, Z))


@settings(max_examples=30, deadline=None)
@given(
    names=st.lists(st.sampled_from(DISTANCES), min_size=1, max_size=4, unique=True),
    seed=st.integers(0, 1000),
    use=st.sets(st.sampled_from(sorted(ALL))),
)
def test_values_of_any_mixture(names, seed, use):
    rng = np.random.default_rng(seed)
    rows, options = rng.standard_cauchy((40, 3)), {name: ALL[name] for name in use}
    width = 5 if "knots" in use else 3
    chosen = [(w, name, gamma[:width]) for w, name, gamma in parts(names, seed)]
    found = Kernel(Mixture(chosen, **options)).block(rows, rows[:7])
    wanted = reference(rows, rows[:7], chosen, **options)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def test_a_row_form_gives_the_same():
    form = Kernel(MIXTURE).row_form(Z)
    found = np.array([form(x) for x in X])
    np.testing.assert_allclose(found, expected(), rtol=0, atol=1e-13)
    again = pickle.loads(pickle.dumps(form))
    np.testing.assert_array_equal(again(X[3]), form(X[3]))


def test_permuted_features():
    order = np.array([2, 0, 1])
    place = np.argsort(order)
    moved = [
        (w, k, np.concatenate([np.asarray(g)[order], np.asarray(g)[3:]])) for w, k, g in parts()
    ]
    sides = {n: tuple(side[order] for side in ALL[n]) for n in ("clip", "linear_clip")}
    knots = [(int(place[f]), x, y) for f, x, y in KNOTS]
    mixture = Mixture(moved, origin=ORIGIN[order], knots=knots, **sides)
    found = Kernel(mixture).block(X[:, order], Z[:, order])
    np.testing.assert_allclose(found, expected(), rtol=0, atol=1e-13)


def test_float32():
    found = Kernel(MIXTURE).block(X.astype(np.float32), Z.astype(np.float32))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_torch(dtype):
    torch = pytest.importorskip("torch")
    rows, points = (torch.tensor(A, dtype=getattr(torch, dtype)) for A in (X, Z))
    kernel, atol = Kernel(MIXTURE), 1e-12 if dtype == "float64" else 2e-4
    found = kernel.block(rows, points)
    assert found.dtype == rows.dtype
    np.testing.assert_allclose(found.numpy(), expected(), rtol=0, atol=atol)
    diagonal = np.diag(reference(X, X, parts(), **ALL))
    np.testing.assert_allclose(kernel.diag(rows).numpy(), diagonal, rtol=1e-6, atol=atol)
    np.testing.assert_allclose(kernel.columns(rows)(4).numpy(), expected()[:, 4], rtol=0, atol=atol)


def test_csr_rows():
    rows = np.where(np.abs(X) > 2, X, 0.0)
    wanted = reference(rows, rows[:30], parts(), **ALL)
    found = Kernel(MIXTURE).block(sparse.csr_array(rows), sparse.csr_array(rows[:30]))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-13)
    chosen = [(w, k, g[:3]) for w, k, g in parts(("rbf", "matern32"))]
    found = Kernel(Mixture(chosen)).block(sparse.csr_array(rows), sparse.csr_array(rows[:30]))
    np.testing.assert_allclose(found, reference(rows, rows[:30], chosen), rtol=0, atol=1e-12)


# ------------------------------------------------------------------ derivatives

SMOOTH = Kernel(Mixture(parts(("rbf", "matern32", "matern52", "laplacian")), **ALL))
COEF = RNG.normal(size=(30, 2))
ROWS = X[100:115]


def test_gradients():
    h, found = 1e-6, gradients(SMOOTH, ROWS, Z, COEF)
    for f, step in enumerate(h * np.eye(3)):
        change = SMOOTH.block(ROWS + step, Z) - SMOOTH.block(ROWS - step, Z)
        np.testing.assert_allclose(found[:, f], change @ COEF / (2 * h), rtol=0, atol=1e-7)


def test_mixed_derivatives():
    h, pairs = 1e-6, np.array([[0, 1], [0, 2], [1, 2]])
    found = mixed_derivatives(SMOOTH, ROWS, Z, COEF, pairs)
    for place, (a, b) in enumerate(pairs):
        step = h * np.eye(3)[b]
        change = gradients(SMOOTH, ROWS + step, Z, COEF) - gradients(SMOOTH, ROWS - step, Z, COEF)
        np.testing.assert_allclose(found[:, place], change[:, a] / (2 * h), rtol=0, atol=1e-6)


@pytest.mark.parametrize("options", [{}, ALL], ids=["plain", "all"])
def test_partial_dependence(options):
    width = 5 if options else 3
    chosen = [(w, k, g[:width]) for w, k, g in parts()]
    kernel = Kernel(Mixture(chosen, **options))
    grid = np.linspace(-4, 4, 9)
    found = averages(kernel, X, Z, COEF, [(np.array([f]), grid[:, None]) for f in range(3)])
    for f in range(3):
        for v, value in enumerate(grid):
            rows = X.copy()
            rows[:, f] = value
            wanted = (kernel.block(rows, Z) @ COEF).mean(axis=0)
            np.testing.assert_allclose(found[f][v], wanted, rtol=0, atol=1e-11)


def test_slope_of_a_curve():
    curve = Curve(*KNOTS[0])
    at = np.array([-9.0, -2.5, 0.3, 2.9, 9.0])
    found = (curve(at + 1e-7) - curve(at - 1e-7)) / 2e-7
    np.testing.assert_allclose(curve.slope(at), found, atol=1e-6)


# ------------------------------------------------------------------ copies, words and bad input


@pytest.mark.parametrize("options", [{}, ALL], ids=["plain", "all"])
def test_numbers_copies_and_equality(options):
    width = 5 if options else 3
    chosen = [(w, k, g[:width]) for w, k, g in parts()]
    mixture = Mixture(chosen, **options)
    names = [part.kernel for part in mixture.parts]
    copies = (
        Mixture.from_numbers(names, mixture.numbers()),
        pickle.loads(pickle.dumps(mixture)),
        copy.deepcopy(mixture),
    )
    for other in copies:
        assert other == mixture
        np.testing.assert_array_equal(Kernel(other).block(X, Z), Kernel(mixture).block(X, Z))
    assert mixture != Mixture([(2 * w, k, g) for w, k, g in chosen], **options)
    assert mixture != Mixture(chosen[1:], **options)
    assert mixture != "auto"


def test_words():
    mixture = Mixture([(1.26, "rbf", [1.0]), (0.74, "linear", [1.0])])
    assert str(mixture) == "mixture of 63 % Gaussian, 37 % linear"
    assert str(MIXTURE).endswith("with 2 quantile features")
    assert "rbf" in repr(mixture)


G = np.ones(3)


@pytest.mark.parametrize(
    ("given_parts", "options", "words"),
    [
        ([], {}, "weight is above 0"),
        ([(0.0, "rbf", G), (0, "linear", G)], {}, "weight is above 0"),
        ([(-1.0, "rbf", G)], {}, "weight of 'rbf'"),
        ([(np.nan, "rbf", G)], {}, "weight of 'rbf'"),
        ([(np.inf, "rbf", G)], {}, "weight of 'rbf'"),
        ([(1.0, "poly", G)], {}, "parts of a mixture are"),
        ([(1.0, "rbf", -G)], {}, "gamma of 'rbf'"),
        ([(1.0, "rbf", [np.nan] * 3)], {}, "gamma of 'rbf'"),
        ([(1.0, "rbf", 1.0)], {}, "gamma of 'rbf'"),
        ([(1.0, "rbf", [])], {}, "one number for each feature"),
        ([(1.0, "rbf", G), (1.0, "laplacian", np.ones(4))], {}, "one number for each feature"),
        ([(1.0, "rbf", G)], {"knots": KNOTS}, "one number for each feature|there is no feature"),
        ([(1.0, "rbf", G)], {"clip": (np.zeros(2), np.ones(2))}, "one number for each feature"),
        ([(1.0, "rbf", G)], {"clip": (G, -G)}, "clip"),
        ([(1.0, "linear", G)], {"origin": [np.nan] * 3}, "origin must be finite"),
        ([(1.0, "linear", G)], {"origin": 1.0}, "one number for each feature"),
    ],
)
def test_bad_input(given_parts, options, words):
    with pytest.raises(ValueError, match=words):
        Mixture(given_parts, **options)


@pytest.mark.parametrize(
    "knots",
    [
        (0, [0.0], [1.0]),
        (0, [0.0, 0.0], [0.0, 1.0]),
        (0, [1.0, 0.0], [0.0, 1.0]),
        (0, [0.0, np.nan], [0.0, 1.0]),
        (0, [0.0, np.inf], [0.0, 1.0]),
        (0, [0.0, 1.0], [0.0, 0.5, 1.0]),
        (0, [0.0, 1.0], [1.0, 0.0]),
        (3, [0.0, 1.0], [0.0, 1.0]),
        (-1, [0.0, 1.0], [0.0, 1.0]),
        (0.5, [0.0, 1.0], [0.0, 1.0]),
        (np.nan, [0.0, 1.0], [0.0, 1.0]),
    ],
)
def test_bad_knots(knots):
    with pytest.raises(ValueError, match="knots"):
        Mixture([(1.0, "rbf", np.ones(4))], knots=[knots])


def test_rows_of_another_width():
    with pytest.raises(ValueError, match="features"):
        Kernel(MIXTURE).block(X[:, :2], Z[:, :2])


def test_two_parts_of_one_kernel_keep_their_scales():
    mixture = Mixture([(0.5, "rbf", [1.0]), (0.3, "linear", [2.0]), (0.2, "rbf", [3.0])])
    assert {name: gamma[0] for name, gamma in mixture.gamma_by_part.items()} == {
        "rbf": 1.0,
        "linear": 2.0,
        "rbf 2": 3.0,
    }
