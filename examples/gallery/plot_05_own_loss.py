"""
Add your own loss
=================

A loss is a small class with its value, two derivatives and its conjugate.
:class:`leansvm.ReducedSVC` minimises it by Newton's method, with line search and duality gap. The
loss of this example is quadratic for small violations and linear for large ones. ``floating``
returns the array library of the argument, so that the loss also works on torch and CuPy arrays.
"""

import matplotlib.pyplot as plt
import numpy as np

from leansvm import ReducedSVC
from leansvm.datasets import make_ripley
from leansvm.losses import Loss, check_loss, floating, get_loss


class SquareRootHinge(Loss):
    """L(u) = sqrt(1 + max(0, u)²) - 1: quadratic for small violations, linear for large ones."""

    name = "square_root_hinge"
    domain = (0.0, 1.0)  # where the conjugate is finite; the derivative stays in it
    max_curvature = 1.0
    curvature_is_piecewise_constant = False

    def value(self, u):
        xp, u = floating(u)
        return xp.sqrt(1 + xp.clip(u, 0, None) ** 2) - 1

    def derivative(self, u):
        xp, u = floating(u)
        positive = xp.clip(u, 0, None)
        return positive / xp.sqrt(1 + positive**2)

    def second_derivative(self, u):
        xp, u = floating(u)
        return xp.where(u > 0, (1 + u * u) ** -1.5, xp.zeros_like(u))

    def conjugate(self, v):
        xp, v = floating(v)
        return 1 - xp.sqrt(1 - v * v)


# %%
# ``check_loss`` compares the derivatives with finite differences, and the conjugate with Fenchel's
# inequality, which is an equality at v = L'(u). An error says what is wrong. Every fit calls it.

check_loss(SquareRootHinge())
u = np.linspace(-3, 4, 2001)

# %%
# Some labels are wrong. They matter less if the loss is linear for large violations.

X, y = make_ripley(3250, random_state=0)
X_train, y_train, X_test, y_test = X[:250], y[:250].copy(), X[250:], y[250:]
far = np.argsort(-np.abs(X_train[:, 1] - 0.5))[:25]
y_train[far] *= -1

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
errors = {}
for name, one in (("squared hinge", "squared_hinge"), ("square-root hinge", SquareRootHinge())):
    known = get_loss(one) if isinstance(one, str) else one
    left.plot(u, known.value(u), label=name)
    model = ReducedSVC(C=10.0, loss=one, n_basis=60, gamma=2.0, random_state=0)
    model.fit(X_train, y_train)
    errors[name] = 100 * (1 - model.score(X_test, y_test))
    print(f"{name}: {model.n_iter_} Newton steps, gap {model.fit_report_['gap']:.1e}")
left.set(xlabel="slack u = 1 − y f(x)", ylabel="loss", ylim=(-0.2, 5))
left.legend(frameon=False)
right.bar(list(errors), list(errors.values()), width=0.5)
right.set(ylabel="test error (%)", title="25 of 250 labels are wrong")
plt.show()
