"""Losses against the formulas of zhou2013's Table 1, finite differences and brute-force suprema."""

import math
import warnings
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize_scalar

from leansvm.losses import (
    Huber,
    Logistic,
    Loss,
    Squared,
    SquaredHinge,
    SymmetricHuber,
    check_loss,
    get_loss,
)
from tests.loops import case

LOSSES = [
    Squared(),
    SquaredHinge(),
    Huber(0.5),
    Huber(1e-4),
    SymmetricHuber(0.7),
    SymmetricHuber(30.0),
    Logistic(1.0),
    Logistic(1e4),
]
METHODS = ["value", "derivative", "second_derivative", "conjugate"]
EXTREMES = np.array([-1e4, -1.0, -1e-4, -1e-300, 0.0, 1e-300, 1e-4, 1.0, 1e4])

slacks = st.floats(-1e4, 1e4)


def label(loss):
    return f"{type(loss).__name__}-{loss.max_curvature:g}-{loss.domain[1]:g}"


every_loss = pytest.mark.parametrize("loss", LOSSES, ids=label)


def hinge(u):
    return np.maximum(0.0, u)


def breakpoints(loss):
    """Where L'' jumps."""
    if isinstance(loss, SquaredHinge):
        return (0.0,)
    return (-loss.delta, loss.delta) if isinstance(loss, Huber | SymmetricHuber) else ()


def width(loss):
    """The scale of u on which the loss bends."""
    return max([1.0 / loss.max_curvature, *np.abs(breakpoints(loss))])


def grid_off_breakpoints(loss):
    u = np.linspace(-4.0, 4.0, 161) * width(loss)
    far = [np.abs(u - k) > 1e-3 * width(loss) for k in breakpoints(loss)]
    return u[np.all(far, axis=0)] if far else u


def points_of_domain(loss, n=23):
    low, high = np.clip(loss.domain, -5.0, 5.0)
    return np.linspace(low, high, n)


def table_1(loss):
    """L and L* exactly as printed (|u| in the Huber row)."""
    if isinstance(loss, Squared):
        return (lambda u: u**2 / 2), (lambda v: v**2 / 2)
    if isinstance(loss, SquaredHinge):
        return (lambda u: hinge(u) ** 2 / 2), (lambda v: np.where(v >= 0, v**2 / 2, np.inf))
    if isinstance(loss, Huber):
        d = loss.delta
        return (
            lambda u: np.where(np.abs(u) > d, hinge(u), (u + d) ** 2 / (4 * d)),
            lambda v: np.where((v >= 0) & (v <= 1), d * v * (v - 1), np.inf),
        )
    if isinstance(loss, SymmetricHuber):
        d = loss.delta
        return (
            lambda u: np.where(np.abs(u) <= d, u**2 / 2, d * (np.abs(u) - d / 2)),
            lambda v: np.where(np.abs(v) <= d, v**2 / 2, np.inf),
        )
    p = loss.p

    def entropy(v):
        with np.errstate(divide="ignore", invalid="ignore"):
            inner = ((1 - v) * np.log(1 - v) + v * np.log(v)) / p
        inner = np.where((v == 0) | (v == 1), 0.0, inner)
        return np.where((v >= 0) & (v <= 1), inner, np.inf)

    return (lambda u: np.logaddexp(0.0, p * u) / p), entropy


# --- formulas ----------------------------------------------------------------


@every_loss
def test_formulas_of_table_1(loss):
    value, conjugate = table_1(loss)
    u = np.linspace(-4.0, 4.0, 401) * width(loss)
    assert_allclose(loss.value(u), value(u), rtol=1e-12, atol=1e-15 * width(loss))
    v = np.linspace(-2.0, 2.0, 401)
    assert_allclose(loss.conjugate(v), conjugate(v), rtol=1e-12, atol=1e-15 * width(loss))


@every_loss
def test_derivative_against_finite_differences(loss):
    u, h = grid_off_breakpoints(loss), 1e-5 * width(loss)
    numeric = (loss.value(u + h) - loss.value(u - h)) / (2 * h)
    assert_allclose(loss.derivative(u), numeric, rtol=1e-8, atol=1e-8)


@every_loss
def test_second_derivative_against_finite_differences(loss):
    u, h = grid_off_breakpoints(loss), 1e-5 * width(loss)
    numeric = (loss.derivative(u + h) - loss.derivative(u - h)) / (2 * h)
    assert_allclose(
        loss.second_derivative(u), numeric, rtol=1e-7, atol=1e-8 * max(1.0, loss.max_curvature)
    )


