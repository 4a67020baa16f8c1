"""
Which digits can it not tell apart?
===================================

`predict_set` returns all digits that a picture may show. Most sets have one digit. Sets with two
digits show what the model cannot tell apart. The right digit is in 99 of 100 sets.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from leansvm import SparseLSSVC

X_train, X_test, y_train, y_test = train_test_split(
    *load_digits(return_X_y=True), test_size=0.4, random_state=0
)
model = SparseLSSVC(kernel="rbf", gamma="scale", n_basis=200, random_state=0).fit(X_train, y_train)
sets = model.predict_set(X_test, alpha=0.01)
sizes = sets.sum(axis=1)
print("pictures with no digit, one, two, ...:", np.bincount(sizes))
print(f"the right digit is in {sets[np.arange(len(y_test)), y_test].mean():.1%} of the sets")

# %%
# On the left, pictures whose set has more than one digit. On the right, how often two digits are
# in one set.

several = np.flatnonzero(sizes > 1)[:8]
together = sets.T.astype(int) @ sets.astype(int)
np.fill_diagonal(together, 0)

figure = plt.figure(figsize=(9, 3.8), layout="constrained")
left, right = figure.subfigures(1, 2)
for axis, row in zip(left.subplots(2, 4).ravel(), several, strict=False):
    axis.imshow(X_test[row].reshape(8, 8), cmap="gray_r")
    axis.set_title(" or ".join(map(str, np.flatnonzero(sets[row]))), fontsize=9)
    axis.set_axis_off()
axis = right.subplots()
picture = axis.imshow(together, cmap="Blues")
axis.set(xticks=range(10), yticks=range(10), title="pictures that may be both")
right.colorbar(picture)
plt.show()
