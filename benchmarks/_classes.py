"""Problems of `classes`: tables with classes, imbalanced variants of them, and seeded generators.

A problem is named by its kind and what it is made of: "tabular magic", "mixed titanic",
"imbalanced magic 1:100", "rare class", "few positives", "55 of 10,000".
"""

import warnings
from typing import Any

import numpy as np

from . import _tabular, mixed
from ._tabular import BOOSTING, Part, fitted

SPARSE, REDUCED, BALANCED = "SparseLSSVC", "ReducedSVC", "SparseLSSVC, balanced"
LIGHTGBM, LOGISTIC = "LightGBM", "LogisticRegression"
VARIANTS = (
    ("magic", 20), ("magic", 100), ("magic", 500), ("phoneme", 20), ("eeg_eye_state", 50),
    ("eeg_eye_state", 200), ("spambase", 20), ("letter", 50), ("optdigits", 50), ("satimage", 100),
)  # fmt: skip
GENERATED = ("rare class", "few positives", "55 of 10,000")
BINS = 15  # of the calibration error


def tables() -> list[str]:
    """Return the names of all tables whose targets are classes."""
    found = []
    for path in sorted(_tabular.folder().glob("*.npz")):
        with np.load(path, allow_pickle=False) as file:
            if file["task"] == "clf":
                found.append(f"tabular {path.stem}")
    for path in sorted(mixed.folder().glob("*.parquet")):
        if mixed.split(path.stem, 0, 10).is_classification:
            found.append(f"mixed {path.stem}")
    return found


def variants() -> list[str]:
    """Return the names of the imbalanced variants."""
    return [f"imbalanced {name} 1:{ratio}" for name, ratio in VARIANTS]


def problem(name: str, number: int, most_rows: int) -> Part:
    """Return the rows of a problem; ``number`` is the split or the seed."""
    kind, _, what = name.partition(" ")
    if kind == "tabular":
        return _tabular.split(what, number, most_rows)
    if kind == "mixed":
        return mixed.split(what, number, most_rows)
    if kind == "imbalanced":
        table, _, ratio = what.rpartition(" 1:")
        return _imbalanced(_tabular.split(table, number, 10**9), int(ratio), number, most_rows)
    X, y = {"rare": _rare_class, "few": _few_positives, "55": _few_of_many}[kind](number)
    n_train = 10_000 if kind == "55" else 6_000 if kind == "rare" else 2_000
    return Part(X[:n_train], y[:n_train], X[n_train:], y[n_train:], True)


def _imbalanced(part: Part, ratio: int, seed: int, most_rows: int) -> Part:
    """Keep so many rows of the rarest class that there is one among ``ratio`` others."""
    labels, counts = np.unique(part.y, return_counts=True)
    rng, rare = np.random.default_rng(seed), labels[counts.argmin()]

    def thinned(X: Any, y: np.ndarray, most: int) -> tuple[Any, np.ndarray]:
        is_rare = y == rare
        others = np.flatnonzero(~is_rare)[:most]
        positives = rng.permutation(np.flatnonzero(is_rare))[: max(len(others) // ratio, 1)]
        rows = rng.permutation(np.concatenate([others, positives]))
        return X[rows], is_rare[rows].astype(int)

    X_test, y_test = thinned(part.X_test, part.y_test, 10**9)
    return Part(*thinned(part.X, part.y, most_rows), X_test, y_test, True)


def _rare_class(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """1.2 % of 6,000 rows, moved by 1.2 in three of five features."""
    rng = np.random.RandomState(seed)
    y = (rng.random_sample(12_000) < 0.012).astype(int)
    X = rng.normal(size=(12_000, 5))
    X[y == 1, :3] += 1.2
    return X, y


def _few_positives(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """1 % of 2,000 rows, moved by 1.5 in two of eight features."""
    rng = np.random.RandomState(seed)
    y = (rng.random_sample(12_000) < 0.01).astype(int)
    X = rng.normal(size=(12_000, 8))
    X[y == 1, :2] += 1.5
    return X, y


def _few_of_many(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The 55 rows of 10,000 with the largest of a curved, noisy score; 40,000 rows to test."""
    X, y = [], []
    for one, n_rows in ((seed, 10_000), (seed + 1000, 40_000)):
        rng = np.random.default_rng(one)
        rows = rng.normal(size=(n_rows, 8))
        score = 1.5 * (rows[:, 0] * rows[:, 1] + np.sin(2 * rows[:, 2])) + rows[:, 3]
        score = score - 0.7 * rows[:, 4] ** 2 + rng.logistic(size=n_rows) / 1.5
        X.append(rows)
        y.append((score >= np.quantile(score, 1 - 0.0055)).astype(int))
    return np.concatenate(X), np.concatenate(y)


# ---------------------------------------------------------------------------- one cell


def _make(model: str) -> Any:
    from sklearn.linear_model import LogisticRegression

    from leansvm import ReducedSVC, SparseLSSVC

    if model in (BOOSTING, LIGHTGBM):
        return _tabular.MODELS[model].make
    makers = {
        SPARSE: SparseLSSVC,
        REDUCED: ReducedSVC,
        BALANCED: lambda: SparseLSSVC(class_weight="balanced"),
        LOGISTIC: lambda: LogisticRegression(max_iter=1000),
    }
    return lambda part: makers[model]()


def measure(name: str, number: int, model: str, most_rows: int) -> dict[str, Any]:
    """Fit and judge one model on one problem; called in a fresh interpreter."""
    from sklearn.metrics import average_precision_score

    part, make = problem(name, number, most_rows), _make(model)
    if name.startswith("mixed") and model in (BOOSTING, LIGHTGBM):
        part = part._replace(**mixed.as_boosting_takes_it(part, model))
        plain = make
        if model == BOOSTING:
            make = lambda part: plain(part).set_params(categorical_features="from_dtype")  # noqa: E731
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        machine, spent = fitted(make, part, number)
    cell = {"rows": len(part.y), "fit": spent, "warnings": len(said)}
    cell |= _tabular.quality(part, machine)
    values = np.asarray(machine.predict_proba(part.X_test), dtype=np.float64)
    cell["calibration error"] = calibration_error(machine.classes_, values, part.y_test)
    cell["one class"] = int(len(np.unique(machine.predict(part.X_test))) == 1)
    if len(machine.classes_) == 2:
        positive = part.y_test == machine.classes_[1]
        cell["average precision"] = float(average_precision_score(positive, values[:, 1]))
        cell["prevalence"] = float(np.mean(part.y == machine.classes_[1]))
    if hasattr(machine, "C_"):
        cell["C"] = float(machine.C_)
    return cell


def calibration_error(classes: np.ndarray, values: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean distance of confidence and accuracy over bins of confidence."""
    best = values.argmax(axis=1)
    confidence, right = values.max(axis=1), classes[best] == labels
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = np.bincount(place, confidence - right, minlength=BINS)
    return float(np.abs(gaps).sum() / len(labels))
