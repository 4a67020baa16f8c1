"""
One row at a time
=================

A service predicts one row at a time. `Predictor` prepares a model once, so that a prediction takes
microseconds. The model file has a few kilobytes.
"""

import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from leansvm import Predictor, SparseLSSVC, persistence

rng = np.random.default_rng(0)
X = rng.normal(size=(1000, 20))
y = X[:, 0] * X[:, 1] > 0
row = X[:1].copy()


def microseconds(call, argument, n_calls=50):
    """Return the time of a call, the best of five rounds."""
    rounds = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(n_calls):
            call(argument)
        rounds.append((time.perf_counter() - start) / n_calls)
    return 1e6 * min(rounds)


# %%
# The same model with 30, 100 and 300 points: how long does one row take, and how large is the
# file?

sizes = [30, 100, 300]
checked, ready, n_bytes = [], [], []
path = Path(tempfile.mkdtemp(), "model.skops")
for n_basis in sizes:
    model = SparseLSSVC(C=1.0, kernel="rbf", gamma=0.05, n_basis=n_basis, random_state=0).fit(X, y)
    predictor = Predictor(model)
    assert (predictor.predict(X) == model.predict(X)).all()
    checked.append(microseconds(model.predict, row))
    ready.append(microseconds(predictor.predict, row[0]))
    persistence.save(model, path)
    n_bytes.append(path.stat().st_size)

# %%
# `predict` spends most of its time on validation. The file stores each number of a point in 8
# bytes.

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
left.loglog(sizes, checked, "o-", label="model.predict")
left.loglog(sizes, ready, "o-", label="Predictor.predict")
left.set(xlabel="basis points", ylabel="microseconds per row")
left.legend()
right.loglog(sizes, np.array(n_bytes) / 1000, "o-")
right.set(xlabel="basis points", ylabel="model file [kB]")
plt.show()
