"""One cell of the tabular suite: a model, a data set, a split; what runs in a process of its own.

Sets are ``$LEANSVM_DATA/tabular/<name>.npz`` with X, y and task ("clf" or "reg"). Nothing here
loads leansvm before its own model is made, so that an interpreter of peers can run the others.
"""

import hashlib
import os
import pickle
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ._harness import SkipBenchmark
from ._isolated import ROOT
from ._machine import package_version

OURS = "leansvm"
BOOSTING = "HistGradientBoosting"
TUNED = "SVC/SVR, 3x3 grid"
TUNED_LIGHTGBM = "LightGBM, tuned"
WARM_ROWS = 300  # fitted before the clock starts: compilation is not the fit's


class Part(NamedTuple):
    """Rows of one split."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    is_classification: bool


def folder() -> Path:
    """Return the folder of the sets, or skip."""
    place = Path(os.environ.get("LEANSVM_DATA", "")) / "tabular"
    if not os.environ.get("LEANSVM_DATA") or not any(place.glob("*.npz")):
        raise SkipBenchmark("LEANSVM_DATA names no folder with tabular/<name>.npz")
    return place


def split(name: str, number: int, most_rows: int) -> Part:
    """Return 70 % of the rows, at most `most_rows`, to train on, and the other 30 % to score on."""
    from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit

    with np.load(folder() / f"{name}.npz", allow_pickle=False) as file:
        X, y, is_classification = file["X"].astype(np.float64), file["y"], file["task"] == "clf"
    splitter = StratifiedShuffleSplit if is_classification else ShuffleSplit
    train, test = next(splitter(1, test_size=0.3, random_state=number).split(X, y))
    train = train[:most_rows]
    return Part(X[train], y[train], X[test], y[test], bool(is_classification))


# ---------------------------------------------------------------------------- models


def _ours(part: Part) -> Any:
    from leansvm import SparseLSSVC, SparseLSSVR

    machine = SparseLSSVC if part.is_classification else SparseLSSVR
    return machine(random_state=0)  # seeds differ by more than most changes do


def _boosting(part: Part) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    make = (
        HistGradientBoostingClassifier if part.is_classification else HistGradientBoostingRegressor
    )
    return make(random_state=0)


def _lightgbm(part: Part) -> Any:
    from lightgbm import LGBMClassifier, LGBMRegressor

    make = LGBMClassifier if part.is_classification else LGBMRegressor
    return make(verbose=-1, n_jobs=_threads())


def _tuned_lightgbm(part: Part) -> Any:
    from ._lightgbm import TunedLightGBM

    return TunedLightGBM(part.is_classification, _threads() or 0)


def _catboost(part: Part) -> Any:
    from catboost import CatBoostClassifier, CatBoostRegressor

    make = CatBoostClassifier if part.is_classification else CatBoostRegressor
    return make(verbose=0, allow_writing_files=False, thread_count=_threads() or -1)


def _threads() -> int | None:
    """Return the threads this process was given; None: no limit."""
    given = os.environ.get("OMP_NUM_THREADS")
    return int(given) if given else None


def _svm(part: Part, package: str = "sklearn") -> Any:
    """Return SVC or SVR on standardised features; SVR on a standardised target too."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    machines = import_module(f"{package}.svm")
    if part.is_classification:
        return make_pipeline(StandardScaler(), machines.SVC(cache_size=1000))
    machine = make_pipeline(StandardScaler(), machines.SVR(cache_size=1000))
    return TransformedTargetRegressor(machine, transformer=StandardScaler())


def _tuned_svm(part: Part) -> Any:
    """Return the same with C and gamma by 3 folds, on all cores.

    By scikit-learn-intelex where it is installed: the same machine to the same tolerance, in a
    fraction of libsvm's hours.
    """
    from sklearn.model_selection import GridSearchCV
    from sklearn.preprocessing import StandardScaler

    variance = StandardScaler().fit_transform(part.X).var()
    scale = 1.0 / (part.X.shape[1] * variance)  # gamma="scale" of the standardised rows
    place = "svc__" if part.is_classification else "regressor__svr__"
    grid = {f"{place}C": [1.0, 10.0, 100.0], f"{place}gamma": [scale / 4, scale, scale * 4]}
    package = "sklearnex" if find_spec("sklearnex") else "sklearn"
    return GridSearchCV(_svm(part, package), grid, cv=3, n_jobs=-1)


def _neo(part: Part) -> Any:
    from neo_ls_svm import NeoLSSVM

    return NeoLSSVM()


class Model(NamedTuple):
    """How to make a model, and the distribution it comes from."""

    make: Callable[[Part], Any]
    package: str


