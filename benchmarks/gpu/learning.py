"""``python -m benchmarks.gpu.learning``: learning a kernel on the host and on a device.

One gradient of the leave-one-out error: seconds on both, and how far they are apart in float64.
Then default fits whose rows lie on the device: 1,000,000 x 20 (two classes, 5 % of them flipped)
and, where LEANSVM_DATA has it, COVTYPE (class 2 against the rest, and all seven classes): seconds
by phase, those of learning beside those of the same learning on the host, and accuracy.
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

from leansvm import SparseLSSVC
from leansvm._parallel import limited_blas
from leansvm.learning.objective import LooObjective

from .._harness import SkipBenchmark
from .._machine import machine_facts
from ..phases import rows_of
from ._device import CuPy, Torch, seconds

PARTS = ("rbf", "matern32", "laplacian")
SIZES = ((1500, 200), (4000, 400), (12_000, 800))


def gradients(device: Any, features: int, scale: float) -> list[dict[str, Any]]:
    """Time one gradient of every stage, and compare it with the host's in float64."""
    found, rng = [], np.random.default_rng(0)
    for rows, points in SIZES:
        rows, points = int(rows * scale), max(int(points * scale), 20)
        X = rng.standard_normal((rows, features))
        Y, weight = np.sin(2 * X[:, :1]) + X[:, 1:2] * X[:, 2:3], np.ones(rows)
        given, gamma = (X, X[:points].copy(), Y, weight), np.full((3, features), 0.5 / features)
        host = LooObjective(PARTS, *given)
        there = LooObjective(PARTS, *given, place=device.put(X[:1]))
        with limited_blas():
            expected, measured = host(gamma, 0.1), there(gamma, 0.1)
            on_host = min(seconds(device, lambda host=host, g=gamma: host(g, 0.1)))
        on_device = min(seconds(device, lambda there=there, g=gamma: there(g, 0.1)))
        apart = np.abs(measured.log_gamma - expected.log_gamma).max()
        row = {"rows": rows, "points": points, "host, one thread [ms]": round(1e3 * on_host, 2)}
        row |= {"device [ms]": round(1e3 * on_device, 2)}
        row |= {"relative difference": float(apart / np.abs(expected.log_gamma).max())}
        found.append(row)
        print(json.dumps(row), flush=True)
    return found


def fits(device: Any, scale: float) -> list[dict[str, Any]]:
    """Fit with nothing set; rows on the device, and the first of them on the host."""
    found, cases = [], {}
    X, y = rows_of(int(1_000_000 * scale) + 20_000, 20)
    cases["1,000,000 x 20"] = X[:-20_000], y[:-20_000], X[-20_000:], y[-20_000:]
    try:
        from .._data import covtype

        cases["COVTYPE, two classes"] = covtype(int(464_810 * scale))
        cases["COVTYPE, seven classes"] = covtype(int(464_810 * scale), classes=7)
    except SkipBenchmark as reason:
        print(f"COVTYPE skipped: {reason}")
    warm = cases["1,000,000 x 20"]
    SparseLSSVC(random_state=0).fit(device.put(warm[0][:5000]), device.put(warm[1][:5000]))
    for name, (X, y, X_test, y_test) in cases.items():
        there = [device.put(np.asarray(A)) for A in (X, y, X_test, y_test)]
        device.release()
        device.wait()
        start = time.perf_counter()
        model = SparseLSSVC(random_state=0).fit(*there[:2])
        device.wait()
        spent = time.perf_counter() - start
        right = float((model.predict(there[2]) == there[3]).sum()) / len(y_test)
        report = model.fit_report_
        row = {"fit": name, "rows": len(y), "seconds": round(spent, 2)}
        row |= {"phases": {k: round(v, 2) for k, v in report["seconds"].items()}}
        row |= _learning("device", report["learning"]) | {"accuracy [%]": round(100 * right, 2)}
        row |= {"points": int(np.sum(model.n_support_)), "peak [GB]": round(device.peak() / 1e9, 1)}
        part = slice(0, 40_000)  # learning takes a sample anyway
        on_host = SparseLSSVC(random_state=0, n_basis=200).fit(np.asarray(X)[part], y[part])
        row |= _learning("host", on_host.fit_report_["learning"])
        found.append(row)
        print(json.dumps(row), flush=True)
    return found


def _learning(where: str, report: dict[str, Any]) -> dict[str, Any]:
    """Return seconds of learning by stage, evaluations, and the size of the last stage."""
    stages = {k: round(v, 2) for k, v in report["seconds"].items()}
    counts = {key: report[key] for key in ("rows", "points", "evaluations")}
    return {f"learning, {where} [s]": round(sum(stages.values()), 2), where: stages | counts}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", choices=("torch", "cupy"), default="torch")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--features", type=int, default=30)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    set_config(array_api_dispatch=True)
    device = CuPy() if options.library == "cupy" else Torch(options.device)
    result: dict[str, Any] = {"device": device.name(), "machine": machine_facts()}
    result["gradients"] = gradients(device, options.features, options.scale)
    result["fits"] = fits(device, options.scale)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
