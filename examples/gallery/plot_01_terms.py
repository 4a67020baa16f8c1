"""
How many terms does a boundary need?
====================================

Four estimators are trained on Ripley's mixture. The exact LS-SVM keeps all 250 rows. The others
find almost the same boundary with fewer terms, down to three.
"""

import matplotlib.pyplot as plt
import numpy as np

from leansvm import L2SVC, LSSVC, LowRankLSSVC, SparseLSSVC
from leansvm.datasets import make_ripley

X, y = make_ripley(1250, random_state=0)
X_train, y_train, X_test, y_test = X[:250], y[:250], X[250:], y[250:]

models = {
    "LSSVC": LSSVC(C="loo"),
    "SparseLSSVC": SparseLSSVC(n_basis=10, basis="backfitting", random_state=0),
    "L2SVC": L2SVC(),
    "LowRankLSSVC": LowRankLSSVC(n_basis=3),
}

# %%
# A term is a kernel function at a training row. In ``LowRankLSSVC`` it is a function whose centre
# and shape are learned.

x0, x1 = np.meshgrid(np.linspace(-1.4, 1.1, 120), np.linspace(-0.3, 1.3, 120))
plane = np.column_stack([x0.ravel(), x1.ravel()])
figure, axes = plt.subplots(2, 2, figsize=(8, 6), sharex=True, sharey=True, layout="constrained")
for axis, (name, model) in zip(axes.flat, models.items(), strict=True):
    model.fit(X_train, y_train)
    values = model.decision_function(plane).reshape(x0.shape)
    axis.contourf(x0, x1, values, levels=[-np.inf, 0, np.inf], colors=["C1", "C0"], alpha=0.15)
    axis.contour(x0, x1, values, levels=[0], colors="black")
    axis.scatter(*X_train.T, s=8, c=np.where(y_train > 0, "C0", "C1"))
    n_terms = len(model.centers_ if name == "LowRankLSSVC" else model.support_)
    error = 100 * (1 - model.score(X_test, y_test))
    axis.set_title(f"{name}: {n_terms} terms, error {error:.1f} %")
plt.show()
