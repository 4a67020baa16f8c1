"""zhou2013's Tables 2, 3 and 4: four losses, two regularisers and two ways to choose a basis.

Checkerboard of 200 × 200 points in 4 × 4 cells, gamma = 0.001, no bias; m random points train, the
others test. The mean test error must lie within two of the paper's standard deviations, or below.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ._harness import Options, Report

SIZES = ((4_000, 300), (8_000, 600), (15_000, 1_000), (20_000, 1_000), (25_000, 1_000))
LOSSES = {"LS": "squared", "SH": "squared_hinge", "Hub": "huber", "Log": "logistic"}
REGULARIZERS = {"M1": "rkhs", "M2": "coef"}
# The paper's mean and standard deviation of the test error in percent, by size, and its mean
# numbers of Newton steps and of training points with y f < 1.
PAPER: dict[tuple[float, str], tuple[str, str, str]] = {
    (0.1, "M1+LS"): (
        "2.92(0.39) 2.11(0.31) 1.46(0.27) 1.12(0.20) 1.05(0.12)",
        "1 1 1 1 1",
        "2480 4877 9009 11865 14644",
    ),
    (0.1, "M2+LS"): (
        "3.41(0.41) 2.96(0.30) 1.90(0.28) 1.52(0.23) 1.11(0.27)",
        "1 1 1 1 1",
        "2672 5254 9716 12922 16112",
    ),
    (0.1, "M1+SH"): (
        "1.19(0.23) 0.55(0.12) 0.20(0.07) 0.11(0.04) 0.08(0.04)",
        "10.8 12.8 14.3 15.0 15.5",
        "701 1153 1757 2086 2398",
    ),
    (0.1, "M2+SH"): (
        "0.75(0.17) 0.22(0.08) 0.06(0.03) 0.04(0.02) 0.03(0.02)",
        "10.4 11.8 13.4 14.7 15.7",
        "484 641 987 1180 1316",
    ),
    (0.1, "M1+Hub"): (
        "1.80(0.24) 1.06(0.18) 0.53(0.11) 0.30(0.08) 0.22(0.08)",
        "84.8 86.8 90.0 89.5 91.2",
        "486 809 1277 1573 1857",
    ),
    (0.1, "M2+Hub"): (
        "1.29(0.20) 0.38(0.12) 0.13(0.05) 0.09(0.03) 0.07(0.03)",
        "131.8 138.9 155.6 153.8 151.8",
        "336 440 488 573 658",
    ),
    (0.1, "M1+Log"): (
        "1.80(0.24) 1.06(0.18) 0.53(0.11) 0.30(0.08) 0.22(0.08)",
        "46.3 46.8 49.6 46.1 45.5",
        "486 809 1277 1573 1857",
    ),
    (0.1, "M2+Log"): (
        "1.29(0.20) 0.38(0.12) 0.13(0.05) 0.09(0.03) 0.07(0.03)",
        "54.4 62.0 64.3 57.9 60.2",
        "336 440 488 573 657",
    ),
    (0.01, "M1+LS"): (
        "2.39(0.22) 1.67(0.21) 0.89(0.19) 0.53(0.12) 0.37(0.08)",
        "1 1 1 1 1",
        "2328 4590 8552 11411 14269",
    ),
    (0.01, "M2+LS"): (
        "3.48(0.31) 2.39(0.33) 1.71(0.23) 1.34(0.18) 1.23(0.17)",
        "1 1 1 1 1",
        "2604 5138 9622 12826 16074",
    ),
    (0.01, "M1+SH"): (
        "0.72(0.14) 0.23(0.05) 0.09(0.03) 0.06(0.02) 0.04(0.02)",
        "14.9 16.8 18.7 20.6 21.5",
        "357 594 1028 1284 1473",
    ),
    (0.01, "M2+SH"): (
        "0.35(0.09) 0.11(0.03) 0.05(0.02) 0.04(0.02) 0.02(0.02)",
        "13.4 16.8 22.9 24.4 26.6",
        "275 322 341 391 452",
    ),
    (0.01, "M1+Hub"): (
        "1.01(0.18) 0.34(0.06) 0.22(0.07) 0.15(0.04) 0.11(0.05)",
        "114.7 114.3 116.5 118.1 120.2",
        "228 366 528 619 703",
    ),
    (0.01, "M2+Hub"): (
        "0.52(0.13) 0.19(0.05) 0.10(0.03) 0.07(0.03) 0.05(0.02)",
        "218.6 264.1 275.1 273.1 280.3",
        "145 154 186 224 260",
    ),
    (0.01, "M1+Log"): (
        "1.01(0.18) 0.34(0.06) 0.22(0.07) 0.15(0.04) 0.11(0.05)",
        "74.2 72.3 72.8 61.5 62.0",
        "228 366 528 619 704",
    ),
    (0.01, "M2+Log"): (
        "0.52(0.13) 0.19(0.05) 0.10(0.03) 0.07(0.03) 0.05(0.02)",
        "80.6 96.2 108.6 113.5 106.7",
        "145 154 186 224 260",
    ),
}
# Table 4: m, r at random, r well chosen; squared hinge.
CHOSEN_SIZES = (
    (4_000, 160, 80),
    (8_000, 320, 160),
    (15_000, 400, 200),
    (20_000, 400, 200),
    (25_000, 400, 200),
)
CHOSEN: dict[tuple[float, str], str] = {
    (0.1, "M1+RC"): "1.14(0.18) 0.50(0.09) 0.20(0.06) 0.13(0.05) 0.08(0.03)",
    (0.1, "M2+RC"): "1.05(0.21) 0.27(0.08) 0.12(0.05) 0.07(0.03) 0.04(0.02)",
    (0.1, "M1+WC"): "1.32(0.18) 0.61(0.09) 0.24(0.07) 0.16(0.06) 0.10(0.03)",
    (0.1, "M2+WC"): "1.30(0.24) 0.42(0.09) 0.16(0.05) 0.11(0.04) 0.07(0.02)",
    (0.01, "M1+RC"): "0.71(0.17) 0.21(0.05) 0.09(0.03) 0.06(0.03) 0.03(0.02)",
    (0.01, "M2+RC"): "0.50(0.16) 0.10(0.03) 0.06(0.02) 0.04(0.02) 0.03(0.01)",
    (0.01, "M1+WC"): "0.78(0.20) 0.28(0.06) 0.12(0.04) 0.07(0.03) 0.04(0.02)",
    (0.01, "M2+WC"): "0.75(0.18) 0.14(0.05) 0.07(0.03) 0.05(0.02) 0.03(0.02)",
}


def run(options: Options) -> Report:
    """Average every cell over 20 trials (about half an hour)."""
    title = "ReducedSVC on the checkerboard beside zhou2013, Tables 2, 3 and 4"
    report = Report("checkerboard", title, options)
    for cell in cells(options.quick):
        found = [trial(cell, seed) for seed in range(options.pick(20, 1))]
        add_cell(report, cell, found)
    return report


def cells(quick: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the cells of the three tables with the paper's numbers."""
    for (lam, method), (errors, steps, low) in PAPER.items():
        regularizer, loss = method.split("+")
        columns = zip(SIZES, errors.split(), steps.split(), low.split(), strict=True)
        for (m, r), error, n_steps, n_low in list(columns)[: 1 if quick else None]:
            yield {
                "lambda": lam, "method": method, "m": m, "r": r, "basis": "random",
                "loss": LOSSES[loss], "regularizer": REGULARIZERS[regularizer],
                "paper": _number(error), "steps": float(n_steps), "low": float(n_low),
            }  # fmt: skip
    for (lam, method), errors in CHOSEN.items():
        regularizer, way = method.split("+")
        for (m, r_random, r_chosen), error in list(zip(CHOSEN_SIZES, errors.split(), strict=True))[
            : 1 if quick else None
        ]:
            yield {
                "lambda": lam, "method": method, "m": m,
                "r": r_random if way == "RC" else r_chosen,
                "basis": "random" if way == "RC" else "forward",
                "loss": "squared_hinge", "regularizer": REGULARIZERS[regularizer],
                "paper": _number(error),
            }  # fmt: skip


