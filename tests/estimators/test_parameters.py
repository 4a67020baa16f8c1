"""Every estimator describes and checks all of its parameters, wherever they are written down."""

import ast
import inspect
import re

import numpy as np
import pytest
from sklearn.base import BaseEstimator, is_classifier

import leansvm
from leansvm import KernelBasis, LowRankLSSVC, SparseLSSVC, SparseLSSVR

ESTIMATORS = [
    thing
    for name in leansvm.__all__
    if inspect.isclass(thing := getattr(leansvm, name)) and issubclass(thing, BaseEstimator)
]
X = np.random.default_rng(0).normal(size=(60, 2))


def entries(estimator, section):
    """Heads of the entries of a section, by name."""
    text = re.search(
        rf"^{section}\n-+\n(.*?)(?=^\w[\w ]*\n-+\n|\Z)", estimator.__doc__, re.M | re.S
    )
    heads = re.findall(r"^\S.*$", text[1], re.M)
    return {name: head for head in heads for name in head.partition(" : ")[0].split(", ")}


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_all_parameters_are_described_in_their_order_with_their_defaults(estimator):
    parameters, described = (
        inspect.signature(estimator).parameters,
        entries(estimator, "Parameters"),
    )
    assert list(described) == list(parameters)
    for name, head in described.items():
        assert ast.literal_eval(head.rpartition("default=")[2]) == parameters[name].default, head


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_all_parameters_are_checked(estimator):
    assert list(estimator._parameter_constraints) == list(inspect.signature(estimator).parameters)
    with pytest.raises(ValueError, match=f"'cache_size' parameter of {estimator.__name__}"):
        estimator(cache_size="much").fit(X, X[:, 0] > 0)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_all_fitted_attributes_are_described(estimator):
    model = (
        estimator(n_basis=5)
        if "n_basis" in inspect.signature(estimator).parameters
        else estimator()
    )
    model.fit(X, X[:, 0] > 0 if is_classifier(model) else X[:, 0])
    fitted = {name for name in vars(model) if name.endswith("_") and not name.startswith("_")}
    fitted -= {"calibration_scale_", "calibration_slopes_", "n_rows_seen_"}  # of no use to users
    described = entries(estimator, "Attributes")
    assert fitted <= described.keys()
    assert ("classes_" in described) == is_classifier(model)
    assert ("dual_coef_" in described) == hasattr(model, "dual_coef_")


def test_own_descriptions_come_before_those_of_the_bases():
    assert "n_components" in entries(KernelBasis, "Attributes")["support_"]
    words = "rows that are basis points"
    assert words in SparseLSSVR.__doc__ and words not in LowRankLSSVC.__doc__


def test_constructors_set_their_parameters_and_nothing_else():
    model = SparseLSSVC(2.0, "rbf", n_basis=7)
    assert vars(model) == model.get_params() and (model.C, model.kernel, model.n_basis) == (
        2.0,
        "rbf",
        7,
    )
    with pytest.raises(TypeError, match="unknown"):
        SparseLSSVC(unknown=1)
    with pytest.raises(TypeError, match="positional"):
        SparseLSSVC(1.0, "rbf", 0.5)


def test_an_unknown_parameter_is_refused_with_the_name_of_the_class():
    with pytest.raises(TypeError, match=r"argument 'n_bases'; did you mean 'n_basis'\?$"):
        SparseLSSVC(n_bases=10)
    with pytest.raises(TypeError, match=r"^fit\(\) got an unexpected keyword argument 'eval_set'"):
        SparseLSSVC().fit([[1.0], [2.0]], [0, 1], eval_set=None)
    with pytest.raises(TypeError, match="SparseLSSVC: got an unexpected keyword argument 'sigma'"):
        SparseLSSVC(sigma=0.5)
