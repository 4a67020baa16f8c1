"""Scales of features learned by leave-one-out."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.kernel_ridge import KernelRidge
from threadpoolctl import threadpool_limits

from leansvm.kernels import Kernel
from leansvm.learning import learn as module
from leansvm.learning import search as scale_search
from leansvm.learning.learn import learn_kernel
from leansvm.learning.objective import LooObjective
from leansvm.learning.sample import clipped_units, draw_sample, raw_kernel
from leansvm.learning.search import FIRST, SECOND
from leansvm.rows import MemoryBlocks

ENOUGH = 2**30
KERNELS = ["rbf", "matern12", "matern32", "matern52", "laplacian"]
every_kernel = pytest.mark.parametrize("kernel", KERNELS)


def friedman(n=300, d=5, seed=0):
    """Targets of two features; the others are useless."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] ** 2 + 0.05 * rng.normal(size=n)


def learn(X, y, kernels=("matern32",), *, weight=None, bias_penalty=0.0, seed=0, **options):
    blocks = MemoryBlocks(X, np.asarray(y, np.float64).reshape(X.shape[0], -1), weight)
    options = {"budget": ENOUGH, "on_iteration": None} | options
    return learn_kernel(blocks, kernels, bias_penalty=bias_penalty, random_state=seed, **options)


# ------------------------------------------------------------------ what is learned


@every_kernel
def test_useless_features_are_found(kernel):
    found = learn(*friedman(), [kernel])
    assert found.name == kernel
    assert found.scales.max() == 1.0
    assert found.scales[:2].min() > 0.1
    assert found.scales[2:].max() < 0.05
    assert (found.kernel.scales >= 0).all() and np.isfinite(found.kernel.scales).all()


@pytest.mark.parametrize("C", [0.1, 1.0, 100.0])
def test_scales_suit_the_c_that_is_given(C):
    # wide kernels that go with a large C are too wide for a small one
    X, y = friedman(600, seed=3)
    free, bound = learn(X[:300], y[:300], ["rbf"]), learn(X[:300], y[:300], ["rbf"], C=(C, C))
    errors = []
    for found in (free, bound):
        model = KernelRidge(alpha=1 / C, kernel="rbf", gamma=1.0)
        root = np.sqrt(found.kernel.scales)
        model.fit(X[:300] * root, y[:300] - y[:300].mean())
        errors.append(np.var(y[300:] - model.predict(X[300:] * root)))
    assert pytest.approx(C, rel=0.02) == bound.report["C"]  # rounded like the scales
    assert errors[1] < 1.02 * errors[0]
    if C < 1:  # far from the C that goes with the scales
        assert errors[1] < 0.9 * errors[0]


def test_many_useless_features():
    # like puma32H: 32 features of which 4 matter
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2500, 32))
    y = X[:, 3] * np.sin(1.5 * X[:, 17]) + 0.5 * np.tanh(X[:, 8] * X[:, 30])
    found = learn(X, y + 0.1 * rng.normal(size=len(y)))
    useful = [3, 8, 17, 30]
    assert np.delete(found.scales, useful).max() <= 0.01
    assert found.scales[useful].min() > 0.1
    assert found.report["dropped"] == np.delete(np.arange(32), useful).tolist()


@every_kernel
def test_importance_is_the_scale_of_standardised_features(kernel):
    X, y = friedman()
    X = X * [1.0, 10.0, 1e-3, 1.0, 1e4] + 7.0
    found = learn(X, y, [kernel])
    power = 1.0 if kernel == "laplacian" else 0.5
    expected = found.kernel.scales**power * X.std(axis=0)
    used = found.kernel.scales > 0  # bounds are the range of the rows: no tail is heavy
    assert_array_equal(
        np.array(found.kernel.clip)[:, used], [X.min(axis=0)[used], X.max(axis=0)[used]]
    )
    assert_allclose(found.scales, expected / expected.max(), rtol=1e-6, atol=1e-12)


