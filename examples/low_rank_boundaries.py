"""Draw decision boundaries of low-rank models on Ripley's mixture, as in fang2019, Fig. 1.

    python examples/low_rank_boundaries.py --output low_rank_boundaries.png

If LEANSVM_DATA names a folder with synth/synth.npz, the rows are Ripley's own 250. Otherwise they
are drawn from the same mixture of four Gaussians.
"""

import argparse
import os
from pathlib import Path

import matplotlib
import numpy as np

from leansvm import LSSVC, LowRankLSSVC
from leansvm.plotting import LowRankDisplay


def rows(n_rows, seed):
    """Draw from Ripley's mixture: two Gaussians per class, variance 0.03."""
    rng = np.random.default_rng(seed)
    means = np.array([[[-0.7, 0.3], [0.3, 0.3]], [[-0.3, 0.7], [0.4, 0.7]]])
    labels = rng.integers(0, 2, n_rows)
    X = means[labels, rng.integers(0, 2, n_rows)] + np.sqrt(0.03) * rng.normal(size=(n_rows, 2))
    return X, labels


def ripley():
    path = Path(os.environ.get("LEANSVM_DATA", ""), "synth", "synth.npz")
    if path.is_file():
        with np.load(path, allow_pickle=False) as file:
            return tuple(file[key] for key in ("X_train", "y_train", "X_test", "y_test"))
    return *rows(250, 0), *rows(1000, 1)


def draw_gaussian(ax, model, X, y):
    """Draw the boundary of a model that has no functions to show."""
    x0, x1 = (np.linspace(low, high, 100) for low, high in zip(X.min(0), X.max(0), strict=True))
    plane = np.stack([part.ravel() for part in np.meshgrid(x0, x1)], axis=1)
    values = model.decision_function(plane).reshape(100, 100)
    most = np.abs(values).max()
    ax.contourf(x0, x1, values, np.linspace(-most, most, 12), cmap="RdBu_r", alpha=0.6)
    ax.contour(x0, x1, values, levels=[0.0], colors="black", linewidths=2)
    ax.scatter(*X.T, c=y, cmap="RdBu_r", s=8)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", default="low_rank_boundaries.png")
    output = parser.parse_args().output
    matplotlib.use("Agg")
    from matplotlib import pyplot

    X, y, X_test, y_test = ripley()
    paper = {"shape_init": 0.2, "max_iter": 100, "iterate": "last"}
    models = {
        "Gaussian kernel, 250 points": LSSVC(5000.0, gamma=0.5),
        "4 simplex functions": LowRankLSSVC(
            200.0, 4, function="simplex", objective="abs", learning_rate=0.02, **paper
        ),
        '3 robust functions, "abs"': LowRankLSSVC(
            150.0, 3, objective="abs", learning_rate=8e-4, **paper
        ),
        '3 robust functions, "squared"': LowRankLSSVC(
            20.0, 3, objective="squared", learning_rate=5e-4, **paper
        ),
        '3 robust functions, "loss"': LowRankLSSVC(n_basis=3),
        '4 smooth functions, "loss"': LowRankLSSVC(n_basis=4, function="rbf"),
    }
    figure, axes = pyplot.subplots(2, 3, figsize=(13, 8), layout="constrained")
    for ax, (title, model) in zip(axes.flat, models.items(), strict=True):
        model.fit(X, y)
        if isinstance(model, LowRankLSSVC):
            LowRankDisplay.from_estimator(model, X, y, ax=ax)
        else:
            draw_gaussian(ax, model, X, y)
        ax.set_title(f"{title}: {100 * (1 - model.score(X_test, y_test)):.1f} % test error")
    figure.savefig(output, dpi=110)
    print(f"wrote {output}")


if __name__ == "__main__":
    main()
