"""
Will it work at the next hospital, and would more rows help?
============================================================

Six hospitals measure the same quantities, each with its own offset. Cross-validation on random
folds shows how good the model is for new patients of these six. Leaving out one hospital at a time
shows how good it will be at a seventh hospital. Both errors, and the learning curve, come from sums
over the rows, for every C at once. No model is fitted again.
"""

import matplotlib.pyplot as plt
import numpy as np

from leansvm import SparseLSSVR
from leansvm.model_selection import KFoldSums, cross_val_from_sums
from leansvm.plotting import GroupErrorsDisplay, LearningCurveDisplay

rng = np.random.default_rng(1)
n_rows = 1200
hospital = rng.integers(0, 6, size=n_rows)
X = rng.normal(size=(n_rows, 3)) + rng.normal(size=(6, 3))[hospital]
y = np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1] + 0.3 * rng.normal(size=n_rows)
y += 0.5 * rng.normal(size=6)[hospital]
names = np.array([f"hospital {k}" for k in range(6)])[hospital]

model = SparseLSSVR(kernel="rbf", gamma="scale", n_basis=100, random_state=0)
rows = cross_val_from_sums(model, X, y)
groups = cross_val_from_sums(model, X, y, folds=KFoldSums(None, groups=names))
print(f"error on new rows of these hospitals: {rows.mean.min() ** 0.5:.2f}")
print(f"error at a new hospital: {groups.mean.min() ** 0.5:.2f}")

# %%
# The error at a left-out hospital is larger than that on left-out rows, and it differs between
# hospitals. With ``C=KFoldSums(None, groups=names)`` a fit chooses the C that is best for a new
# hospital. The learning curve is flat at its end: more patients of these six would not help.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
GroupErrorsDisplay(groups).plot(ax=left)
left.axvline(rows.mean.min() ** 0.5, color="C1", label="left-out rows")
left.legend(loc="lower left")
LearningCurveDisplay.from_estimator(model, X, y, fractions=[0.1, 0.2, 0.4, 0.7, 1.0], ax=right)
plt.show()
