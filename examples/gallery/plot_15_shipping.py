"""
A model in fewer bytes
======================

Exported models store points and coefficients in as few bytes as the error allows. ``compress``
tries every type on held-out rows, and ``to_c`` and ``to_js`` write the one that it chose.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits

from leansvm import SparseLSSVC
from leansvm.export import compress, to_c

X, y = load_digits(return_X_y=True)
machine = SparseLSSVC(kernel="rbf", gamma="scale", n_basis=100, random_state=0)
machine.fit(X[:1000], y[:1000])
small = compress(machine, X[1000:], y[1000:])
header = to_c(small, name="digits", dtype="float32")

figure, axis = plt.subplots(figsize=(5.5, 3.6), layout="constrained")
sizes = [trial["bytes"] / 1000 for trial in small.trials]
errors = [100 * trial["error"] for trial in small.trials]
axis.axhline(100 * small.trials[0]["allowed"], color="0.6", linestyle=":", label="error limit")
axis.plot(sizes, errors, "o-")
for trial, size, error in zip(small.trials, sizes, errors, strict=True):
    axis.annotate(trial["store"], (size, error), xytext=(4, 6), textcoords="offset points")
axis.set(xscale="log", xlabel="kilobytes of points and coefficients", ylabel="wrong labels [%]")
axis.set_ylim(0, 150 * small.trials[0]["allowed"])
axis.set_title(f"100 points of 64 pixels: {small.store} is enough, {small.bytes / 1000:.1f} kB")
axis.legend()
plt.show()
