"""
Ten classes: C and size by left-out rows
========================================

With the squared hinge loss, ``ReducedSVC`` chooses C by the error rate of left-out rows and the
size of its basis by their loss. Each left-out value costs one Newton step. The left picture
compares the left-out error with the error on test rows. The right picture shows the sizes that it
tried; the grey line is the size it chose. Lower is better in both.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from leansvm import ReducedSVC
from leansvm.model_selection import c_path

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
machine = ReducedSVC(kernel="rbf", gamma="scale", loss="squared_hinge", random_state=0)
model = clone(machine).fit(X_train, y_train)

candidates = np.logspace(-6, 7, 27)  # those of C="loo"
seen = np.isfinite(model.cv_curve_)
path = c_path(
    machine.set_params(n_basis=100),
    X_train,
    y_train,
    candidates[seen],
    X_score=X_test,
    y_score=y_test,
)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
left.loglog(candidates[seen], model.cv_curve_[seen], "o-", label="left-out error")
left.loglog(candidates[seen], 1 - path.score, "s--", label="test error")
left.axvline(model.C_, color="0.7", zorder=0)
left.set(xlabel="C")
left.legend(frameon=False)
sizes = model.fit_report_["sizes"]
right.plot(sizes["sizes"], sizes["errors"], "o-")
right.axvline(model.n_support_, color="0.7", zorder=0)
right.set(xlabel="basis points", ylabel="left-out loss", xscale="log")
plt.show()
