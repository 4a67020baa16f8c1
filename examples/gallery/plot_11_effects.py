"""
What does each feature do?
==========================

Friedman's function is 10 sin(pi x0 x1) + 20 (x2 - 1/2)^2 + 10 x3 + 5 x4; five more columns are
noise. Partial dependence comes from the structure of the kernel, and interactions come from exact
second derivatives.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1

from leansvm import SparseLSSVR
from leansvm.inspection import effects
from leansvm.plotting import EffectsDisplay

X, y = make_friedman1(800, n_features=10, noise=1.0, random_state=0)
model = SparseLSSVR(kernel="rbf", gamma=0.3, n_basis=200, random_state=0).fit(X, y)
found = effects(model, X, n_individual=40)
for place in found.strongest(5):
    print(f"{found.names[place]}: slope {found.slope[0, place]:+.1f}")

# %%
# Thin lines are single rows. The lines of x0 and x1 are not parallel, because the two interact.

display = EffectsDisplay(found).plot()
display.figure_.suptitle("Change of the prediction along a feature")

# %%
# The bars show how strongly the six strongest features interact.

order = np.argsort(found.interaction[0])
names = [" x ".join(f"x{f}" for f in found.pairs[p]) for p in order]
figure, ax = plt.subplots(figsize=(5, 4), layout="constrained")
ax.barh(names, found.interaction[0, order])
ax.set(xlabel="interaction, in units of y")
plt.show()
