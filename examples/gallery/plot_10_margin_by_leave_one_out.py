"""
Choosing C of a large-margin classifier by leave-one-out
========================================================

`L2SVC(C="loo")` tries fifteen values of C and chooses the one with the smallest squared hinge loss
of left-out rows. No model is fitted again: the formula assumes that the other support vectors stay
the same. The loss on test rows has its minimum at about the same C.
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
axis.loglog(grid, model.cv_curve_, "o-", label="left-out rows (250)")
axis.loglog(grid, held_back, "s--", label="test rows (2,000)")
axis.axvline(model.C_, color="0.7")
axis.set(xlabel="C", ylabel="squared hinge loss", title=f"chosen: C = {model.C_:.3g}")
axis.legend()
plt.show()
