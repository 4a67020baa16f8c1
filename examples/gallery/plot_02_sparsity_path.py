"""
Accuracy against the number of basis points
===========================================

One fit gives the errors for every number of basis points, almost without extra time: the
generalised cross-validation score and the leave-one-out error. So you can choose the number by
looking at the curve.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from leansvm import SparseLSSVC
from leansvm.model_selection import basis_path

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for basis in ("random", "pivoted-cholesky", "backfitting"):
    model = SparseLSSVC(C=10.0, gamma="scale", n_basis=300, basis=basis, random_state=0)
    path = basis_path(model, X_train, y_train, X_score=X_test, y_score=y_test)
    level = 100 * path.sizes / path.n_rows
    left.semilogy(level, path.loo, label=basis)
    right.plot(level, 100 * path.score, label=basis)
left.set(xlabel="rows kept (%)", ylabel="leave-one-out squared error")
right.set(xlabel="rows kept (%)", ylabel="test accuracy (%)", ylim=(85, 100))
right.legend(frameon=False)
plt.show()
