"""Default fits beside a straight line: no ordinary or awkward table may be lost to it.

About 125 synthetic problems a seed, in families; `SparseLSSVC()` and `SparseLSSVR()` with nothing
set, `RidgeCV` or `LogisticRegression` on standardised features, and a dummy, all scored on held-out
rows by R² or accuracy. A fit that is more than 0.05 below the better of the last two counts as
lost. Other models face the same bar, to show what it asks for: scikit-learn's boosting, a
grid-searched SVM, and a tuned line that is not the reference itself (discriminant analysis: the
best line by the squared loss; least angle regression with folds).
"""

import time
import warnings
from typing import Any, NamedTuple

import numpy as np

from ._harness import Options, Report
from ._sanity_problems import FAMILIES, Problem

SEEDS = 2
BELOW = 0.05  # R² or accuracy
MOST_LOST = 3  # of all problems and seeds


class Scores(NamedTuple):
    """R² or accuracy on held-out rows, and the seconds of the default fit."""

    ours: float
    linear: float
    dummy: float
    others: dict[str, float]  # models that are not compared with leansvm, but with the same bar
    seconds: float

    def behind(self, score: float) -> float:
        """Return how far a model is below the better of line and dummy."""
        return max(self.linear, self.dummy) - score


def run(options: Options) -> Report:
    """Compare default fits on every problem; a row of the table is a family."""
    report = Report("sanity", "default fits beside linear models, held-out rows", options)
    families = dict(list(FAMILIES.items())[:: options.pick(1, 4)])
    lost: list[str] = []
    below, tried = dict.fromkeys(OTHERS, 0), dict.fromkeys(OTHERS, 0)
    for name, (make, variants) in families.items():
        found = []
        for seed in range(options.pick(SEEDS, 1)):
            for number, variant in enumerate(options.pick(variants, variants[:1])):
                rng = np.random.default_rng([seed, number, *name.encode()])
                problem = make(rng, **variant)
                scores = _compared(problem, seed)
                found.append(scores)
                if scores.behind(scores.ours) > BELOW:
                    lost.append(_told(name, variant, seed, scores))
        report.add_row(_row(name, found))
        for scores in found:
            for other, score in scores.others.items():
                below[other] += int(scores.behind(score) > BELOW)
                tried[other] += 1
    report.notes += lost
    report.notes += [f"{name}: {below[name]} of {tried[name]} below" for name in below]
    report.rows.sort(key=lambda row: -row["largest loss"])
    report.at_most(f"fits more than {BELOW} below a linear model or a dummy", len(lost), MOST_LOST)
    return report


def _row(name: str, found: list[Scores]) -> dict[str, Any]:
    ours, linear, dummy, _, seconds = zip(*found, strict=True)
    behind = np.array([scores.behind(scores.ours) for scores in found])
    return {
        "family": name,
        "fits": len(found),
        "leansvm": round(float(np.median(ours)), 3),
        "linear": round(float(np.median(linear)), 3),
        "dummy": round(float(np.median(dummy)), 3),
        "below": int(np.sum(behind > BELOW)),
        "largest loss": round(float(behind.max()), 3),
        "slowest fit [s]": round(max(seconds), 2),
    }


def _told(name: str, variant: dict[str, Any], seed: int, scores: Scores) -> str:
    what = ", ".join(f"{key}={value}" for key, value in variant.items())
    return (
        f"below: {name} ({what}), seed {seed}: {scores.ours:.3f}, linear {scores.linear:.3f}, "
        f"dummy {scores.dummy:.3f}"
    )


def _compared(problem: Problem, seed: int) -> Scores:
    """Fit all models on the training rows, score them on the others."""
    from sklearn.dummy import DummyClassifier, DummyRegressor
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from leansvm import SparseLSSVC, SparseLSSVR

    if problem.is_classification:
        ours, dummy = SparseLSSVC(random_state=seed), DummyClassifier()
        line = LogisticRegression(max_iter=1000)
    else:
        ours, dummy = SparseLSSVR(random_state=seed), DummyRegressor()
        line = RidgeCV(np.logspace(-4, 4, 17))
    train, test = problem.split()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scores are what is judged here
        start = time.perf_counter()
        ours.fit(*train)
        seconds = time.perf_counter() - start
        models = [ours, make_pipeline(StandardScaler(), line).fit(*train), dummy.fit(*train)]
        scores = [float(model.score(*test)) for model in models]
        others = {}
        for name, make in OTHERS.items():
            others[name] = float(make(problem).fit(*train).score(*test))
    return Scores(*scores, others, seconds)


# ---------------------------------------------------------------------------- the other models


def _boosting(problem: Problem) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    classes = problem.is_classification
    make = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    return make(random_state=0)


def _searched_svm(problem: Problem) -> Any:
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.model_selection import GridSearchCV, KFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC, SVR

    scale = 1.0 / problem.X.shape[1]
    grid = {"C": [1.0, 10.0, 100.0], "gamma": [scale / 4, scale, scale * 4]}
    folds = KFold(3, shuffle=True, random_state=0)
    if problem.is_classification:
        return make_pipeline(StandardScaler(), GridSearchCV(SVC(), grid, cv=folds))
    machine = make_pipeline(StandardScaler(), GridSearchCV(SVR(), grid, cv=folds))
    return TransformedTargetRegressor(machine, transformer=StandardScaler())


def _other_line(problem: Problem) -> Any:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.linear_model import LassoLarsCV
    from sklearn.model_selection import KFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if problem.is_classification:
        line: Any = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
    else:
        line = LassoLarsCV(cv=KFold(3, shuffle=True, random_state=0))
    return make_pipeline(StandardScaler(), line)


OTHERS = {
    "HistGradientBoosting": _boosting,
    "grid-searched SVC/SVR": _searched_svm,
    "discriminant analysis, lasso": _other_line,
}
