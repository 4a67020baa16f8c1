"""
Features that do not matter
===========================

Friedman's function depends on five features. Here they are hidden among more and more columns of
noise. A kernel with one gamma treats all columns alike and gets worse with every column of noise.
With one gamma for each feature, learned by leave-one-out, the model ignores the noise.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_friedman1

from leansvm import SparseLSSVR
from leansvm.plotting import FeatureScalesDisplay

settings = {
    "one gamma": {"kernel": "rbf", "gamma": "scale"},
    "learned": {"kernel": "rbf", "gamma": "learn"},
}
widths = [5, 20, 40]
scores = {name: [] for name in settings}
for n_features in widths:
    X, y = make_friedman1(1600, n_features, noise=1.0, random_state=0)
    for name, parameters in settings.items():
        model = SparseLSSVR(n_basis=300, random_state=0, **parameters).fit(X[:800], y[:800])
        scores[name].append(100 * model.score(X[800:], y[800:]))

# %%
# The right picture shows the scales of the widest model, largest first. x0 to x4 are the five
# features of the function. x3 and x4 have linear effects. A smooth kernel needs little resolution
# along them, so their bars are shorter. A scale is not the size of an effect.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
for name, values in scores.items():
    left.plot(widths, values, "o-", label=name)
left.set(xlabel="features, five of which matter", ylabel="test R² (%)", ylim=(None, 100))
left.legend(frameon=False)
FeatureScalesDisplay.from_estimator(model, max_features=12, ax=right)
plt.show()
