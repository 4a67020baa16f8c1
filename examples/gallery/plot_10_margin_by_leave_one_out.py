"""
The margin's C by leave-one-out
===============================

`L2SVC(C="loo")` solves fifteen values of C and takes the one whose rows, each left out in turn,
have the least squared hinge loss. No model is fitted again: the other support vectors are kept,
and most of them would stay what they are. Rows held back show the same valley.
"""

import matplotlib.pyplot as plt
import numpy as np

from leansvm import L2SVC
from leansvm.datasets import make_ripley

X, y = make_ripley(2250, random_state=0)
model = L2SVC(C="loo", gamma=2.0).fit(X[:250], y[:250])

grid = np.logspace(-3, 4, 15)
signs = np.where(y[250:] == model.classes_[1], 1, -1)
held_back = []
for C in grid:
    values = L2SVC(C=C, gamma=2.0).fit(X[:250], y[:250]).decision_function(X[250:])
    held_back.append(np.mean(np.maximum(0, 1 - signs * values) ** 2))

figure, axis = plt.subplots(figsize=(5, 3.6), layout="constrained")
axis.loglog(grid, model.cv_curve_, "o-", label="left out, 250 rows")
axis.loglog(grid, held_back, "s--", label="held back, 2,000 rows")
axis.axvline(model.C_, color="0.7")
axis.set(xlabel="C", ylabel="squared hinge loss", title=f"chosen: C = {model.C_:.3g}")
axis.legend()
plt.show()