def test_value_and_derivative_are_continuous_at_breakpoints():
    bent = [(loss, k) for loss in LOSSES for k in breakpoints(loss)]
    assert {type(loss) for loss, _ in bent} == {SquaredHinge, Huber, SymmetricHuber}
    for loss, k in bent:
        sides = np.nextafter(k, [-np.inf, np.inf])
        for f in (loss.value, loss.derivative):
            assert_allclose(f(sides), f(k), rtol=1e-12, atol=1e-14, err_msg=f"{label(loss)} at {k}")


def test_second_derivative_at_breakpoints():
    assert SquaredHinge().second_derivative(0.0) == 0.0
    assert_array_equal(Huber(0.5).second_derivative([-0.5, 0.5]), [1.0, 1.0])
    assert_array_equal(SymmetricHuber(0.5).second_derivative([-0.5, 0.5]), [0.0, 0.0])


@every_loss
def test_curvature_attributes(loss):
    u = np.append(grid_off_breakpoints(loss), 0.25 * width(loss))
    curvature = loss.second_derivative(u)
    assert curvature.max() == pytest.approx(loss.max_curvature, rel=1e-3)
    assert curvature.max() <= loss.max_curvature
    only_two_values = set(np.unique(curvature)) <= {0.0, loss.max_curvature}
    assert only_two_values == loss.curvature_is_piecewise_constant
    # L'' jumps exactly at the breakpoints
    step = 1e-9 * width(loss)
    for k in breakpoints(loss):
        left, right = loss.second_derivative([k - step, k + step])
        assert abs(left - right) == loss.max_curvature
    if loss.curvature_is_piecewise_constant:
        dense = np.linspace(-4.0, 4.0, 10_000) * width(loss)
        jumps = np.count_nonzero(np.diff(loss.second_derivative(dense)))
        assert jumps == len(breakpoints(loss))


@every_loss
def test_symmetric(loss):
    u = np.linspace(0.1, 3.0, 30) * width(loss)
    assert np.array_equal(loss.value(u), loss.value(-u)) == loss.symmetric


# --- conjugate ---------------------------------------------------------------


@every_loss
def test_conjugate_against_brute_force(loss):
    """A fine grid brackets the supremum, a bounded search sharpens it."""
    v = points_of_domain(loss)[1:-1]
    u = np.linspace(-40.0, 40.0, 4001) * width(loss)
    gain = u * v[:, None] - loss.value(u)
    step = u[1] - u[0]
    for k, best in enumerate(u[gain.argmax(axis=1)]):
        found = minimize_scalar(
            lambda t, k=k: float(loss.value(t) - t * v[k]) / width(loss),
            bounds=(best - step, best + step),
            method="bounded",
            options={"xatol": 1e-9 * width(loss)},
        )
        top = -found.fun * width(loss)
        assert_allclose(loss.conjugate(v[k]), top, rtol=1e-8, atol=1e-10 * width(loss))


def test_conjugate_ends_of_domain():
    ends = [
        (loss, end, outwards)
        for loss in LOSSES
        for end, outwards in zip(loss.domain, (-np.inf, np.inf), strict=True)
        if np.isfinite(end)
    ]
    assert len(ends) == 13  # one of the squared hinge, none of the squares, two of the others
    for loss, end, outwards in ends:
        with case(loss=label(loss), end=end):
            assert np.isfinite(loss.conjugate(end))
            assert loss.conjugate(np.nextafter(end, outwards)) == np.inf
            assert loss.conjugate(end + np.sign(outwards) * 1e200) == np.inf


@pytest.mark.parametrize("loss", [Huber(0.3), Logistic(2.0)])
def test_conjugate_is_zero_at_zero_and_one(loss):
    assert_array_equal(loss.conjugate([0.0, 1.0]), [0.0, 0.0])


@given(u=slacks, t=st.floats(0.0, 1.0))
def test_fenchel_young_inequality(u, t):
    for loss in LOSSES:
        low, high = np.clip(loss.domain, -1e4, 1e4)
        v = min(max(low + t * (high - low), low), high)
        value, conjugate = loss.value(u), loss.conjugate(v)
        rounding = 1e-14 * (abs(u * v) + value + abs(conjugate) + width(loss))
        assert value + conjugate >= u * v - rounding, label(loss)


