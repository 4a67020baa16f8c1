"""
How far will a disease progress, and how sure is that?
======================================================

The data are ten measurements of 442 patients with diabetes, and the progression of the disease a
year later. They are noisy, so a single predicted number says little. Intervals show how far off it
may be, and effects show which measurements change it.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from leansvm import SparseLSSVR
from leansvm.plotting import EffectsDisplay

data = load_diabetes(as_frame=True, scaled=False)  # years, kg/m², mmHg, ... as they were measured
X_train, X_test, y_train, y_test = train_test_split(data.data, data.target, random_state=0)
model = SparseLSSVR(random_state=0).fit(X_train, y_train)

low, high = model.predict_interval(X_test, alpha=0.2).T
inside = (low <= y_test) & (y_test <= high)
print(f"R² of new patients: {model.score(X_test, y_test):.2f}")
print(f"80 % intervals contain {inside.mean():.0%} of them; mean width {np.mean(high - low):.0f}")

# %%
# The three strongest effects, in the units of the table. bmi is the body mass index, s5 the
# logarithm of triglycerides, and bp the blood pressure. Thin lines are single patients.

EffectsDisplay.from_estimator(model, X_train, max_features=3)

# %%
# New patients, sorted by prediction, with their intervals.

order = np.argsort(model.predict(X_test))
place = np.arange(len(order))
figure, axis = plt.subplots(figsize=(8, 3.6), layout="constrained")
axis.fill_between(place, low[order], high[order], alpha=0.25, linewidth=0)
axis.plot(place, model.predict(X_test)[order], label="prediction")
axis.plot(place, y_test.to_numpy()[order], ".", color="0.3", label="measured a year later")
axis.set(xlabel="patients, by prediction", ylabel="progression")
axis.legend(frameon=False)
plt.show()
