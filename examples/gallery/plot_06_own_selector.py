"""
Add your own basis selector
===========================

If you have row numbers, pass them: ``SparseLSSVC(basis=rows)``. A selector does more: it chooses
any number of rows, and works inside pipelines and grid searches. It runs wherever the rows are, in
memory, on disk or on a cluster, because it uses ``blocks.map``. It chooses rows in order and never
sees the model. This selector always chooses the row that is farthest from the rows chosen before.
"""

from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np

from leansvm import SparseLSSVC
from leansvm.basis import Basis, BasisSelector
from leansvm.datasets import make_ripley
from leansvm.rows import declare


@dataclass
class Distances:
    """What a block keeps from one step to the next."""

    nearest: np.ndarray  # squared distance of every row to the nearest point so far


@declare("X", keeps=Distances)  # what it reads of a block, and what it keeps there
def _nearer(block, kernel, points):
    """Lower the distances of a block's rows by the newest point; return its farthest row."""
    # ‖φ(x) - φ(z)‖² = k(x, x) + k(z, z) - 2 k(x, z)
    distance = kernel.diag(block.X) + kernel.diag(points) - 2 * kernel.block(block.X, points)[:, 0]
    earlier = block.state.get(Distances)
    nearest = distance if earlier is None else np.minimum(earlier.nearest, distance)
    block.keep(Distances(nearest))
    k = int(np.argmax(nearest))
    return float(nearest[k]), block.start + k


class FarthestFirst(BasisSelector):
    """Always the row that is farthest from those chosen, in the kernel's space (Gonzalez 1985)."""

    nested = True  # the first k rows of a choice are what it chooses for n_basis=k

    def _choose(self, blocks, kernel, n_basis, rng, fit, on_step):
        rows = [int(rng.randint(blocks.n_rows))]
        while len(rows) < n_basis:
            newest = np.array(rows[-1:])
            points = kernel.points(blocks.take(newest), newest)
            distance, row = max(blocks.map(_nearer, kernel, points))
            if distance <= 0 or on_step(len(rows)):
                break  # every row is one of those chosen, or the user wants to stop
            rows.append(row)
        return Basis(np.array(rows))


# %%
# Every estimator with a ``basis`` parameter takes it.

X, y = make_ripley(2250, random_state=0)
X_train, y_train, X_test, y_test = X[:1250], y[:1250], X[1250:], y[1250:]

figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained", sharey=True)
for axis, basis in zip(axes, ("random", FarthestFirst(), "backfitting"), strict=True):
    model = SparseLSSVC(n_basis=30, basis=basis, gamma=4.0, random_state=0).fit(X_train, y_train)
    axis.scatter(*X_train.T, s=3, color="lightgray")
    axis.scatter(*model.support_vectors_.T, s=18, color="C0")
    name = basis if isinstance(basis, str) else type(basis).__name__
    axis.set_title(f"{name}: error {100 * (1 - model.score(X_test, y_test)):.1f} %")
plt.show()
