"""Coverage and width of prediction intervals on regression tables, beside split conformal's.

Default `SparseLSSVR`, at most 1,000 training rows, 20 splits, alpha = 0.1. Split conformal fits the
same model on half of the training rows and takes the errors of the other half. Nothing is chosen
by test rows.
"""

import numpy as np

from ._harness import Options, Report
from ._tabular import Part, folder, split

ALPHA = 0.1
MOST_ROWS = 1000
METHODS = {
    "jackknife+": {},
    "adaptive": {"adaptive": True},
    "cv+": {"method": "cv+"},
    "normal": {"method": "normal"},
}


def run(options: Options) -> Report:
    """Fit every set and split; report means over the splits."""
    splits, most_rows = options.pick((20, MOST_ROWS), (1, 200))
    title = f"alpha = {ALPHA}, <= {most_rows:,} training rows, {splits} splits"
    report = Report("coverage", title, options)
    names = sorted(path.stem for path in folder().glob("*.npz"))
    names = [name for name in names if not split(name, 0, 10).is_classification]
    inside: dict[str, list[float]] = {name: [] for name in [*METHODS, "split"]}
    ratios: list[float] = []
    for name in names[: options.pick(len(names), 2)]:
        found = [_one(split(name, number, most_rows)) for number in range(splits)]
        means = {key: float(np.mean([one[key] for one in found])) for key in found[0]}
        report.rows.append({"set": name} | {key: round(value, 3) for key, value in means.items()})
        for method in inside:
            inside[method].append(means[method])
        ratios.append(means["width / split's"])
    report.at_least("jackknife+: coverage, mean of the sets", np.mean(inside["jackknife+"]), 0.88)
    report.at_most("jackknife+: coverage, mean of the sets", np.mean(inside["jackknife+"]), 0.93)
    report.at_most("jackknife+: width / that of split conformal, mean", float(np.mean(ratios)), 1.0)
    for method, values in inside.items():
        report.notes.append(f"coverage of {method}, mean of the sets: {np.mean(values):.3f}")
    return report


def _one(part: Part) -> dict[str, float]:
    """Return coverage of every method, and the width of jackknife+ beside split conformal's."""
    from leansvm import SparseLSSVR

    y = np.ravel(part.y).astype(np.float64)
    y_test = np.ravel(part.y_test).astype(np.float64)
    model = SparseLSSVR(random_state=0).fit(part.X, y)
    found, width = {}, 0.0
    for name, settings in METHODS.items():
        low, high = model.predict_interval(part.X_test, ALPHA, **settings).T
        found[name] = float(np.mean((low <= y_test) & (y_test <= high)))
        width = width or float(np.mean(high - low))
    half = len(y) // 2
    model.fit(part.X[:half], y[:half])
    errors = np.sort(np.abs(y[half:] - model.predict(part.X[half:])))
    reach = errors[min(int(np.ceil((1 - ALPHA) * (len(errors) + 1))), len(errors)) - 1]
    found["split"] = float(np.mean(np.abs(model.predict(part.X_test) - y_test) <= reach))
    return found | {"width / split's": width / (2 * reach)}
