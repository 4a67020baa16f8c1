"""
A model in three sentences
==========================

`LowRankLSSVC` learns a few functions that all classes share. With one function for each species of
iris, the model fits into three sentences and one picture.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from leansvm import LowRankLSSVC
from leansvm.plotting import LowRankDisplay

iris = load_iris(as_frame=True)
X, y = iris.data, iris.target_names[iris.target]
scaler = StandardScaler().set_output(transform="pandas")
scaler, model = make_pipeline(scaler, LowRankLSSVC(n_basis=3)).fit(X, y)

# %%
# The scaler converts centres and widths back to centimetres.

print(model.describe(scaler=scaler, max_features=2))

# %%
# The picture shows the two features that matter most; the others are held at their medians.
# Crosses are the centres. On the lines a function has half of its height.

rows = scaler.transform(X)
figure, axis = plt.subplots(figsize=(6, 5), layout="constrained")
LowRankDisplay.from_estimator(model, rows, y, ax=axis)
plt.show()

# %%
# Without ``n_basis`` the model finds the number of functions itself. It compares errors on rows
# that the functions have not seen. With 150 rows it tries no more than ten functions.

found = LowRankLSSVC().fit(rows, y)
for size, error in zip(found.fit_report_["sizes"], found.fit_report_["size_errors"], strict=True):
    print(f"{size} functions: error {error:.3f}")
print(f"chosen: {len(found.centers_)} functions; correct: {np.mean(found.predict(rows) == y):.0%}")
