"""
One model for four sites, and a model that forgets rows
=======================================================

Four sites may not share their rows. They agree on basis points and gamma, chosen on public rows,
and each sends one small object: its sums. The added sums give the model of all rows. Later one
site withdraws its rows, and its sums are subtracted.
"""

import matplotlib.pyplot as plt
import numpy as np

from leansvm import SparseLSSVR

rng = np.random.default_rng(0)


def rows_between(low, high, n_rows=200):
    x = rng.uniform(low, high, size=(n_rows, 1))
    return x, np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=n_rows)


sites = [rows_between(2 * k, 2 * k + 2) for k in range(4)]

# The plan has basis points and gamma from public rows, and no sums.
public = np.linspace(0, 8, 60)[:, None]
plan = SparseLSSVR(1.0, "rbf", gamma=2.0, n_basis=30, random_state=0)
plan = plan.fit(public, np.zeros(60)).state().empty()

# Every site adds up its rows. Only these sums leave the site.
states = [SparseLSSVR(1.0).fit_from_state(plan).state(X, y) for X, y in sites]
merged = SparseLSSVR("kfold").fit_from_state(sum(states))
forgot = SparseLSSVR("kfold").fit_from_state(sum(states) - states[2])

# %%
# The merged model equals a fit on the rows of all sites.

X, y = (np.concatenate(parts) for parts in zip(*sites, strict=True))
pooled = SparseLSSVR("kfold", "rbf", gamma=2.0, basis=plan.points).fit(X, y)
print(f"largest difference: {np.abs(pooled.predict(X) - merged.predict(X)).max():.1e}")

grid = np.linspace(0, 8, 300)[:, None]
figure, ax = plt.subplots(figsize=(8, 3.8), layout="constrained")
for k, (X, y) in enumerate(sites):
    ax.plot(X[:, 0], y, ".", ms=3, color=f"C{k}", alpha=0.5, label=f"rows of site {k}")
ax.plot(grid, merged.predict(grid), "k", lw=2, label="all sites")
ax.plot(grid, forgot.predict(grid), "k--", label="without site 2")
ax.set(xlabel="x", ylabel="y", ylim=(-2, 2))
ax.legend(ncols=2, fontsize="small")
plt.show()
