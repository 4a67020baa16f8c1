"""``python -m benchmarks.gpu.exact``: the exact LS-SVM of all rows of COVTYPE on one GPU.

float32 rows on the device, class 2 against the rest, gamma = 8, C = 10, without probabilities
(``--calibrate`` for them: another fit on four fifths of the rows). The first fit of a few rows
compiles; the figures are of one fit of all rows for each tolerance. On some rows the model is
compared with that of NumPy arrays in float64, solved by Cholesky.
"""

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("SCIPY_ARRAY_API", "1")

import numpy as np
from sklearn import set_config

from leansvm import LSSVC

from .._data import covtype
from .._machine import machine_facts
from ._device import Torch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=464_810)
    parser.add_argument("--compare", type=int, default=5000)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--calibrate", action="store_true")
    parser.add_argument("--tol", type=float, nargs="+", default=[5e-3, 1e-3])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    set_config(array_api_dispatch=True)
    device = Torch(options.device)
    data = covtype(options.rows)
    X, y, X_test, y_test = (a.astype(np.float32) if a.ndim == 2 else a for a in data)
    given = {"solver": "cg", "C": 10.0, "kernel": "rbf", "gamma": 8.0}
    given |= {"calibrate": options.calibrate}
    result = {"device": device.name(), "machine": machine_facts(), "fits": []}
    part = slice(options.compare)
    few = LSSVC(**given, tol=1e-8).fit(device.put(X[part]), device.put(y[part]))
    exact = LSSVC(**{**given, "solver": "cholesky"}).fit(X[part].astype(np.float64), y[part])
    values = np.asarray(few.decision_function(device.put(X_test)).cpu())
    expected = exact.decision_function(X_test.astype(np.float64))
    apart = float(np.abs(values - expected).max())
    result["compared"] = {"rows": options.compare, "largest difference": apart}
    print(result["compared"], flush=True)
    X, y, X_test, y_test = (device.put(a) for a in (X, y, X_test, y_test))
    for tol in options.tol:
        device.release()
        start = time.perf_counter()
        model = LSSVC(**given, tol=tol).fit(X, y)
        device.wait()
        spent = time.perf_counter() - start
        right = float((model.predict(X_test) == y_test).sum()) / len(y_test)
        row = {"rows": len(y), "tol": tol, "seconds": round(spent, 1)}
        row |= {"iterations": model.n_iter_, "residual": model.fit_report_["residual"]}
        row |= {"accuracy [%]": round(100 * right, 2), "peak [GB]": round(device.peak() / 1e9, 1)}
        row |= {"phases": {k: round(v, 1) for k, v in model.fit_report_["seconds"].items()}}
        result["fits"].append(row)
        print(json.dumps(row), flush=True)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
