"""``python -m benchmarks.gpu.large_basis``: large bases on a GPU, and what a small one costs.

COVTYPE, class 2 against the rest, float32 rows on the device, gamma = 8, C = 10, random points:
seconds by phase and test accuracy for 1,000 to 16,000 points, without probabilities and, for the
largest basis, with them, after a small fit that starts the device up. On some rows the same fits
are compared with those of NumPy arrays in float64.
ADULT and IJCNN, gamma as in zhou2016's Table I and C by leave-one-out on training rows: the exact
machine beside bases of 500 to 2,000 points, and the squared-hinge machine. Needs LEANSVM_DATA.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("SCIPY_ARRAY_API", "1")

import numpy as np
from sklearn import set_config
from sklearn.base import clone

from leansvm import L2SVC, LSSVC, ReducedSVC, SparseLSSVC

from .._data import covtype, zhou2016
from .._machine import machine_facts
from ._device import Torch

COVTYPE = {"kernel": "rbf", "gamma": 8.0, "random_state": 0, "calibrate": False}
GAMMAS = {"ADULT": 2.0**-6, "IJCNN": 1.0}  # zhou2016, Table I


def timed(device: Any, model: Any, X: Any, y: Any) -> tuple[Any, float]:
    """Fit with the device idle before and after; return the model and the seconds."""
    device.release()
    device.wait()
    start = time.perf_counter()
    model.fit(X, y)
    device.wait()
    return model, time.perf_counter() - start


def described(device: Any, model: Any, spent: float, X_test: Any, y_test: Any) -> dict[str, Any]:
    """Return the row of the table."""
    peak = device.peak()
    right = float((model.predict(X_test) == y_test).sum()) / len(y_test)
    phases = {k: round(v, 2) for k, v in model.fit_report_["seconds"].items()}
    row = {"points": int(np.sum(model.n_support_)), "seconds": round(spent, 2), "phases": phases}
    row |= {"accuracy [%]": round(100 * right, 2), "C": model.C_, "peak [GB]": round(peak / 1e9, 1)}
    return row | {"residual": model.fit_report_["residual"], "iterations": int(model.n_iter_)}


def large_bases(device: Any, sizes: list[int], rows: int) -> list[dict[str, Any]]:
    """Fit COVTYPE on bases of all sizes, and the squared hinge loss on one of them."""
    X, y, X_test, y_test = (
        device.put(a.astype(np.float32) if a.ndim == 2 else a) for a in covtype(rows)
    )
    SparseLSSVC(10.0, n_basis=sizes[0], **COVTYPE).fit(X[:50_000], y[:50_000])
    ReducedSVC(10.0, loss="squared_hinge", n_basis=sizes[0], **COVTYPE).fit(X[:50_000], y[:50_000])
    middle = sizes[: max(1, len(sizes) - 2)]
    models = [SparseLSSVC(10.0, n_basis=size, **COVTYPE) for size in sizes]
    models += [SparseLSSVC(10.0, n_basis=sizes[-1], **COVTYPE).set_params(calibrate=True)]
    models += [SparseLSSVC(C, n_basis=middle[-1], **COVTYPE) for C in ("loo", "kfold")]
    models += [ReducedSVC(10.0, loss="squared_hinge", n_basis=size, **COVTYPE) for size in middle]
    found = []
    for model in models:
        fitted, spent = timed(device, clone(model), X, y)
        more = ", probabilities" if model.calibrate else ""
        row = {"fit": f"{type(model).__name__}(C={model.C}{more})", "rows": len(y)}
        found.append(row | described(device, fitted, spent, X_test, y_test))
        print(json.dumps(found[-1]), flush=True)
    return found


def equality(device: Any, rows: int, size: int) -> list[dict[str, Any]]:
    """Compare models of rows on the device with those of NumPy arrays in float64."""
    X, y, X_test, _ = covtype(rows)
    X, X_test = X.astype(np.float32), X_test[:20_000].astype(np.float32)
    wide, test = X.astype(np.float64), X_test.astype(np.float64)
    models = {
        "SparseLSSVC(10.0)": SparseLSSVC(10.0, n_basis=size, **COVTYPE),
        "SparseLSSVC('gcv')": SparseLSSVC("gcv", n_basis=size, **COVTYPE),
        "ReducedSVC(10.0)": ReducedSVC(
            10.0, loss="squared_hinge", n_basis=size, tol=1e-8, **COVTYPE
        ),
        "L2SVC('newton')": L2SVC(10.0, gamma=8.0, solver="newton"),
    }
    found = []
    for name, model in models.items():
        part = slice(rows if size < rows and name[0] != "L" else rows // 4)
        expected = model.fit(wide[part], y[part]).decision_function(test)
        model, spent = timed(device, model, device.put(X[part]), device.put(y[part]))
        values = np.asarray(model.decision_function(device.put(test)).cpu())
        apart = float(np.abs(values - expected).max())
        found.append({"model": name, "rows": len(y[part]), "largest difference": apart})
        found[-1] |= {"seconds on the device": round(spent, 2)}
        print(json.dumps(found[-1]), flush=True)
    return found


def small_basis(device: Any, name: str, sizes: list[int], rows: int | None) -> list[dict[str, Any]]:
    """Fit the exact machine and small bases; C by leave-one-out of 1,000 points, for all."""
    X, y, X_test, y_test = (device.put(np.asarray(a)) for a in zhou2016(name))
    X, y, kernel = X[:rows], y[:rows], {"kernel": "rbf", "gamma": GAMMAS[name]}
    LSSVC(1.0, solver="cg", **kernel).fit(X[:3000], y[:3000])  # starts everything up
    C = SparseLSSVC("loo", n_basis=sizes[1], random_state=0, **kernel).fit(X, y).C_
    models = {f"{r} points": SparseLSSVC(C, n_basis=r, random_state=0, **kernel) for r in sizes}
    models["all rows"] = LSSVC(C, solver="cg", tol=1e-4, **kernel)
    found = []
    for label, model in models.items():
        fitted, spent = timed(device, model, X, y)
        row = {"set": name, "rows": len(y), "basis": label}
        found.append(row | described(device, fitted, spent, X_test, y_test))
        print(json.dumps(found[-1]), flush=True)
    return found


def squared_hinge(device: Any, rows: int | None) -> list[dict[str, Any]]:
    """Fit L2SVC to ADULT by Newton's method on the device, and by "auto" on the host."""
    X, y, X_test, y_test = (np.asarray(a) for a in zhou2016("ADULT"))
    X, y, given = X[:rows], y[:rows], {"C": 1.0, "gamma": GAMMAS["ADULT"]}
    on_host, spent = timed(device, L2SVC(**given), X, y)
    found = [{"fit": "L2SVC() on the host", "rows": len(y)}]
    found[0] |= described(device, on_host, spent, X_test, y_test)
    expected = on_host.decision_function(X_test)
    X, y, X_test, y_test = (device.put(a) for a in (X, y, X_test, y_test))
    there, spent = timed(device, L2SVC(**given, solver="newton"), X, y)
    row = {"fit": "L2SVC(solver='newton')", "rows": len(y)}
    found.append(row | described(device, there, spent, X_test, y_test))
    values = np.asarray(there.decision_function(X_test).cpu())
    found[-1] |= {"largest difference": float(np.abs(values - expected).max())}
    for row in found:
        print(json.dumps(row), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=464_810)
    parser.add_argument("--sizes", default="1000,2000,4000,8000,16000")
    parser.add_argument("--compare", type=int, default=12_000)
    parser.add_argument("--points", type=int, default=3000)
    parser.add_argument("--small", default="500,1000,2000")
    parser.add_argument("--small-rows", type=int)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    set_config(array_api_dispatch=True)
    device = Torch(options.device)
    sizes, small = ([int(r) for r in o.split(",")] for o in (options.sizes, options.small))
    result: dict[str, Any] = {"device": device.name(), "machine": machine_facts()}
    result["fits"] = large_bases(device, sizes, options.rows)
    result["compared"] = equality(device, options.compare, options.points)
    result["small"] = [
        row for name in GAMMAS for row in small_basis(device, name, small, options.small_rows)
    ]
    result["squared hinge"] = squared_hinge(device, options.small_rows)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
