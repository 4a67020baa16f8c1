"""
Does the model know this kind at all?
=====================================

A classifier always answers with one of its training classes, whatever it is given. Here it has
seen wine of two out of three growers. `novelty` tells bottles of the third grower from new bottles
of the first two, although the model never saw a bottle of the third.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split

from leansvm import SparseLSSVC
from leansvm.inspection import novelty

X, y = load_wine(return_X_y=True)
unknown = X[y == 1]
X_train, X_known, y_train, y_known = train_test_split(
    X[y != 1], y[y != 1], test_size=0.4, stratify=y[y != 1], random_state=0
)
spread = X_train.std(axis=0)
model = SparseLSSVC(kernel="rbf", gamma=0.05 / spread**2, random_state=0).fit(X_train, y_train)
print(f"{model.score(X_known, y_known):.0%} of the new bottles of known growers are correct")

# %%
# novelty is a p-value: for rows like the training rows, 5 % of the values are below 0.05.

known, strange = novelty(model, X_known), novelty(model, unknown)
for name, values in (("known growers", known), ("the unknown grower", strange)):
    print(f"{np.mean(values < 0.05):.0%} of the bottles of {name} are below 0.05")

figure, axis = plt.subplots(figsize=(6, 3.6), layout="constrained")
steps = np.linspace(0, 1, 21)
axis.hist([known, strange], steps, label=["known growers", "unknown grower"])
axis.axvline(0.05, color="0.5", linestyle="--", linewidth=1)
axis.set(xlabel="novelty (p-value)", ylabel="bottles")
axis.legend(frameon=False)
plt.show()