@given(u=slacks)
def test_fenchel_young_equality(u):
    for loss in LOSSES:
        v = loss.derivative(u)
        value, conjugate = loss.value(u), loss.conjugate(v)
        rounding = 1e-14 * (abs(u) * (1.0 + abs(v)) + value + abs(conjugate) + width(loss))
        assert abs(value + conjugate - u * v) <= rounding, label(loss)


# --- shape of the losses -----------------------------------------------------


@given(a=slacks, b=slacks)
def test_convex(a, b):
    for loss in LOSSES:
        low, high = loss.derivative([min(a, b), max(a, b)])
        assert low <= high + 1e-15 * abs(high), label(loss)
        assert loss.domain[0] <= low, label(loss)
        assert high <= loss.domain[1], label(loss)
        middle, ends = loss.value(0.5 * a + 0.5 * b), loss.value([a, b])
        assert middle <= ends.mean() * (1 + 1e-14) + 1e-300, label(loss)
        assert np.all(loss.second_derivative([a, b]) >= 0), label(loss)


@pytest.mark.parametrize("delta", [1.0, 1e-2, 1e-4])
def test_huber_tends_to_the_hinge(delta):
    u = np.concatenate([np.linspace(-3.0, 3.0, 601), np.linspace(-2.0, 2.0, 401) * delta])
    distance = Huber(delta).value(u) - hinge(u)
    assert distance.min() >= 0
    assert_allclose(distance.max(), delta / 4, rtol=1e-12)
    assert_allclose(Huber(delta).value(0.0), delta / 4, rtol=1e-15)


@pytest.mark.parametrize("p", [1.0, 10.0, 1e4])
def test_logistic_tends_to_the_hinge(p):
    u = np.concatenate([np.linspace(-3.0, 3.0, 601), np.linspace(-2.0, 2.0, 401) / p])
    distance = Logistic(p).value(u) - hinge(u)
    assert distance.min() >= 0
    assert_allclose(distance.max(), math.log(2) / p, rtol=1e-12)
    assert_allclose(Logistic(p).value(0.0), math.log(2) / p, rtol=1e-15)


def test_logistic_with_another_margin_is_the_same_loss_moved():
    u, v = np.linspace(-3.0, 3.0, 61), np.linspace(0.0, 1.0, 11)
    hinge_like, moved = Logistic(2.0), Logistic(2.0, margin=0.25)
    for method in ("value", "derivative", "second_derivative"):
        assert_allclose(getattr(moved, method)(u), getattr(hinge_like, method)(u - 0.75))
    assert_allclose(moved.conjugate(v), hinge_like.conjugate(v) + 0.75 * v)
    assert moved.smoothed_over(1e3).margin == 0.25
    assert [loss.margin for loss in Logistic(1e3, margin=0.0).smoothing_path()] == [0.0] * 3
    # logistic regression: decision values are log odds
    assert_allclose(Logistic(1.0, margin=0.0).value(1.0 - u), np.logaddexp(0.0, -u))
    assert_allclose(Logistic(1.0, margin=0.0).log_odds(u), u, atol=1e-15)


def test_symmetric_huber_with_large_delta_is_squared():
    u = np.linspace(-3.0, 3.0, 61)
    for method in ("value", "derivative", "second_derivative"):
        assert_array_equal(getattr(SymmetricHuber(10.0), method)(u), getattr(Squared(), method)(u))


@given(u=slacks)
def test_hinge_like_losses_lie_above_the_hinge(u):
    for loss in (Huber(1.0), Huber(1e-4), Logistic(1.0), Logistic(1e4)):
        assert loss.value(u) >= max(0.0, u), label(loss)
        assert 0.0 <= loss.derivative(u) <= 1.0, label(loss)


# --- numerics and arrays -----------------------------------------------------


@every_loss
def test_extremes_are_safe(loss):
    for method, dtype in product(METHODS, [np.float32, np.float64]):
        with warnings.catch_warnings(), np.errstate(all="raise", under="ignore"):
            warnings.simplefilter("error")
            with case(method=method, dtype=dtype):
                result = getattr(loss, method)(EXTREMES.astype(dtype))
        assert not np.isnan(result).any(), (method, dtype)
        if method != "conjugate":
            assert np.isfinite(result).all(), (method, dtype)


@every_loss
def test_dtype_and_shape_are_kept(loss):
    for method, dtype in product(METHODS, [np.float32, np.float64, np.longdouble]):
        with case(method=method, dtype=dtype):
            u = np.linspace(-2.0, 2.0, 24, dtype=dtype).reshape(2, 3, 4)
            before = u.copy()
            result = getattr(loss, method)(u)
            assert result.dtype == dtype
            assert result.shape == u.shape
            assert not np.shares_memory(result, u)
            assert_array_equal(u, before)


