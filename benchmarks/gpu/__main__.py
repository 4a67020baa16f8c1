"""``python -m benchmarks.gpu``: SparseLSSVC on device arrays, float64, warm, data on the device.

Fits make no probabilities unless their name says so.
Every fit runs once before the clock starts; the figure is the median of the rounds. The rate of
K'K is set against a square matrix product measured in the same run. COVTYPE needs LEANSVM_DATA.
"""

import argparse
import cProfile
import io
import json
import os
import pstats
import statistics
from pathlib import Path
from typing import Any

os.environ.setdefault("SCIPY_ARRAY_API", "1")

import numpy as np
from sklearn import set_config

from leansvm import SparseLSSVC

from .._harness import SkipBenchmark
from .._machine import machine_facts
from ._device import CuPy, Torch, seconds

GEMM = 8192


def covtype(device: Any, scale: float) -> dict[str, Any]:
    from .._data import covtype as load

    X, y, X_test, y_test = load(int(464_810 * scale))
    n_basis = 1000 if scale == 1 else 100
    common = {"gamma": 2.0**-8, "basis": "pivoted-cholesky", "n_basis": n_basis}
    models = {
        "covtype, C = 1e7": SparseLSSVC([1e7], calibrate=False, **common),
        "covtype, C by GCV": SparseLSSVC("gcv", calibrate=False, **common),
        "covtype, C by GCV, probabilities": SparseLSSVC("gcv", **common),
    }
    return {"models": models, "train": (X, y), "test": (X_test, y_test), "limit": 0.4, "goal": 81.0}


def checkerboard(device: Any, scale: float) -> dict[str, Any]:
    side = int(2000 * scale**0.5)
    axis = np.arange(side) / (side - 1)
    X = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    cells = np.minimum((4 * X).astype(np.int64), 3).sum(axis=1)
    y = np.where(cells % 2 == 0, 1, -1)
    order = np.random.default_rng(0).permutation(len(X))
    train, test = order[: 3 * len(X) // 4], order[3 * len(X) // 4 :]
    options = {"gamma": 64.0, "basis": "pivoted-cholesky", "calibrate": False}
    models = {
        "checkerboard, C = 10": SparseLSSVC(10.0, n_basis=450, **options),
        "checkerboard, the paper's C = 1e6": SparseLSSVC(1e6, n_basis=450, **options),
        "checkerboard, rank exhausted": SparseLSSVC(1e3, n_basis=450, **options | {"gamma": 2.0}),
    }
    return {
        "models": models,
        "train": (X[train], y[train]),
        "test": (X[test], y[test]),
        "limit": 0.5,
        "goal": 99.4,
    }


def ten_million(device: Any, scale: float) -> dict[str, Any]:
    m = int(10_000_000 * scale)
    X = device.normal(m, 50)
    y = (
        (X[:, :5].sum(1) + X[:, 5] * X[:, 6] > 0).astype("int64")
        if hasattr(X, "astype")
        else ((X[:, :5].sum(1) + X[:, 5] * X[:, 6] > 0).long())
    )
    n_basis = 1000 if scale == 1 else 200
    model = SparseLSSVC(10.0, gamma=0.02, basis="random", n_basis=n_basis, random_state=0)
    model.set_params(calibrate=False)
    part = slice(0, 100_000)
    return {
        "models": {"10,000,000 x 50, random basis": model},
        "train": (X, y),
        "test": (X[part], y[part]),
        "limit": 1.5,
        "goal": None,
    }


def gemm_rate(device: Any, size: int) -> float:
    A, B = device.normal(size, size), device.normal(size, size)
    return 2 * size**3 / statistics.median(seconds(device, lambda: A @ B, 5)) / 1e12


def gram_rate(device: Any, rows: int, width: int) -> tuple[float, float]:
    """TFLOP/s of K'K, counting 2 m r^2, and counting only the products that were made."""
    from leansvm._accelerated import _WIDE, gram

    Z = device.normal(rows, width)
    spent = statistics.median(seconds(device, lambda: gram(Z), 5))
    whole = 2 * rows * width**2 / spent / 1e12
    return whole, whole * (0.75 if width >= _WIDE else 1.0)


def profiled(function: Any) -> str:
    profile = cProfile.Profile()
    profile.runcall(function)
    text = io.StringIO()
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(18)
    return text.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--library", choices=("torch", "cupy"), default="torch")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    set_config(array_api_dispatch=True)
    device = CuPy() if options.library == "cupy" else Torch(options.device)
    gemm = gemm_rate(device, GEMM if options.scale == 1 else 512)
    result: dict[str, Any] = {
        "library": f"{options.library} {device.version}",
        "device": device.name(),
        "gemm [TFLOP/s]": round(gemm, 1),
        "fits": [],
        "gram": [],
        "machine": machine_facts(),
    }
    print(
        f"{result['library']} on {result['device']}, float64: "
        f"product of {GEMM} at {gemm:.1f} TFLOP/s"
    )
    for make in (covtype, checkerboard, ten_million):
        if options.only and make.__name__ not in options.only.split(","):
            continue
        try:
            case = make(device, options.scale)
        except SkipBenchmark as reason:
            print(f"{make.__name__} skipped: {reason}")
            continue
        run(case, device, options, result)
        del case
        device.release()
    for rows, width in ((464_810, 1002), (3_000_000, 452), (1_000_000, 1002)):
        whole, made = gram_rate(device, int(rows * options.scale), width)
        row = {"rows": rows, "width": width, "K'K [TFLOP/s]": round(whole, 1)}
        row |= {"products made [TFLOP/s]": round(made, 1), "of GEMM [%]": round(100 * whole / gemm)}
        row |= {"products made of GEMM [%]": round(100 * made / gemm)}
        result["gram"].append(row)
        print("K'K", row)
        device.release()
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


def run(case: dict[str, Any], device: Any, options: Any, result: dict[str, Any]) -> None:
    X, y, X_test, y_test = (
        device.put(a) if isinstance(a, np.ndarray) else a for a in (*case["train"], *case["test"])
    )
    for name, model in case["models"].items():
        device.release()
        spent = seconds(device, lambda model=model: model.fit(X, y), options.rounds)
        peak = device.peak()
        predicted = seconds(device, lambda model=model: model.predict(X_test), 3)
        right = (model.predict(X_test) == y_test).sum()
        accuracy = 100 * float(right) / len(y_test)
        report = model.fit_report_
        row = {
            "fit": name,
            "rows": X.shape[0],
            "basis": report["basis"],
            "rounds": report["selection"].get("rounds"),
            "C": model.C_,
            "seconds": round(statistics.median(spent), 4),
            "all": [round(s, 4) for s in spent],
            "limit": case["limit"],
            "accuracy [%]": round(accuracy, 2),
            "goal [%]": case["goal"],
            "predict [s]": round(statistics.median(predicted), 4),
            "peak [GB]": round(peak / 1e9, 1),
            "phases": {k: round(v, 4) for k, v in report["seconds"].items()},
        }
        result["fits"].append(row)
        print(json.dumps(row), flush=True)
        if options.profile:
            print(profiled(lambda model=model: (model.fit(X, y), device.wait())), flush=True)


if __name__ == "__main__":
    main()
