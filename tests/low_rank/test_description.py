"""Models in words: order, numbers, units, and what is left out."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA
from sklearn.preprocessing import MinMaxScaler, QuantileTransformer, StandardScaler

from leansvm.low_rank import RBF, ReadableModel, RobustRBF

CENTERS = np.array([[1.0, 20.0, 0.5], [3.0, 40.0, 0.25]])
SHAPES = np.array([[0.5, 0.1, 0.0], [2.0, 0.01, 4.0]])
NAMES = ["age", "weight", "dose"]


class Model(ReadableModel, BaseEstimator):
    """A fitted model."""

    def fit(self):
        return self


def describe(function, centers, shapes, coef, intercept, names=None, **options):
    model = Model()
    model.function_, model.centers_, model.shapes_ = function, centers, shapes
    model.coef_, model.intercept_, model.fit_report_ = coef, intercept, {}
    for name, attribute in (("classes", "classes_"), ("spread", "feature_spread")):
        if name in options:
            held = vars(model) if name == "classes" else model.fit_report_
            held[attribute] = options.pop(name)
    return model.describe(names, **options)


def words(text):
    return " ".join(text.split())


def test_one_sentence_for_each_function_largest_weight_first():
    text = describe(RobustRBF(), CENTERS, SHAPES, np.array([[0.5, -2.0]]), np.array([0.25]), NAMES)
    assert text.splitlines()[0] == "f(x) = 0.25 + sum of 2 RobustRBF functions."
    first = "1. Lowers the prediction by up to 2 near dose = 0.25 (reach 0.25), age = 3 (reach 0.5)"
    second = "2. Raises the prediction by up to 0.5 near age = 1 (reach 2), weight = 20 (reach 10)."
    assert words(text).index(first) < words(text).index(second)
    assert "weight = 40 (reach 100)" in words(text)  # of the first function
    assert "dose = 0.5" not in text  # switched off in the second


def test_features_are_compared_in_units_of_their_spread():
    weights, bias = np.array([[1.0, 0.1]]), np.zeros(1)
    spread = np.array([0.1, 100.0, 1.0])
    text = describe(
        RobustRBF(), CENTERS, SHAPES, weights, bias, NAMES, spread=spread, max_features=1
    )
    assert "near weight = 20 (reach 10), and 1 more feature." in words(text)


@pytest.mark.parametrize("kind", [StandardScaler, MinMaxScaler])
@pytest.mark.parametrize("function", [RobustRBF(), RBF()])
def test_numbers_are_in_the_units_before_the_scaler(kind, function):
    rows = np.random.default_rng(0).normal(size=(50, 3)) * [10.0, 0.1, 1000.0] + [0.0, 5.0, 1e4]
    scaler = kind().fit(rows)
    text = describe(
        function, CENTERS, SHAPES + 0.1, np.array([[1.0, 0.5]]), np.zeros(1), NAMES, scaler=scaler
    )
    centre = scaler.inverse_transform(CENTERS)[0]
    width = function.widths(SHAPES + 0.1)[0]
    edge = np.abs(scaler.inverse_transform(CENTERS[:1] + width)[0] - centre)
    for i, name in enumerate(NAMES):
        sentence = words(text).split("2. ")[0]
        found = sentence.split(f"{name} = ")[1].split(")")[0].replace(",", "").split(" (reach ")
        np.testing.assert_allclose([float(found[0]), float(found[1])], [centre[i], edge[i]], 5e-3)


@pytest.mark.parametrize("scaler", [PCA(), QuantileTransformer(n_quantiles=10)])
def test_what_is_no_factor_for_each_feature_is_refused(scaler):
    scaler.fit(np.random.default_rng(0).normal(size=(50, 3)) ** 3)
    arguments = RobustRBF(), CENTERS, SHAPES, np.array([[1.0, 0.5]]), np.zeros(1)
    with pytest.raises(ValueError, match="does not scale each feature by a factor of its own"):
        describe(*arguments, scaler=scaler)
    with pytest.raises(ValueError, match="float has no inverse_transform"):
        describe(*arguments, scaler=1.5)


def test_classes_and_what_is_left_out():
    weights = np.array([[1.0, -0.5], [-3.0, -0.25], [0.5, -1.0]])
    text = describe(
        RobustRBF(), CENTERS, SHAPES, weights, np.zeros(3), classes=["a", "b", "c"], max_functions=1
    )
    assert "1. Speaks for a (+1) and against b (-3) near x0 = 1" in words(text)
    assert "1 more, with weights of at most 1." in text
    text = describe(RobustRBF(), CENTERS, SHAPES, weights, np.zeros(3), max_functions=None)
    assert "2. Speaks against output 2 (-1)" in text
    two = describe(
        RobustRBF(), CENTERS, SHAPES, np.array([[12345.0, -1e-9]]), np.zeros(1), classes=[0, 1]
    )
    assert "f > 0 means 1, f < 0 means 0." in two.splitlines()[0]
    assert "Raises f by up to 12,340" in two and "Lowers f by up to 1e-09" in two
    for name in ("max_features", "max_functions"):
        with pytest.raises(ValueError, match=f"{name} must be a number >= 1"):
            describe(RobustRBF(), CENTERS, SHAPES, weights, np.zeros(3), **{name: 0})