@every_loss
def test_float32_is_close_to_float64(loss):
    for method in METHODS:
        u = np.linspace(-2.0, 2.0, 41) * min(1.0, width(loss)) + 0.01 * width(loss)
        if method == "conjugate":
            u = points_of_domain(loss)[1:-1]
        single, expected = getattr(loss, method)(u.astype(np.float32)), getattr(loss, method)(u)
        assert_allclose(single, expected, rtol=1e-5, atol=1e-6 * width(loss), err_msg=method)


def test_numpy_parameters_do_not_change_the_dtype():
    u = np.linspace(-1.0, 1.0, 5, dtype=np.float32)
    losses = Huber(np.float64(0.1)), SymmetricHuber(np.float64(0.1)), Logistic(np.int64(3))
    for loss, method in product(losses, METHODS):
        assert getattr(loss, method)(u).dtype == np.float32, (label(loss), method)


@every_loss
def test_scalars_lists_and_integers(loss):
    for method in METHODS:
        with case(method=method):
            f = getattr(loss, method)
            expected = f(np.array([-1.0, 0.0, 2.0]))
            assert_array_equal(f([-1, 0, 2]), expected)
            assert_array_equal(f(np.array([-1, 0, 2], dtype=np.int32)), expected)
            assert f(np.array([-1, 0, 2], dtype=np.int32)).dtype == np.float64
            assert f(2) == f(2.0) == f(np.float64(2.0)) == expected[2]
            assert f(np.empty(0)).shape == (0,)


@pytest.mark.parametrize("library", ["array_api_strict", "torch"])
def test_other_array_libraries(library):
    xp = pytest.importorskip(library)
    for loss, method, dtype in product(LOSSES, METHODS, ["float32", "float64"]):
        with case(loss=label(loss), method=method, dtype=dtype):
            u = np.concatenate([EXTREMES, np.linspace(-0.1, 1.1, 14)]).astype(dtype)
            result = getattr(loss, method)(xp.asarray(u))
            assert type(result) is type(xp.asarray(u))
            assert result.dtype == getattr(xp, dtype)
            rtol = 1e-5 if dtype == "float32" else 1e-12
            back = np.from_dlpack(result)
            assert_allclose(back, getattr(loss, method)(u), rtol=rtol, atol=rtol * 1e-3)


@pytest.mark.parametrize("library", ["numpy", "array_api_strict", "torch"])
def test_derivative_never_leaves_the_domain_of_the_conjugate(library):
    """Also where delta is not a float32: a duality gap must not become inf by rounding."""
    xp = pytest.importorskip(library)
    for loss, dtype in product(LOSSES, ["float32", "float64"]):
        u = np.concatenate([EXTREMES, np.linspace(-4.0, 4.0, 1001) * width(loss)]).astype(dtype)
        back = np.from_dlpack(loss.conjugate(loss.derivative(xp.asarray(u))))
        assert np.isfinite(back).all(), (label(loss), dtype)


# --- choosing a loss ---------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "task", "expected"),
    [
        ("squared", "classification", Squared),
        ("squared_hinge", "classification", SquaredHinge),
        ("huber", "classification", Huber),
        ("logistic", "classification", Logistic),
        ("squared", "regression", Squared),
        ("huber", "regression", SymmetricHuber),
    ],
)
def test_get_loss(name, task, expected):
    loss = get_loss(name, task)
    assert type(loss) is expected
    assert loss.name == name
    assert loss.symmetric or task == "classification"


def test_get_loss_parameters():
    assert get_loss("huber").delta == 1e-4
    assert get_loss("huber", delta=0.2, p=-1.0).delta == 0.2  # p is not looked at
    assert get_loss("huber", "regression", delta=0.2).delta == 0.2
    assert get_loss("logistic").p == 1e4
    assert get_loss("logistic", p=3, delta=-1.0).p == 3.0
    get_loss("squared", delta=-1.0, p=-1.0)


@pytest.mark.parametrize("name", ["hinge", "Squared", None, ["squared"]])
def test_unknown_loss(name):
    message = r"loss must be one of \['huber', 'logistic', 'squared', 'squared_hinge'\] for class"
    with pytest.raises(ValueError, match=message):
        get_loss(name)