@every_kernel
def test_gamma_and_clip_on_raw_rows_are_the_scales_of_standardised_ones(kernel):
    X, y = friedman(n=150)
    X[:3, 0] = 40.0  # far out in the tail
    X, gamma = X * [3.0, 1.0, 1e-3, 1.0, 1e5] + 5.0, np.array([0.3, 0.1, 0.2, 0.0, 0.5])
    blocks, rng = MemoryBlocks(X, y[:, None]), np.random.RandomState(0)
    sample = draw_sample(blocks, 150, rng, free_bias=True, budget=ENOUGH)
    name, of_raw, clip, dropped, _ = raw_kernel((kernel,), np.ones(1), gamma[None], sample)
    assert name == kernel and dropped == 3
    units, raw = sample.units, Kernel(kernel, gamma=of_raw, clip=clip)
    standardised = (np.clip(X, units.lower, units.upper) - units.centre) / units.spread
    assert np.abs(standardised).max() < 7.0
    assert_allclose(standardised.mean(axis=0), 0.0, atol=1e-10)
    assert_allclose(standardised.std(axis=0), 1.0, rtol=1e-10)
    expected = Kernel(kernel, gamma=gamma).block(standardised, standardised[:20])
    assert_allclose(raw.block(X, X[:20]), expected, rtol=0, atol=1e-7)


def test_units_change_nothing():
    X, y = friedman()
    found = learn(X, y)
    factor = np.array([1.0, 1e6, 1e-9, 3.0, 1.0])
    scaled = learn(X * factor + [0.0, 1e6, 0.0, 0.0, -4.0], y * 1e5 - 3.0)
    assert_allclose(scaled.kernel.scales * factor**2, found.kernel.scales, rtol=1e-3)
    assert_allclose(scaled.scales, found.scales, rtol=1e-3, atol=1e-6)


def test_permuting_features_permutes_the_scales():
    X, y = friedman()
    order = np.array([3, 0, 4, 1, 2])
    found, permuted = learn(X, y), learn(X[:, order], y)
    assert_allclose(permuted.kernel.scales, found.kernel.scales[order], rtol=1e-4)


@pytest.mark.parametrize("bias_penalty", [0.0, 1.0, np.inf])
def test_weights_are_repetitions(bias_penalty):
    X, y = friedman(n=120)
    times = np.random.default_rng(1).integers(0, 4, size=120)
    weighted = learn(X, y, weight=times.astype(float), bias_penalty=bias_penalty)
    repeated = learn(np.repeat(X, times, axis=0), np.repeat(y, times), bias_penalty=bias_penalty)
    assert_allclose(weighted.kernel.scales, repeated.kernel.scales, rtol=1e-6)
    assert_allclose(weighted.report["C"], repeated.report["C"], rtol=1e-6)
    assert not np.allclose(
        weighted.kernel.scales, learn(X, y, bias_penalty=bias_penalty).kernel.scales, rtol=1e-2
    )


@pytest.mark.parametrize("size", [100, 300], ids=["all-rows", "drawn"])
def test_the_unit_of_weights_goes_into_C(size, monkeypatch):
    monkeypatch.setattr(module, "SECOND", SECOND._replace(rows=150))
    X, y = friedman(n=size)
    plain, heavy = (learn(X, y, weight=np.full(size, unit)) for unit in (1.0, 1000.0))
    assert_allclose(heavy.kernel.scales, plain.kernel.scales, rtol=1e-6)
    assert_allclose(heavy.report["C"], plain.report["C"] / 1000.0, rtol=1e-6)


def test_rows_are_drawn_by_weight(monkeypatch):
    monkeypatch.setattr(module, "SECOND", SECOND._replace(rows=200))
    monkeypatch.setattr(module, "_LARGEST_SAMPLE", 200)
    X, y = friedman(n=600)
    other = friedman(n=600, seed=1)[0]
    y = np.where(np.arange(600) < 300, y, np.sin(2 * other[:, 0]))
    X = np.where(np.arange(600)[:, None] < 300, X, other)
    weight = np.where(np.arange(600) < 300, 1.0, 0.0)
    found = learn(X, y, weight=weight)
    assert found.report["rows"] == 200
    assert found.scales[1] > 0.1  # the rows of weight 0 do not depend on this feature


