"""scikit-learn's own checks of every public estimator, none of them expected to fail."""

import inspect

import pytest
from sklearn.base import BaseEstimator, is_classifier, is_regressor

import leansvm
from leansvm import (
    L2SVC,
    LSSVC,
    LSSVR,
    LowRankLSSVC,
    LowRankLSSVR,
    ReducedSVC,
    ReducedSVR,
    SparseLSSVC,
    SparseLSSVR,
)
from tests.checks import names, run_checks
from tests.plain import PlainReducedSVC

PUBLIC = [
    thing
    for name in leansvm.__all__
    if inspect.isclass(thing := getattr(leansvm, name)) and issubclass(thing, BaseEstimator)
]
FEW_STEPS = {LowRankLSSVC: {"max_iter": 5}, LowRankLSSVR: {"max_iter": 5}}
DEFAULTS = [estimator(**FEW_STEPS.get(estimator, {})) for estimator in PUBLIC]
CONFIGURED = [
    LSSVC(solver="cg"),
    LSSVC(C="loo"),
    LSSVC(C=[0.1, 1, 10], bias_penalty=1.0),
    LSSVC(calibrate=True, class_weight="balanced"),
    LSSVC(kernel="linear", solver="cholesky"),
    LSSVC(fit_intercept=False),
    # the checks also pass matrices that are no kernel: enough of a ridge makes them definite
    # and a check of probabilities knows no kernel matrices
    LSSVC(kernel="precomputed", C=1e-4, calibrate=False),
    LSSVR(solver="cg", bias_penalty=0.1),
    LSSVR(C="loo"),
    LSSVR(C=[0.1, 1, 10]),
    LSSVR(kernel="laplacian"),
    # the checks compare fits to 1e-7, so iterations have to go further
    LSSVC(solver="smo", tol=1e-10),
    LSSVR(solver="smo", fit_intercept=False, tol=1e-10),
    L2SVC(kernel="linear"),
    L2SVC(solver="newton", C=10.0),
    L2SVC(solver="smo", tol=1e-10),
    L2SVC(calibrate=True, class_weight="balanced"),
    L2SVC(kernel="precomputed", C=1e-4, calibrate=False),
    PlainReducedSVC(calibrate=True, class_weight="balanced", basis="all"),
    PlainReducedSVC(kernel="precomputed", regularizer="coef", calibrate=False),
    ReducedSVR(loss="squared", regularizer="coef", fit_intercept=False),
    LowRankLSSVC(n_basis=5, function="simplex", objective="abs", max_iter=5),
    LowRankLSSVR("gcv", 5, bias_penalty=1.0),
    SparseLSSVC("kfold", "rbf", gamma="scale", bias_penalty=1.0),
    SparseLSSVR(1.0, "rbf", gamma="scale", basis="pivoted-cholesky", n_basis="auto"),
    SparseLSSVR(1.0, "rbf", gamma="scale", target="quantile"),
]
# what differs from one of those above in a part that the checks do not touch, or takes long
FURTHER = [
    LSSVC(C="gcv"),
    LSSVR(C="gcv", fit_intercept=False),
    LSSVR(kernel="poly", coef0=1.0),
    LSSVC(solver="smo", bias_penalty=1.0, tol=1e-10),
    LSSVC(solver="sumt", tol=1e-10),
    LSSVC(solver="penalty-flow", tol=1e-10),
    LSSVR(solver="substitution", tol=1e-10),
    L2SVC(C=[0.1, 1, 10], bias_penalty=1.0),
    ReducedSVC(1.0, "rbf", loss="huber", gamma="scale", regularizer="coef"),
    PlainReducedSVC(1.0, loss="logistic", p=10, basis="forward", bias_penalty=1.0, tol=1e-12),
    ReducedSVR(C=100, delta=0.1, basis="forward"),
    LowRankLSSVC("loo", 5, objective="squared", update="sequential", backtracking=True, max_iter=6),
    LowRankLSSVC(n_basis=5, function="rbf", calibrate=True, iterate="last", n_init=2),
    # which search for their kernel or functions: above with few steps, here to the end
    LowRankLSSVC(),
    LowRankLSSVR(),
    ReducedSVC(),
    SparseLSSVC(),
    SparseLSSVR(),
]


# the checks have fewer rows than the default n_basis, which warns as it should
@pytest.mark.filterwarnings("ignore:n_basis=.* is more than:UserWarning")
@pytest.mark.filterwarnings("ignore:.*functions still improve:UserWarning")
@pytest.mark.usefixtures("short_search")
@pytest.mark.parametrize("estimator", DEFAULTS + CONFIGURED, ids=names)
def test_scikit_learn_checks(estimator):
    run_checks(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:n_basis=.* is more than:UserWarning")
@pytest.mark.parametrize("estimator", FURTHER, ids=names)
def test_scikit_learn_checks_of_further_settings(estimator):
    run_checks(estimator)


def test_the_list_of_public_estimators_is_not_empty():
    assert {LSSVC, LSSVR} <= set(PUBLIC)


@pytest.mark.parametrize("estimator", PUBLIC)
def test_constructor_parameters_have_constraints_and_documentation(estimator):
    parameters = set(inspect.signature(estimator).parameters)
    assert parameters <= set(estimator._parameter_constraints)
    documented = inspect.getdoc(estimator).partition("Parameters\n")[2].partition("Attributes\n")[0]
    assert not {name for name in parameters if name not in documented}


@pytest.mark.parametrize(
    "estimator", [e for e in PUBLIC if is_classifier(e()) or is_regressor(e())]
)
def test_predictors_take_sample_weight_and_classifiers_class_weight(estimator):
    assert "sample_weight" in inspect.signature(estimator.fit).parameters
    assert ("class_weight" in inspect.signature(estimator).parameters) == is_classifier(estimator())
