"""
Add your own kernel
===================

A kernel is a function of two matrices that returns the kernel values of all pairs of rows. Every
estimator takes such a function. This example is for angles, where 359° is next to 1°.
"""

import matplotlib.pyplot as plt
import numpy as np

from leansvm import SparseLSSVR


def periodic(X, Z, width=1.0):
    """exp(-2 sin²((x - z) / 2) / width²), the product over the columns."""
    differences = X[:, None, :] - Z[None, :, :]
    return np.exp(-2 * np.sum(np.sin(differences / 2) ** 2, axis=2) / width**2)


rng = np.random.default_rng(0)
angles = np.radians(rng.uniform(60, 300, size=(120, 1)))  # no data around 0°
values = np.sin(2 * angles[:, 0]) + 0.5 * np.cos(angles[:, 0]) + 0.1 * rng.normal(size=120)

# %%
# The Gaussian kernel does not know that 360° is 0°: the curve goes to the mean where the data end,
# and jumps at 0°. With the periodic kernel the curve has no jump.

circle = np.radians(np.linspace(0, 360, 361))[:, None]
figure, axis = plt.subplots(figsize=(7, 3.4), layout="constrained")
axis.plot(np.degrees(angles[:, 0]), values, ".", color="gray", label="data")
for name, kernel in (("rbf", "rbf"), ("periodic", periodic)):
    model = SparseLSSVR(kernel=kernel, gamma="scale", n_basis=25, random_state=0)
    model.fit(angles, values)
    prediction = model.predict(circle)
    jump = abs(prediction[-1] - prediction[0])
    axis.plot(np.degrees(circle[:, 0]), prediction, label=f"{name}: jump at 0° {jump:.2f}")
axis.set(xlabel="angle (degrees)", ylabel="value")
axis.legend(frameon=False)
plt.show()

# %%
# A function has three limits: leansvm does not learn its parameters (``width`` here), cannot export
# the model to C, JavaScript or ONNX, and does not check that the kernel is symmetric. (It warns if
# the kernel matrix of some rows is not positive semidefinite.) A kernel with a name, like
# ``"rbf"``, has none of these limits. It is a class in ``leansvm/kernels/``; ``CONTRIBUTING.md``
# says what it needs.
