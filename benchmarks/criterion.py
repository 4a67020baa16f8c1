"""What GCV, leave-one-out and folds choose for C, beside the best C of the grid.

Gaussian kernel, one gamma, 1,600 random points: where generalised cross-validation overfits most.
The scores of the grid on the test rows say how much a choice costs; nothing is chosen by them.
"""

import numpy as np

from ._harness import Options, Report, SkipBenchmark
from ._tabular import Part, folder, score_of, split

SETS = ("protein", "sulfur", "house8L", "ann_thyroid", "airfoil")
POINTS = 1600  # or all rows
GRID = np.logspace(-6, 7, 14)
MOST_ROWS = 10_000


def run(options: Options) -> Report:
    """Score what each criterion chooses, and every C of a coarser grid."""
    names = [name for name in SETS if (folder() / f"{name}.npz").exists()]
    if not names:
        raise SkipBenchmark(f"LEANSVM_DATA has none of {', '.join(SETS)}")
    points, most_rows = options.pick((POINTS, MOST_ROWS), (100, 500))
    report = Report("criterion", f"{points:,} points, <= {most_rows:,} rows, rbf, scale", options)
    for name in names:
        part = _standardised(split(name, 0, most_rows))
        size = min(points, len(part.y))
        scores = {C: _fitted(part, C, size) for C in ("gcv", "kfold", "loo")}
        best = max(_fitted(part, float(C), size) for C in GRID)
        best = max(best, *scores.values())
        report.rows.append(
            {"set": name, "rows": len(part.y), "points": size}
            | {criterion: round(score, 2) for criterion, score in scores.items()}
            | {"best of the grid": round(best, 2)}
        )
        goal = 2.0 if name == "airfoil" else 1.0
        report.at_most(f"{name}: best C - that of leave-one-out", best - scores["loo"], goal)
    return report


def _standardised(part: Part) -> Part:
    centre, spread = part.X.mean(axis=0), part.X.std(axis=0)
    spread[spread == 0] = 1.0
    return part._replace(X=(part.X - centre) / spread, X_test=(part.X_test - centre) / spread)


def _fitted(part: Part, C: float | str, size: int) -> float:
    """Return accuracy or R² on the test rows, in %."""
    from leansvm import SparseLSSVC, SparseLSSVR

    make = SparseLSSVC if part.is_classification else SparseLSSVR
    model = make(C=C, kernel="rbf", gamma="scale", n_basis=size, random_state=0)
    return score_of(part, np.ravel(model.fit(part.X, part.y).predict(part.X_test)))
