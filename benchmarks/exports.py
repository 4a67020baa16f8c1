"""Do exported models say what `predict` says: 200 random models, each in C, JavaScript and ONNX.

Estimator, scales, target and number of columns are drawn; every third model, with one of four
kernels, is fitted on a table with texts, dates and gaps. LowRank machines have no kernel.
Programs are compiled or run on the model's own points and random
rows around them; a difference is a share of the sum of |coefficients| + |intercept|.
"""

from typing import Any

import numpy as np

from ._harness import Options, Report, SkipBenchmark

MODELS, MOST = 200, 1e-10
LANGUAGES = ("C", "JavaScript", "ONNX")
_KERNELS = ("linear", "rbf", "matern12", "matern32", "matern52", "laplacian", "poly", "sigmoid")
KERNELS = (*_KERNELS, "chi2", "cosine", "mixture", "auto")


def run(options: Options) -> Report:
    """Compare every model in every language; list those that differ."""
    n_models = options.pick(MODELS, 12)
    report = Report("exports", f"{n_models} models x {len(LANGUAGES)} languages", options)
    worst: dict[tuple[str, str], list[float]] = {}
    bad = []
    for number in range(n_models):
        name, kernel, model = drawn(number)
        for language in LANGUAGES:
            difference = _difference(model, language)
            worst.setdefault((kernel, language), []).append(difference)
            if not difference <= MOST:
                bad.append(f"{number}, {name}, {kernel}, {language}: {difference:.1e}")
    for kernel in KERNELS:
        cells = {language: worst.get((kernel, language), []) for language in LANGUAGES}
        counted = {"kernel": kernel, "models": len(cells["C"])}
        largest = {key: f"{max(found, default=0.0):.1e}" for key, found in cells.items()}
        report.rows.append(counted | largest)
    report.notes += bad
    largest_of_all = max(max(found) for found in worst.values())
    report.at_most("largest difference from predict", largest_of_all, MOST)
    report.equals("exports that differ", str(len(bad)), "0")
    return report


def drawn(number: int) -> tuple[str, str, Any]:
    """Return the name of an estimator, its kernel's, and the model, fitted."""
    import leansvm

    rng = np.random.default_rng(number)
    kernel = KERNELS[number % len(KERNELS)]
    table = number % 3 == 0 and kernel != "chi2"  # whose features are at least 0
    X, signal = _table(rng) if table else _numbers(rng)
    machines = ("SparseLSSVC", "ReducedSVC", "SparseLSSVR", "ReducedSVR")
    if kernel not in ("auto",):
        machines += ("LSSVC", "L2SVC", "LSSVR", "LowRankLSSVC", "LowRankLSSVR")
    name = machines[rng.integers(len(machines))]
    settings: dict[str, Any] = {}
    if name.startswith("LowRank"):
        functions = ("simplex", "robust-rbf", "rbf")
        settings = {"function": functions[rng.integers(3)], "tol": 10.0, "random_state": 0}
    else:
        settings = _settings(kernel, table, 0 if table else X.shape[1], rng)
        if name not in ("LSSVC", "LSSVR", "L2SVC"):
            settings |= {"n_basis": int(rng.integers(5, 40)), "random_state": 0}
        if kernel != "auto":
            # "sigmoid" is not positive definite: all rows need a large ridge
            settings["C"] = 1e-3 if kernel == "sigmoid" else float(10.0 ** rng.uniform(-2, 2))
    if name.endswith("C"):
        labels = np.digitize(signal, np.quantile(signal, (0.5,) if number % 2 else (0.3, 0.7)))
        target: Any = np.array(["low", "middle", "high"])[labels] if number % 4 < 2 else labels * 5
    else:
        target = 10.0 * signal if number % 2 else signal - 3.0
    return name, kernel, getattr(leansvm, name)(**settings).fit(X, target)


def _settings(kernel: str, table: bool, width: int, rng: Any) -> dict[str, Any]:
    """Return a kernel with its parameters."""
    from leansvm.kernels import Mixture

    if kernel == "auto":
        return {}
    if kernel == "mixture":
        if table:  # the encoder decides the number of features
            return {"kernel": "matern32", "gamma": 0.1}
        parts = [(0.5, "rbf"), (0.3, "matern32"), (0.2, "laplacian"), (0.1, "linear")]
        return {"kernel": Mixture([(w, k, rng.uniform(0, 0.5, width)) for w, k in parts])}
    found: dict[str, Any] = {"kernel": kernel}
    if kernel not in ("linear", "cosine"):
        several = not table and kernel not in ("poly", "sigmoid", "chi2")
        found["gamma"] = rng.uniform(0.0, 0.6, width) if several else float(rng.uniform(0.02, 0.3))
    if kernel in ("poly", "sigmoid"):
        found |= {"coef0": float(rng.uniform(0, 1)), "degree": int(rng.integers(1, 4))}
    return found


def _numbers(rng: Any) -> tuple[Any, Any]:
    X = np.abs(rng.normal(size=(60, int(rng.integers(1, 8))))) * 10.0 ** rng.uniform(-1, 1)
    return X, np.sin(X[:, 0]) + X[:, -1] / X.std() + 0.1 * rng.normal(size=60)


def _table(rng: Any) -> tuple[Any, Any]:
    import pandas as pd

    age = rng.normal(40, 9, 80)
    city = rng.choice(["Rome", "Oslo", "Bonn"], 80)
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 500, 80), unit="D")
    frame = pd.DataFrame({"age": age, "city": city.astype(object), "day": day})
    frame["member"] = rng.random(80) < 0.5
    frame.loc[::9, "age"] = np.nan
    frame.loc[::11, "city"] = None
    return frame, age / 9 + (city == "Rome") + 0.1 * rng.normal(size=80)


def _difference(model: Any, language: str) -> float:
    from leansvm.export import check, to_c, to_js, to_onnx
    from leansvm.export._run import MissingToolError

    write = {"C": to_c, "JavaScript": to_js}.get(language)
    exported = to_onnx(model, dtype="float64") if write is None else write(model)
    try:
        return check(model, exported, n_rows=60).difference
    except MissingToolError as error:
        raise SkipBenchmark(str(error)) from error
