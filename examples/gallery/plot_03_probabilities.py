"""
Probabilities from leave-one-out values
=======================================

A classifier fits an increasing curve to its exact leave-one-out decision values. This needs no
second fit and no held-out rows, and the most probable class is always the predicted one. On the
diagonal, probabilities are perfectly calibrated.
"""

import matplotlib.pyplot as plt
from sklearn.calibration import CalibrationDisplay

from leansvm import LSSVC
from leansvm.datasets import make_ripley

X, y = make_ripley(4250, random_state=1)
model = LSSVC(C="loo").fit(X[:250], y[:250])

figure, axis = plt.subplots(figsize=(4.5, 4.2), layout="constrained")
CalibrationDisplay.from_estimator(model, X[250:], y[250:], n_bins=10, ax=axis, name="LSSVC")
axis.set_title(f"250 rows, accuracy {100 * model.score(X[250:], y[250:]):.1f} %")
plt.show()
