"""Default fits beside a straight line: no ordinary or awkward table may be lost to it.

About 125 synthetic problems a seed, in families; `SparseLSSVC()` and `SparseLSSVR()` with nothing
set, `Ridge` or `LogisticRegression` on standardised features, and a dummy, all scored on held-out
rows by R² or accuracy. A fit that is more than 0.05 below the best of the others counts as lost.
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
    seconds: float

    @property
    def behind(self) -> float:
        """How far the default fit is below the better of the others."""
        return max(self.linear, self.dummy) - self.ours


def run(options: Options) -> Report:
    """Compare default fits on every problem; a row of the table is a family."""
    report = Report("sanity", "default fits beside linear models, held-out rows", options)
    families = dict(list(FAMILIES.items())[:: options.pick(1, 4)])
    lost: list[str] = []
    for name, (make, variants) in families.items():
        found = []
        for seed in range(options.pick(SEEDS, 1)):
            for number, variant in enumerate(options.pick(variants, variants[:1])):
                rng = np.random.default_rng([seed, number, *name.encode()])
                problem = make(rng, **variant)
                scores = _compared(problem, seed)
                found.append(scores)
                if scores.behind > BELOW:
                    lost.append(_told(name, variant, seed, scores))
        report.add_row(_row(name, found))
    report.notes += lost
    report.rows.sort(key=lambda row: -row["largest loss"])
    report.at_most(f"fits more than {BELOW} below a linear model or a dummy", len(lost), MOST_LOST)
    return report


def _row(name: str, found: list[Scores]) -> dict[str, Any]:
    ours, linear, dummy, seconds = (np.array(column) for column in zip(*found, strict=True))
    behind = np.array([scores.behind for scores in found])
    return {
        "family": name,
        "fits": len(found),
        "leansvm": round(float(np.median(ours)), 3),
        "linear": round(float(np.median(linear)), 3),
        "dummy": round(float(np.median(dummy)), 3),
        "below": int(np.sum(behind > BELOW)),
        "largest loss": round(float(behind.max()), 3),
        "slowest fit [s]": round(float(seconds.max()), 2),
    }


def _told(name: str, variant: dict[str, Any], seed: int, scores: Scores) -> str:
    what = ", ".join(f"{key}={value}" for key, value in variant.items())
    return (
        f"below: {name} ({what}), seed {seed}: {scores.ours:.3f}, linear {scores.linear:.3f}, "
        f"dummy {scores.dummy:.3f}"
    )


def _compared(problem: Problem, seed: int) -> Scores:
    """Fit the three models on the training rows, score them on the others."""
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
        line = make_pipeline(StandardScaler(), line).fit(*train)
        dummy.fit(*train)
        scores = [float(model.score(*test)) for model in (ours, line, dummy)]
    return Scores(*scores, seconds)
