"""LightGBM with a search as its users do it: 12 configurations, 3 folds, early stopping.

The number of rounds is where the mean of the folds stops improving. Only training rows are looked
at; all of them fit the model that is kept.
"""

from typing import Any

import numpy as np

CONFIGURATIONS, FOLDS = 12, 3
MOST_ROUNDS, PATIENCE = 1_000, 30


def configurations(seed: int) -> list[dict[str, Any]]:
    """Return LightGBM's defaults and random ones, on logarithmic scales."""
    rng = np.random.default_rng(seed)

    def draw(low: float, high: float) -> float:
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    drawn = [
        {
            "num_leaves": round(draw(8, 128)),
            "learning_rate": draw(0.03, 0.3),
            "min_child_samples": round(draw(5, 100)),
            "reg_lambda": draw(1e-3, 10.0),
        }
        for _ in range(CONFIGURATIONS - 1)
    ]
    defaults = {"num_leaves": 31, "learning_rate": 0.1, "min_child_samples": 20, "reg_lambda": 0.0}
    return [defaults, *drawn]


def _error_and_rounds(parameters: dict[str, Any], X: Any, y: Any, folds: Any) -> tuple[float, int]:
    """Return the mean error of the folds and the number of rounds where it is lowest."""
    import lightgbm

    curve = lightgbm.cv(
        parameters | {"feature_pre_filter": False},
        lightgbm.Dataset(X, y, params=parameters, free_raw_data=False),
        MOST_ROUNDS,
        folds=folds,
        callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)],
    )
    (name,) = (key for key in curve if key.endswith("-mean"))
    return curve[name][-1], len(curve[name])


class TunedLightGBM:
    """LightGBM whose configuration and rounds are chosen on training rows.

    Parameters
    ----------
    is_classification : bool
        Classes (log-loss) or numbers (squared error).
    threads : int
        Configurations that are tried at a time, each in one thread; 0: as many as there are cores.
    seed : int
        Of the configurations, the folds and LightGBM.
    """

    def __init__(self, is_classification: bool, threads: int = 0, seed: int = 0) -> None:
        self.is_classification = is_classification
        self.threads = threads
        self.seed = seed
        if is_classification:
            self.predict_proba = self._predict_proba

    def fit(self, X: Any, y: Any) -> "TunedLightGBM":
        """Search, then fit all rows."""
        import lightgbm
        from joblib import Parallel, delayed
        from sklearn.model_selection import KFold, StratifiedKFold

        fixed = {"verbosity": -1, "seed": self.seed, "deterministic": True, "force_row_wise": True}
        fixed |= {"num_threads": 1, "objective": "regression"}
        target = y
        if self.is_classification:
            self.classes_, target = np.unique(y, return_inverse=True)
            many = {"objective": "multiclass", "num_class": len(self.classes_)}
            fixed |= {"objective": "binary"} if len(self.classes_) == 2 else many
        splitter = StratifiedKFold if self.is_classification else KFold
        folds = list(splitter(FOLDS, shuffle=True, random_state=self.seed).split(X, target))
        tried = configurations(self.seed)
        # processes: threads of LightGBM hardly help on some thousand rows
        found = Parallel(n_jobs=self.threads or -1)(
            delayed(_error_and_rounds)(fixed | drawn, X, target, folds) for drawn in tried
        )
        best = min(range(len(tried)), key=lambda number: found[number][0])
        self.best_params_, self.rounds_ = tried[best], found[best][1]
        rows = lightgbm.Dataset(X, target)
        self.booster_ = lightgbm.train(fixed | self.best_params_, rows, self.rounds_)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return classes or numbers."""
        if self.is_classification:
            return self.classes_[self._predict_proba(X).argmax(axis=1)]
        return np.asarray(self.booster_.predict(X))

    def _predict_proba(self, X: Any) -> np.ndarray:
        found = np.asarray(self.booster_.predict(X))
        return found if found.ndim == 2 else np.column_stack((1.0 - found, found))
