"""
One row in fifty
================

If one row in fifty belongs to a class, the model rarely predicts this class: with the usual
threshold it nearly always predicts the other class. The leave-one-out values of the fit give a
better threshold, calibrated probabilities and sets that also cover the rare class, without another
fit.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import CalibrationDisplay
from sklearn.metrics import average_precision_score, precision_recall_curve

from leansvm import SparseLSSVC
from leansvm.model_selection import tune_threshold

rng = np.random.default_rng(0)
y = (rng.random(9000) < 0.02).astype(int)
X = rng.normal(size=(9000, 5))
X[:, :2] += 1.6 * y[:, None]
X, X_new, y, y_new = X[:3000], X[3000:], y[:3000], y[3000:]

model = SparseLSSVC(kernel="rbf", gamma=0.1, n_basis=150, random_state=0).fit(X, y)
tuned = tune_threshold(model, "f1")
p = model.predict_proba(X_new)[:, 1]
print(f"average precision {average_precision_score(y_new, p):.2f}")
for name, predicted in (("0", model.predict(X_new)), ("tuned", tuned.predict(X_new))):
    found = np.sum((predicted == 1) & (y_new == 1))
    print(f"threshold {name}: {found} of {y_new.sum()} found, {predicted.sum()} called positive")

# %%
# Sets that contain the right class for 90 % of the rows of every class, not only of all rows
# together.

for by_class in (False, True):
    sets = model.predict_set(X_new, alpha=0.1, by_class=by_class)
    covered = [sets[y_new == k, k].mean() for k in (0, 1)]
    print(f"by_class={by_class}: " + ", ".join(f"{100 * share:.0f} %" for share in covered))

# %%
# On the left, precision and recall for all thresholds; higher is better. On the right, the share
# of positive rows at each predicted probability; the diagonal is perfect calibration.

figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.8), layout="constrained")
precision, recall, _ = precision_recall_curve(y_new, model.decision_function(X_new))
left.plot(recall, precision)
for label, predicted in (("threshold 0", model.predict(X_new)), ("tuned", tuned.predict(X_new))):
    hits = np.sum((predicted == 1) & (y_new == 1))
    left.plot(hits / y_new.sum(), hits / max(predicted.sum(), 1), "o", label=label)
left.set(xlabel="recall: share of rare rows found", ylabel="precision: share of calls correct")
left.legend()
CalibrationDisplay.from_predictions(
    y_new, p, n_bins=8, strategy="quantile", ax=right, name="SparseLSSVC"
)
right.set(xlim=(0, 0.4), ylim=(0, 0.4))
plt.show()