MODELS = {
    OURS: Model(_ours, "leansvm"),
    BOOSTING: Model(_boosting, "scikit-learn"),
    "LightGBM": Model(_lightgbm, "lightgbm"),
    TUNED_LIGHTGBM: Model(_tuned_lightgbm, "lightgbm"),
    "CatBoost": Model(_catboost, "catboost"),
    "SVC/SVR": Model(_svm, "scikit-learn"),
    TUNED: Model(_tuned_svm, "scikit-learn"),
    "neo-ls-svm": Model(_neo, "neo-ls-svm"),
}
OF_CLASSES = {  # further models of `classes`, and their packages
    "SparseLSSVC": "leansvm",
    "SparseLSSVC, balanced": "leansvm",
    "ReducedSVC": "leansvm",
    "LogisticRegression": "scikit-learn",
}
# run by the interpreter of peers where one is given
OPTIONAL = ("LightGBM", TUNED_LIGHTGBM, "CatBoost", TUNED, "neo-ls-svm")
SEARCHES = (TUNED, TUNED_LIGHTGBM)  # nothing to compile, and long on few rows too


def version_of(model: str) -> str:
    """Return the version of a model's package; ours with a digest of its source."""
    package = MODELS[model].package if model in MODELS else OF_CLASSES[model]
    if model == TUNED and find_spec("sklearnex"):
        package = "scikit-learn-intelex"
    version = package_version(package)
    if package != "leansvm":
        return version
    digest = hashlib.sha256()
    for file in sorted((ROOT / "src" / "leansvm").rglob("*.py")):
        digest.update(file.read_bytes())
    return f"{version}+{digest.hexdigest()[:10]}"


# ---------------------------------------------------------------------------- measuring


def measure(name: str, number: int, model: str, most_rows: int) -> dict[str, Any]:
    """Fit and score one model on one split; called in a fresh interpreter.

    Returns
    -------
    dict
        What `quality` returns, rows, fit and predict seconds, bytes of the pickled model; ours also
        points, bytes of the numbers that prediction needs, seconds of learning and of a fit
        without it.
    """
    part = split(name, number, most_rows)
    machine, spent = fitted(MODELS[model].make, part, number, warm=model not in SEARCHES)
    cell = {
        **quality(part, machine),
        "rows": len(part.y),
        "fit": spent,
        "predict": min(seconds(machine.predict, part.X_test) for _ in range(3)),
        "bytes": len(pickle.dumps(getattr(machine, "best_estimator_", machine))),
    }
    return cell | _learning(machine, part) if model == OURS else cell


def fitted(
    make: Callable[[Part], Any], part: Part, seed: int, warm: bool = True
) -> tuple[Any, float]:
    """Return a fitted model and the seconds it took, after a fit of few rows that compiles."""
    np.random.seed(seed)  # noqa: NPY002 (the seed of models that are given none)
    if warm:
        few = part._replace(X=part.X[:WARM_ROWS], y=part.y[:WARM_ROWS])
        make(few).fit(few.X, few.y).predict(few.X_test[:WARM_ROWS])
    machine = make(part)
    return machine, seconds(machine.fit, part.X, part.y)


def _learning(machine: Any, part: Part) -> dict[str, Any]:
    """Return the size of our model, and what learning cost beside a fit without it."""
    plain = type(machine)(
        C="loo", kernel=machine.kernel_, gamma="scale", n_basis=int(machine.n_support_)
    )
    numbers = (machine.support_vectors_, machine.dual_coef_, machine.intercept_, machine.gamma_)
    return {
        "points": int(machine.n_support_),
        "compact bytes": sum(np.asarray(values).nbytes for values in numbers),
        "kernel": str(machine.kernel_),
        "learn": machine.fit_report_["seconds"]["learn"],
        "plain fit": seconds(plain.fit, part.X, part.y),
    }


def seconds(function: Callable[..., Any], *arguments: Any) -> float:
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def score_of(part: Part, predicted: np.ndarray) -> float:
    """Return accuracy or R², in %."""
    from sklearn.metrics import accuracy_score, r2_score

    score = accuracy_score if part.is_classification else r2_score
    return 100.0 * float(score(part.y_test, predicted))


def quality(part: Part, machine: Any) -> dict[str, float]:
    """Return score and RMSE, or score, log-loss (with probabilities) and AUC (of two classes)."""
    from sklearn.metrics import roc_auc_score

    predicted = np.ravel(machine.predict(part.X_test))
    found = {"score": score_of(part, predicted)}
    if not part.is_classification:
        return found | {"RMSE": float(np.sqrt(np.mean((part.y_test - predicted) ** 2)))}
    values = None
    if hasattr(machine, "predict_proba"):
        values = np.asarray(machine.predict_proba(part.X_test), dtype=np.float64)
        given = dict(zip(machine.classes_.tolist(), values.T, strict=True))
        never = np.zeros(len(values))  # probability of a class that no training row has
        truth = [given.get(y, never)[i] for i, y in enumerate(part.y_test.tolist())]
        found["log-loss"] = float(-np.log(np.clip(truth, np.finfo(float).eps, 1.0)).mean())
        values = values[:, -1]
    elif hasattr(machine, "decision_function"):
        values = machine.decision_function(part.X_test)
    if values is not None and len(machine.classes_) == 2:
        found["AUC"] = 100.0 * float(roc_auc_score(part.y_test == machine.classes_[1], values))
    return found