@pytest.mark.parametrize("name", ["squared_hinge", "logistic"])
def test_one_sided_losses_are_refused_for_regression(name):
    message = rf"loss must be one of \['huber', 'squared'\] for regression, got '{name}'"
    with pytest.raises(ValueError, match=message):
        get_loss(name, "regression")


def test_unknown_task():
    message = r"task must be one of \['classification', 'regression'\], got 'ranking'"
    with pytest.raises(ValueError, match=message):
        get_loss("squared", "ranking")


@pytest.mark.parametrize(
    ("name", "task", "parameter"),
    [
        ("huber", "classification", "delta"),
        ("huber", "regression", "delta"),
        ("logistic", "classification", "p"),
    ],
)
def test_bad_parameters(name, task, parameter):
    for bad in (0, -1.0, np.nan, np.inf, "small", [1.0], 1j):
        refused = pytest.raises(
            ValueError, match=rf"^{parameter} must be a finite number > 0, got "
        )
        with case(bad=bad), refused:
            get_loss(name, task, **{parameter: bad})


# --- continuation ------------------------------------------------------------


def test_smoothing_path():
    deltas = [loss.delta for loss in Huber(1e-4).smoothing_path()]
    assert_allclose(deltas, [1.0, 0.1, 0.01, 1e-3, 1e-4], rtol=1e-15)
    assert [loss.delta for loss in Huber(0.03).smoothing_path()] == [1.0, 0.1, 0.03]
    assert [loss.p for loss in Logistic(1e4).smoothing_path()] == [10.0, 100.0, 1e3, 1e4]
    assert [loss.p for loss in Logistic(50.0).smoothing_path()] == [10.0, 50.0]


@pytest.mark.parametrize(
    "loss", [Squared(), SquaredHinge(), SymmetricHuber(0.1), Huber(1.0), Huber(5.0), Logistic(10.0)]
)
def test_smoothing_path_of_smooth_losses_is_the_loss_alone(loss):
    assert loss.smoothing_path() == (loss,)


@every_loss
def test_smoothing_path_ends_with_the_loss(loss):
    path = loss.smoothing_path()
    assert path[-1] is loss
    curvatures = [stage.max_curvature for stage in path]
    assert curvatures == sorted(curvatures)


@pytest.mark.parametrize("method", METHODS)
def test_a_loss_that_lacks_a_method_is_refused(method):
    class Half(Loss):
        name = "half"

    with pytest.raises(NotImplementedError, match=f"Half.{method} is not written"):
        getattr(Half(), method)(0.5)


@every_loss
def test_every_loss_keeps_its_promises(loss):
    check_loss(loss)


class Own(Loss):
    """The squared hinge as a user may write it; each test breaks one of its promises."""

    domain = (0.0, math.inf)

    def value(self, u):
        return 0.5 * np.clip(u, 0, None) ** 2

    def derivative(self, u):
        return np.clip(u, 0, None)

    def second_derivative(self, u):
        return np.where(u > 0, 1.0, 0.0)

    def conjugate(self, v):
        return 0.5 * v * v


def test_a_loss_of_your_own_keeps_its_promises():
    check_loss(Own())


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"value": lambda self, u: u**2}, "slope of value differ most at u = -5: 0 and -10"),
        ({"second_derivative": lambda self, u: 0.0 * u}, "slope of derivative differ"),
        ({"conjugate": lambda self, v: v * v}, "value.u. . conjugate.derivative.u.. and u"),
        ({"domain": (0.0, 1.0)}, r"derivative is 5 at u = 5, outside domain = \(0, 1\): set"),
        ({"max_curvature": 0.5}, "max_curvature = 0.5: set max_curvature to the largest"),
        ({"max_curvature": 2.0}, "set curvature_is_piecewise_constant = False"),
        ({"symmetric": True}, "symmetric = True, but value"),
        ({"value": lambda self, u: 0.5}, "Own.value must return one number for every slack"),
    ],
)
def test_a_loss_that_contradicts_itself_is_refused(broken, message):
    loss = type("Own", (Own,), broken)()
    with pytest.raises(ValueError, match=message):
        check_loss(loss)


def test_a_concave_loss_is_refused():
    class Ramp(Own):
        """sin(u): neither convex nor bounded from the right side."""

        curvature_is_piecewise_constant = False

        def value(self, u):
            return np.sin(u)

        def derivative(self, u):
            return np.cos(u)

        def second_derivative(self, u):
            return -np.sin(u)

    with pytest.raises(ValueError, match="Ramp is not convex"):
        check_loss(Ramp())
