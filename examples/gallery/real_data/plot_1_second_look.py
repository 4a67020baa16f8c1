"""
Which cases need a second look?
===============================

Thirty measurements of cell nuclei say whether a tumour is malignant. A doctor who has time for
some of the cases wants to see those that the model is least sure of. Probabilities rank the cases.
The learned scales show how quickly the kernel changes along each measurement.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from leansvm import SparseLSSVC
from leansvm.plotting import FeatureScalesDisplay

data = load_breast_cancer(as_frame=True)
X_train, X_test, y_train, y_test = train_test_split(
    data.data, data.target, test_size=0.4, stratify=data.target, random_state=0
)
model = SparseLSSVC(calibrate=True, random_state=0).fit(X_train, y_train)

sure = model.predict_proba(X_test).max(axis=1)
wrong = model.predict(X_test) != y_test
order = np.argsort(sure)  # least sure first
found = np.cumsum(wrong.to_numpy()[order])
needed = int(np.argmax(found == found[-1])) + 1
print(f"{wrong.sum()} of {len(wrong)} cases are wrong; all are among the {needed} least sure cases")

# %%
# On the left, the number of errors that are left after a person has looked at the least sure cases
# (lower is better). The dashed line is for a person who looks at random cases.

share = np.arange(len(order) + 1) / len(order)
left_over = wrong.sum() - np.concatenate([[0], found])
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
left.step(100 * share, left_over, where="post")
left.plot([0, 100], [wrong.sum(), 0], "--", color="0.6")
left.set(xlabel="cases looked at (%)", ylabel="errors left", ylim=(0, None))
FeatureScalesDisplay.from_estimator(model, max_features=10, ax=right)
plt.show()