@pytest.mark.parametrize("zeros", [0, 1500])
def test_rows_of_no_weight_are_not_counted(zeros):
    X, y = friedman(n=500 + zeros)
    weight = np.where(np.arange(500 + zeros) < 500, 2.0, 0.0)
    weight[:100] = 5.0
    blocks, rng = MemoryBlocks(X, y[:, None], weight, tile_rows=300), np.random.RandomState(0)
    sample = draw_sample(blocks, 200, rng, free_bias=True, budget=ENOUGH)
    assert len(sample.X) == 200  # a part of the rows, for which a given C stays what it is
    assert sample.total_weight == 2.0 * 400 + 5.0 * 100


def test_several_outputs_share_the_scales():
    X, y = friedman()
    Y = np.column_stack([y, 1e4 * X[:, 3] + 1e6])
    found = learn(X, Y)
    assert found.scales[[0, 1, 3]].min() > 0.05
    assert found.scales[[2, 4]].max() < 0.05


def test_the_parts_of_a_mixture_are_weighed_by_leave_one_out():
    X = np.random.default_rng(0).uniform(-2, 2, size=(500, 2))
    smooth = np.sin(X[:, 0]) * np.cos(X[:, 1])
    rough = np.abs(X[:, 0] - 0.3) + np.abs(X[:, 1] + 0.2) + np.sign(X[:, 0])
    kernels = ("rbf", "matern32", "laplacian", "linear")
    for y, least, most in ((smooth, 0.0, 0.05), (rough, 0.3, 1.0)):
        found = learn(X, y, kernels)
        assert set(found.report["log_loo"]) == set(kernels)
        assert least <= found.report["weights"].get("laplacian", 0.0) <= most


@pytest.mark.parametrize("smooth", [True, False])
def test_a_gaussian_part_must_be_clearly_better_alone(smooth):
    X = np.random.default_rng(0).uniform(-2, 2, size=(400, 2))
    f = np.sin(2 * X[:, 0] + X[:, 1]) if smooth else np.abs(X[:, 0]) + (X[:, 1] > 0)
    kernels = ("rbf", "matern32", "laplacian", "linear")
    found = learn(X, f + 0.01 * np.random.default_rng(1).normal(size=400), kernels)
    errors = found.report["log_loo"]
    gain = min(errors["matern32"], errors["laplacian"]) - errors["rbf"]
    assert gain > 0.2 if smooth else gain < 0.0  # far from the bound of 0.1
    assert ("rbf" in found.report["weights"]) == smooth


# ------------------------------------------------------------------ few rows


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_too_few_rows_give_one_scale(n):
    X, y = friedman(n=n)
    X = X * 3.0
    found = learn(X, y)
    assert np.isfinite(found.kernel.scales).all() and found.report["C"] == 1.0
    if n == 1:
        assert found.report["fallback"] == "all features are constant"
        assert_array_equal(found.kernel.scales, np.zeros(5))
    else:
        assert found.report["fallback"] == "there are fewer than 13 different rows"
        assert_allclose(found.kernel.scales, 1 / (5 * X.var(axis=0)), rtol=1e-12)
        assert_array_equal(found.scales, np.ones(5))


@pytest.mark.parametrize("n", [10, 11, 15, 25])
def test_few_rows_do_not_fail(n):
    X, y = friedman(n=n)
    for target in (y, np.where(y > 0, 1.0, -1.0)):
        found = learn(X, target)
        assert np.isfinite(found.kernel.scales).all() and found.kernel.scales.max() > 0


def test_copies_of_a_row_count_as_one():
    X, y = friedman(n=8)
    found = learn(np.repeat(X, 5, axis=0), np.repeat(y, 5))
    assert found.report["fallback"] == "there are fewer than 13 different rows"


# ------------------------------------------------------------------ constant and extreme data


@pytest.mark.parametrize("value", [0.0, 0.1, -7.7, 1e9])
def test_constant_features_get_0(value):
    X, y = friedman()
    X[:, 3] = value
    found = learn(X, y)
    assert found.kernel.scales[3] == found.scales[3] == 0
    assert 3 not in found.report["dropped"]
    kept = [0, 1, 2, 4]
    assert_allclose(found.kernel.scales[kept], learn(X[:, kept], y).kernel.scales, rtol=1e-4)


