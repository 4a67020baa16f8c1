"""
Which labels are wrong?
=======================

Five percent of the labels of handwritten digits are changed. The model without a row says how
probable the label of this row is. The least probable labels come first in the list. No model is
fitted again.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from leansvm import SparseLSSVC
from leansvm.inspection import inspect_rows

X, y = load_digits(return_X_y=True)
rng = np.random.default_rng(0)
wrong = rng.choice(len(y), len(y) // 20, replace=False)
given = y.copy()
given[wrong] = (y[wrong] + rng.integers(1, 10, len(wrong))) % 10

model = SparseLSSVC(kernel="rbf", gamma="scale", n_basis=300, random_state=0).fit(X, given)
found = inspect_rows(model, X, given)
order = found.most_suspicious(len(y))
hits = np.isin(order, wrong)
print(f"the {len(wrong)} most suspicious rows contain {hits[: len(wrong)].sum()} wrong labels")

# %%
# On the left, the eight most suspicious rows. On the right, the share of the wrong labels that a
# person finds after looking at the first rows of the list. The dashed line is the number of wrong
# labels.

figure = plt.figure(figsize=(9, 3.6), layout="constrained")
left, right = figure.subfigures(1, 2)
for ax, row in zip(left.subplots(2, 4).ravel(), order[:8], strict=True):
    ax.imshow(X[row].reshape(8, 8), cmap="gray_r")
    ax.set_title(f"given {given[row]}", fontsize=9)
    ax.set_axis_off()
ax = right.subplots()
ax.plot(np.arange(1, len(y) + 1), 100 * np.cumsum(hits) / len(wrong))
ax.axvline(len(wrong), color="0.5", linewidth=1, linestyle="--")
ax.set(xlabel="rows looked at", ylabel="wrong labels found (%)", xlim=(0, 4 * len(wrong)))
plt.show()