def _number(text: str) -> tuple[float, float]:
    mean, _, std = text.rstrip(")").partition("(")
    return float(mean), float(std)


def trial(cell: dict[str, Any], seed: int) -> dict[str, float]:
    """Fit once; return test error in percent, Newton steps and points with y f < 1."""
    from leansvm import ReducedSVC
    from leansvm.datasets import make_checkerboard

    X, y = make_checkerboard()
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[: cell["m"]], order[cell["m"] :]
    model = ReducedSVC(
        1 / cell["lambda"],
        loss=cell["loss"],
        regularizer=cell["regularizer"],
        gamma=0.001,
        fit_intercept=False,
        basis=cell["basis"],
        n_basis=cell["r"],
        random_state=seed,
    ).fit(X[train], y[train])
    low = int(np.sum(y[train] * model.decision_function(X[train]) < 1))
    error = 100 * (1 - model.score(X[test], y[test]))
    return {"error": error, "steps": model.n_iter_, "low": low}


def add_cell(report: Report, cell: dict[str, Any], found: list[dict[str, float]]) -> None:
    """Add a row and its target."""
    mean = {key: float(np.mean([one[key] for one in found])) for key in found[0]}
    published, std = cell["paper"]
    row = {
        "lambda": cell["lambda"],
        "method": cell["method"],
        "m": cell["m"],
        "r": cell["r"],
        "paper [%]": f"{published:.2f} ({std:.2f})",
        "ours [%]": f"{mean['error']:.3f}",
    }
    if "steps" in cell:
        row["steps, paper"], row["steps, ours"] = cell["steps"], round(mean["steps"], 1)
        row["y f < 1, paper"], row["y f < 1, ours"] = int(cell["low"]), round(mean["low"])
    report.rows.append(row)
    what = f"λ = {cell['lambda']:g}, {cell['method']}, m = {cell['m']}: test error [%]"
    report.at_most(what, mean["error"], published + 2 * std)