def test_all_constant_features():
    found = learn(np.full((50, 3), 0.1), np.arange(50.0))
    assert_array_equal(found.kernel.scales, np.zeros(3))
    assert_array_equal(found.scales, np.zeros(3))
    assert found.kernel.clip is None
    assert found.report["fallback"] == "all features are constant"


@pytest.mark.parametrize("bias_penalty, fallback", [(0.0, "the targets are constant"), (1.0, None)])
def test_constant_targets(bias_penalty, fallback):
    X, _ = friedman(n=50)
    found = learn(X, np.full(50, 0.1), bias_penalty=bias_penalty)
    assert found.report["fallback"] == fallback
    assert np.isfinite(found.kernel.scales).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("factor", [1e-140, 1e-30, 1e30, 1e150])
def test_extreme_units(factor):
    X, y = friedman(n=100)
    X[:, 1] *= factor
    found = learn(X, y * factor)
    assert np.isfinite(found.kernel.scales).all() and np.isfinite(found.scales).all()
    assert found.scales[:2].min() > 0.05


@pytest.mark.parametrize("factor", [1e-200, 1e200])
def test_units_that_cannot_be_squared_are_named(factor):
    """Their gamma would be 0 or infinite, and predictions constant."""
    X, y = friedman(n=100)
    X[:, 1] *= factor
    with pytest.raises(ValueError, match=r"feature 1, .* too large or too small .* Scale X"):
        learn(X, y)


def test_heavy_tails_are_clipped():
    X, y = friedman()
    X[:, 3] = np.exp(3 * X[:, 3])
    found = learn(X, y + np.tanh(X[:, 3]))
    assert found.kernel.clip[1][3] < X[:, 3].max() / 2
    # the others, and the side without a tail, end where the rows do
    assert found.kernel.clip[0][3] == X[:, 3].min()
    others = np.flatnonzero(found.kernel.scales * [1, 1, 1, 0, 1])
    ends = X.min(axis=0)[others], X.max(axis=0)[others]
    assert_array_equal(np.array(found.kernel.clip)[:, others], ends)
    # a feature that is not used has no bounds
    assert learn(X, y).kernel.scales[3] == 0
    assert np.isinf(np.array(learn(X, y).kernel.clip)[:, 3]).all()


def test_bounds_are_the_range_of_all_rows_not_of_the_sample():
    X, y = friedman(n=6000)
    far = np.r_[np.argmin(X[:, 0]), np.argmax(X[:, 1])]
    found = learn(X, y)
    assert found.report["rows"] < 6000
    assert found.kernel.clip[0][0] == X[far[0], 0] and found.kernel.clip[1][1] == X[far[1], 1]


def test_categories_have_no_bounds():
    X, y = friedman(n=200)
    X[:, 4] = X[:, 4] > 0.5
    numeric = np.array([True, True, True, True, False])
    found = learn(X, y + X[:, 4], numeric=numeric)
    assert found.kernel.scales[4] > 0 and np.isinf(np.array(found.kernel.clip)[:, 4]).all()


def test_features_of_two_values_have_no_bounds():
    # those of a rare category shrank with every round, to 1e-19, and gamma grew to 1e19
    rng = np.random.default_rng(0)
    X = np.column_stack([np.arange(450) == 3, rng.lognormal(size=450), np.ones(450)])
    found = clipped_units(X, np.ones(450), contain_zero=False)
    assert np.isinf(found.lower[[0, 2]]).all() and np.isinf(found.upper[[0, 2]]).all()
    assert_allclose(found.spread[0], X[:, 0].std())
    # and others are clipped as if these and constant features were not there
    alone = clipped_units(X[:, 1:2], np.ones(450), contain_zero=False)
    assert_allclose([found.lower[1], found.upper[1]], [alone.lower[0], alone.upper[0]])


