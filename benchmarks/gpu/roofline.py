"""``python -m benchmarks.gpu.roofline``: floors of fits on one GPU, and how far above it they are.

Rates and fits in float64, warm, with the rows on the device. A full run on a CUDA device writes its
table into docs/roofline.md; with another ``--device`` or ``--scale`` it only prints one, which is a
trial of the code. Cases that have not begun after 45 seconds are left out, and named.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("SCIPY_ARRAY_API", "1")

import numpy as np
from sklearn import set_config

from .._harness import print_table
from .._roofline import Floor, Rates, markdown, put_between
from .._roofline_cases import Case, dense_machines, small_bases
from ._device import Torch, seconds

PAGE = Path(__file__).parents[2] / "docs" / "roofline.md"
ROWS, DENSE_ROWS, FEATURES, POINTS = 500_000, 16_000, 50, 1000
LAST_START = 45.0  # seconds after which no other case begins


def measured_rates(device: Torch, scale: float) -> Rates:
    """Return the best of some rounds; torch has no symmetric product, so its rate is GEMM's."""
    torch = device.xp
    n, m, r = max(64, int(8192 * scale)), max(64, int(500_000 * scale)), max(16, int(1024 * scale))
    A, B, values = device.normal(n, n), device.normal(n, n), device.normal(m, r)
    L = torch.tril(device.normal(r, r)) + r * torch.eye(r, dtype=A.dtype, device=A.device)
    right, target = values.T.contiguous(), torch.empty_like(values)
    best = {
        "gemm": min(seconds(device, lambda: A @ B, 5)),
        "trsm": min(
            seconds(device, lambda: torch.linalg.solve_triangular(L, right, upper=False), 3)
        ),
        "exp": min(seconds(device, lambda: torch.exp(values, out=target), 5)),
        "copy": min(seconds(device, lambda: target.copy_(values), 5)),
    }
    gemm = 2 * n**3 / best["gemm"]
    return Rates(
        gemm=gemm,
        syrk=gemm,
        trsm=m * r * r / best["trsm"],
        exp=m * r / best["exp"],
        bytes=16 * m * r / best["copy"],
    )


def rows_on(device: Torch, m: int) -> tuple[Any, Any]:
    """Return rows and 0/1 labels on the device."""
    X = device.normal(m, FEATURES)
    return X, (X[:, :5].sum(1) + X[:, 5] * X[:, 6] > 0).long()


def measured(device: Torch, cases: list[Case], start: float) -> tuple[list[Floor], list[str]]:
    """Time the cases, one after the other; return floors and the names of those left out."""
    found, left_out = [], []
    for case in cases:
        if time.perf_counter() - start > LAST_START:
            left_out.append(case.name)
            continue
        model = case.call()
        spent = float(np.median(seconds(device, case.call, 2)))
        found.append(Floor(case.name, case.problem, case.work(model), spent))
        del model
        device.release()
    return found, left_out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--scale", type=float, default=1.0, help="less: smaller sizes, a trial")
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        raise SystemExit("roofline on a GPU: torch is not installed.") from None
    if options.device != "cpu" and not torch.cuda.is_available():
        raise SystemExit(
            "roofline on a GPU: torch finds no CUDA device. Try the code without one by "
            "--device cpu --scale 0.01, or measure this machine by python -m benchmarks roofline."
        )
    set_config(array_api_dispatch=True)
    start, device = time.perf_counter(), Torch(options.device)
    rates = measured_rates(device, options.scale)
    device.release()
    m, dense, r = (max(100, int(n * options.scale)) for n in (ROWS, DENSE_ROWS, POINTS))
    cases = dense_machines(*rows_on(device, dense)) + small_bases(*rows_on(device, m), r)
    found, left_out = measured(device, cases, start)
    rows = [floor.row(rates) for floor in found]
    print_table(rows)
    print(f"{device.name()}: {rates}")
    for name in left_out:
        print(f"left out, for lack of time: {name}")
    if options.device == "cuda" and options.scale == 1 and not left_out:
        content = markdown(f"{device.name()}, float64", rates, rows)
        PAGE.write_text(put_between(PAGE.read_text("utf-8"), "gpu", content), encoding="utf-8")
    print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
