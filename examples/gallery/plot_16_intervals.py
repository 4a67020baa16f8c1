"""
How sure is a prediction?
=========================

For every training row, the intervals use the model without this row. One fit gives all these models
exactly. With ``adaptive=True`` the intervals are wider where training rows are few, as in the empty
region here.
"""

import matplotlib.pyplot as plt
import numpy as np

from leansvm import SparseLSSVR

rng = np.random.default_rng(0)
X = rng.uniform(-3, 3, size=(300, 1))
X = X[(X[:, 0] < -0.5) | (X[:, 0] > 1.5)]  # an empty region
y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=len(X))
model = SparseLSSVR(kernel="matern32", gamma=2.0, n_basis=80, random_state=0).fit(X, y)

# %%
# How often do the intervals contain new targets?

X_new = rng.uniform(-3, 3, size=(2000, 1))
X_new = X_new[(X_new[:, 0] < -0.5) | (X_new[:, 0] > 1.5)]
y_new = np.sin(2 * X_new[:, 0]) + 0.3 * rng.normal(size=len(X_new))
for method in ("jackknife+", "cv+", "normal"):
    low, high = model.predict_interval(X_new, alpha=0.1, method=method).T
    print(f"{method:10} {100 * np.mean((low <= y_new) & (y_new <= high)):.1f} % inside")

# %%
# On the left, intervals have nearly the same width everywhere. On the right, they are wider where
# training rows are few.

grid = np.linspace(-3.2, 3.2, 300)[:, None]
figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
for ax, adaptive in zip(axes, (False, True), strict=True):
    low, high = model.predict_interval(grid, alpha=0.1, adaptive=adaptive).T
    ax.fill_between(grid[:, 0], low, high, alpha=0.3, label="90 % of new targets")
    ax.plot(grid[:, 0], model.predict(grid), label="prediction")
    ax.plot(X[:, 0], y, ".", markersize=3, color="0.4")
    ax.set_title("adaptive=True" if adaptive else "jackknife+")
axes[0].legend(frameon=False)
plt.show()