def test_bounds_of_sparse_rows_contain_0():
    X = np.random.default_rng(0).normal(size=(200, 2)) + 30.0
    X[0] = [500.0, 0.0]
    assert clipped_units(X, np.ones(200), contain_zero=False).lower[1] > 0
    units = clipped_units(X, np.ones(200), contain_zero=True)
    lower, upper = units.lower, units.upper
    assert (lower <= 0).all() and (upper >= 0).all()
    assert upper[0] < 500.0


# ------------------------------------------------------------------ kinds of rows


def test_float32_rows():
    X, y = friedman()
    X = X.astype(np.float32)
    assert_array_equal(learn(X, y).kernel.scales, learn(X.astype(np.float64), y).kernel.scales)


def test_csr_rows():
    X, y = friedman()
    X[np.abs(X) < 0.4] = 0.0
    found = learn(sparse.csr_array(X), y)
    assert_array_equal(found.kernel.scales, learn(X, y).kernel.scales)


def test_seed_and_threads():
    X, y = friedman(n=400)
    found = {}
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            found[threads] = learn(X, y, seed=3)
    assert_array_equal(found[1].kernel.scales, found[2].kernel.scales)
    assert not np.array_equal(found[1].kernel.scales, learn(X, y, seed=4).kernel.scales)


# ------------------------------------------------------------------ callbacks, budget, report


def test_callback_sees_every_iteration_and_can_stop():
    X, y = friedman()
    seen = []
    found = learn(X, y, on_iteration=lambda k, error: seen.append((k, error)))
    assert [k for k, _ in seen] == list(range(1, found.report["iterations"] + 1))
    assert seen[-1][1] < seen[0][1] < 2.0
    assert not found.report["stopped"]
    stopped = learn(X, y, on_iteration=lambda k, error: k == 3)
    assert stopped.report["stopped"] and stopped.report["iterations"] == 3
    assert np.isfinite(stopped.kernel.scales).all() and stopped.kernel.scales.max() > 0


def test_report():
    X, y = friedman()
    report = learn(X, y).report
    assert report["rows"] == 300 and report["points"] == 100
    assert report["evaluations"] >= report["iterations"] > 10
    assert set(report["seconds"]) == {"sample", "first", "guard", "second", "drop"}
    assert report["fallback"] is None


def test_a_small_budget_means_smaller_steps_or_a_refusal():
    X, y = friedman(n=2500)
    small = learn(X, y, budget=54 * 2**20)
    assert (small.report["rows"], small.report["points"]) == FIRST[:2]
    assert learn(X, y).report["rows"] == 2500
    with pytest.raises(MemoryError, match="rows with 5 features"):
        learn(X, y, budget=10_000)
    with pytest.raises(MemoryError, match="its kernel on 1,500 rows and 200 points"):
        learn(X, y, budget=2_000_000)
    with pytest.raises(MemoryError, match=r"cache_size allows 2\.0 MB"):  # all of it
        learn(X, y, budget=2_000_000)


def test_targets_are_needed():
    with pytest.raises(ValueError, match="needs targets"):
        learn_kernel(
            MemoryBlocks(np.ones((3, 2))),
            ["rbf"],
            bias_penalty=0.0,
            budget=ENOUGH,
            random_state=0,
        )


def test_a_matrix_that_is_not_definite_does_not_end_the_search(monkeypatch):
    calls = []

    class Sometimes(LooObjective):
        def __call__(self, gamma, lam, omega=None):
            calls.append(lam)
            if len(calls) % 5 == 0:
                raise np.linalg.LinAlgError
            return super().__call__(gamma, lam)

    monkeypatch.setattr(scale_search, "LooObjective", Sometimes)
    found = learn(*friedman())
    assert len(calls) == found.report["evaluations"] > 50
    assert found.scales[2:].max() < 0.3 < found.scales[:2].max()


def test_learned_scales_have_the_smaller_leave_one_out_error():
    X, y = friedman()
    found = learn(X, y)
    Y, weight = (y - y.mean())[:, None], np.ones(300)
    objective = LooObjective(("matern32",), X, X[:100], Y, weight)
    one = np.full(5, 0.1)
    errors = [objective(gamma[None], 1e-3).value for gamma in (found.kernel.scales, one)]
    assert errors[0] < 0.5 * errors[1]
