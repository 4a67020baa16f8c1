"""Models over many data sets: wins, differences, average ranks and how far apart they must be.

Two models differ by the Nemenyi test when their average ranks over N sets differ by more than
q * sqrt(k (k + 1) / (6 N)) for k models (J. Demšar, Statistical comparisons of classifiers over
multiple data sets, JMLR, 2006).
"""

import statistics
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata, studentized_range

Scores = dict[str, dict[str, float]]  # by model, then by set; larger is better


@dataclass(frozen=True)
class Comparison:
    """One model beside another over the sets that both have.

    Parameters
    ----------
    peer : str
        Name of the other model.
    sets, wins : int
        Sets compared, and those where the first model is at least as good.
    median, mean : float
        Of the differences, first less other.
    worst_set : str
        Where the first model falls behind most.
    worst : float
        By how much.
    """

    peer: str
    sets: int
    wins: int
    median: float
    mean: float
    worst_set: str
    worst: float

    def words(self, unit: str = "points") -> str:
        """Return it as a sentence; `unit` is that of the differences."""
        return (
            f"against {self.peer}: at least as good on {self.wins} of {self.sets} sets, median "
            f"{self.median:+.2f}, mean {self.mean:+.2f} {unit}, worst {self.worst:+.2f} "
            f"({self.worst_set})"
        )


def compare(scores: Scores, first: str, peer: str) -> Comparison | None:
    """Compare two models; None where they share no set."""
    common = sorted(scores[first].keys() & scores[peer].keys())
    if not common:
        return None
    differences = {name: scores[first][name] - scores[peer][name] for name in common}
    worst = min(differences, key=differences.__getitem__)
    return Comparison(
        peer=peer,
        sets=len(common),
        wins=sum(value >= 0 for value in differences.values()),
        median=statistics.median(differences.values()),
        mean=statistics.fmean(differences.values()),
        worst_set=worst,
        worst=differences[worst],
    )


def average_ranks(scores: Scores) -> tuple[dict[str, float], int]:
    """Return the average rank (1 is best) of each model that has all sets, and their number."""
    names = sorted(set().union(*scores.values()))
    models = [model for model, found in scores.items() if len(found) == len(names)]
    table = np.array([[scores[model][name] for model in models] for name in names])
    ranks = rankdata(-table, axis=1).mean(axis=0)
    return dict(zip(models, ranks.tolist(), strict=True)), len(names)


def critical_difference(n_models: int, n_sets: int, level: float = 0.05) -> float:
    """Return the Nemenyi test's critical difference of average ranks."""
    q = studentized_range.ppf(1 - level, n_models, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(n_models * (n_models + 1) / (6 * n_sets)))


def groups(ranks: dict[str, float], difference: float) -> list[tuple[float, float]]:
    """Return the largest runs of models, first and last rank, that the test cannot tell apart."""
    ordered = sorted(ranks.values())
    runs: list[tuple[float, float]] = []
    for rank in ordered:
        last = max(other for other in ordered if other - rank <= difference)
        if last > rank and (not runs or last > runs[-1][1]):
            runs.append((rank, last))
    return runs
