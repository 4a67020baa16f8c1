"""L2SVC over C beside SVC and LinearSVC (peng2016, Tables 9-11); what reusing the factor saves.

Linear kernel on splice, a1a and w1a; Gaussian kernel on 5,000 rows of ADULT. SVC with a linear
kernel is stopped after a minute, and not tried for a larger C then. Then, with C=1, on the
classification sets of the tabular suite, and with one and all threads of BLAS on digits.

SVC() and LinearSVC() have no probabilities, so L2SVC is compared with them without probabilities,
too (calibrate=False). On the suite, L2SVC() with its probabilities is compared with
CalibratedClassifierCV(SVC(), ensemble=False), scikit-learn's way to make them.
"""

import time
import warnings
from typing import Any

import numpy as np

from ._data import peng2016, zhou2016
from ._harness import Options, Report, SkipBenchmark, Summary, ratio, time_interleaved
from ._isolated import run_isolated
from ._tabular import Part, folder, split

LIMIT = 60.0
GAMMA = 2.0**-6
SPLITS = (0, 1, 2)
LOO_ROWS = 2_500  # with more, C='loo' is not timed


def run(options: Options) -> Report:
    """Linear, Gaussian, and with the factor made anew every time."""
    report = Report("l2svc_speed", "L2SVC over C: linear kernel, then Gaussian", options)
    for name in options.pick(("splice", "a1a", "w1a"), ("splice",)):
        _linear(report, name, options.pick(10.0 ** np.arange(-4, 5), [0.1, 1.0]))
    rows = options.pick(5_000, 400)
    _gaussian(report, rows, options.pick([1e-2, 1e-1, 1.0, 10.0, 100.0, 1e3], [1.0]))
    _suite(report)
    _threads(report)
    return report


def _linear(report: Report, name: str, values: Any) -> None:
    from sklearn.svm import LinearSVC

    from leansvm import L2SVC

    X, y, n_train = peng2016(name)
    X, y = X[:n_train], y[:n_train]
    plain: Any = {"kernel": "linear", "calibrate": False}
    L2SVC(1.0, **plain).fit(X, y)
    totals, steps, limit_hit = [], [], False
    for C in map(float, values):
        with warnings.catch_warnings():  # LinearSVC does not converge for large C
            warnings.simplefilter("ignore")
            times = time_interleaved(
                {
                    "L2SVC": lambda C=C: L2SVC(C, **plain).fit(X, y),
                    "LinearSVC": lambda C=C: LinearSVC(C=C / 2).fit(X, y),
                },
                repeats=5,
                keep=lambda model: (model.n_iter_, getattr(model, "fit_report_", None)),
            )
        ours = times["L2SVC"]
        iterations, fit_report = ours.kept[0]
        solve = min(kept[1]["seconds"]["solve"] for kept in ours.kept)
        totals.append(ours.median)
        steps.append(solve / iterations)
        svc = "not tried"
        if not limit_hit:
            outcome = run_isolated(
                "benchmarks.l2svc_speed:fit_svc", time_limit=LIMIT + 5, name=name, C=C
            )
            limit_hit = not outcome.ok
            svc = outcome.value if outcome.ok else LIMIT
        times_faster = None if isinstance(svc, str) else svc / ours.median
        report.rows.append(
            {
                "data": name,
                "C": C,
                "iterations": iterations,
                "SVs": fit_report["basis"],
                "L2SVC [ms]": f"{1e3 * ours.median:.2f}",
                "an iteration [ms]": f"{1e3 * steps[-1]:.2f}",
                "LinearSVC [ms]": f"{1e3 * times['LinearSVC'].median:.2f}",
                "SVC [ms]": svc if isinstance(svc, str) else f"{'>' * limit_hit}{1e3 * svc:.1f}",
                "SVC / L2SVC": "" if times_faster is None else f"{times_faster:.1f}",
            }
        )
        report.add_timings(f"{name}, C={C:g}", times)
        if times_faster is not None and C >= 10 and name != "w1a":
            report.at_least(f"SVC / L2SVC, {name}, C={C:g}", times_faster, 20.0)
        if times_faster is not None and C == 10 and name == "w1a":
            report.at_least(f"SVC / L2SVC, {name}, C={C:g}", times_faster, 1.0)
    if name != "w1a":
        report.at_most(f"time an iteration, max / min over C, {name}", max(steps) / min(steps), 2.0)
        report.at_most(f"total time, max / min over C, {name}", max(totals) / min(totals), 8.0)
    else:
        report.at_most(f"total time, C=1e4 / C=10, {name}", totals[-1] / totals[-4], 10.0)


def fit_svc(name: str, C: float) -> float:
    """Seconds of one fit; called in a fresh interpreter."""
    from sklearn.svm import SVC

    X, y, n_train = peng2016(name)
    SVC(kernel="linear", C=1e-4).fit(X[:100], y[:100])
    start = time.perf_counter()
    SVC(kernel="linear", C=C).fit(X[:n_train], y[:n_train])
    return time.perf_counter() - start


def _gaussian(report: Report, rows: int, values: list[float]) -> None:
    from sklearn.svm import SVC

    from leansvm import L2SVC

    X, y, *_ = zhou2016("ADULT")
    X, y = X[:rows], y[:rows]
    fits: dict[float, dict[str, Any]] = {}
    plain: Any = {"gamma": GAMMA, "calibrate": False}
    L2SVC(1e-2, **plain).fit(X, y)  # memory is touched for the first time
    for C in values:
        times = time_interleaved(
            {
                "L2SVC": lambda C=C: L2SVC(C, **plain).fit(X, y),
                "factor kept": lambda C=C: L2SVC(C, solver="active-set", **plain).fit(X, y),
                "factor anew": lambda C=C: anew(X, y, C),
                "SVC": lambda C=C: SVC(C=C, gamma=GAMMA).fit(X, y),
            },
            repeats=report.options.pick(3, 1),
            warmup=0,
            keep=lambda model: getattr(model, "fit_report_", None),
        )
        fits[C] = times
        against = ratio(times["L2SVC"], times["SVC"])
        reuse = ratio(times["factor anew"], times["factor kept"])
        kept = times["L2SVC"].kept[0]
        report.rows.append(
            {
                "data": f"ADULT {rows}, rbf",
                "C": C,
                "solver": kept["solver"],
                "iterations": kept["iterations"],
                "SVs": kept["basis"],
                "L2SVC [ms]": f"{1e3 * times['L2SVC'].median:.0f}",
                "SVC [ms]": f"{1e3 * times['SVC'].median:.0f}",
                "SVC / L2SVC": f"{1 / against.median:.2f}",
                "anew / kept": f"{reuse.median:.2f}",
            }
        )
        report.add_timings(f"ADULT, C={C:g}", times)
        report.at_most(f"L2SVC / SVC, ADULT rbf, C={C:g}", against.median, 1.0 if C >= 10 else 2.0)
    path = _path_seconds(X, y, values)
    alone = sum(times["factor kept"].median for times in fits.values())
    report.notes.append(
        f"all {len(values)} values of C by c_path: {path / alone:.2f} of single fits by active set"
    )


def anew(X: Any, y: Any, C: float) -> Any:
    """Fit with the factor made anew whenever rows leave the support set."""
    from leansvm import L2SVC
    from leansvm.dual._support_system import SupportFactor

    def drop_all(factor: SupportFactor, leaving: Any) -> None:
        factor.forget()
        factor.counts["refactored"] += 1

    drop = SupportFactor._drop
    SupportFactor._drop = drop_all  # type: ignore[method-assign]
    try:
        return L2SVC(C, gamma=GAMMA, solver="active-set", calibrate=False).fit(X, y)
    finally:
        SupportFactor._drop = drop  # type: ignore[method-assign]


def _path_seconds(X: Any, y: Any, values: list[float]) -> float:
    from leansvm import L2SVC
    from leansvm.model_selection import c_path

    start = time.perf_counter()
    c_path(L2SVC(gamma=GAMMA, calibrate=False), X, y, values)
    return Summary([time.perf_counter() - start]).median


def _suite(report: Report) -> None:
    """Compare default models on everyday tables: seconds, accuracy, and what C="loo" costs."""
    try:
        names = sorted(path.stem for path in folder().glob("*.npz"))
    except SkipBenchmark as reason:
        report.notes.append(f"suite: {reason}")
        return
    most_rows, found = report.options.pick(10_000, 400), list[tuple[float, float]]()
    for name in names:
        parts = [split(name, number, most_rows) for number in SPLITS]
        if parts[0].is_classification and len(found) < report.options.pick(len(names), 2):
            found.append(_one_set(report, name, parts))
    ratios, probable = zip(*found, strict=True)
    report.at_most("L2SVC / SVC, median of the suite", float(np.median(ratios)), 5.0)
    report.at_most("L2SVC / SVC, worst of the suite", max(ratios), 15.0)
    what = "L2SVC / SVC, both with probabilities, median of the suite"
    report.at_most(what, float(np.median(probable)), 5.0)


def _one_set(report: Report, name: str, parts: list[Part]) -> tuple[float, float]:
    """Add the row of one table: seconds of the first split, mean accuracies.

    Returns the seconds of ours by those of SVC, both without probabilities and both with them.
    """
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.svm import SVC

    from leansvm import L2SVC

    X, y, _, _ = _standardised(parts[0])
    times = time_interleaved(
        {
            "L2SVC": lambda: L2SVC(calibrate=False).fit(X, y),
            "SVC": lambda: SVC().fit(X, y),
            "L2SVC, probabilities": lambda: L2SVC().fit(X, y),
            "SVC, probabilities": lambda: CalibratedClassifierCV(SVC(), ensemble=False).fit(X, y),
        },
        repeats=report.options.pick(3, 1),
        keep=lambda model: getattr(model, "fit_report_", None),
    )
    against, kept = ratio(times["L2SVC"], times["SVC"]), times["L2SVC"].kept[0]
    probable = ratio(times["L2SVC, probabilities"], times["SVC, probabilities"])
    ours, theirs = (float(np.mean([_accuracy(m, p) for p in parts])) for m in (L2SVC(), SVC()))
    report.rows.append(
        {
            "data": f"{name}, rbf, defaults",
            "C": 1.0,
            "solver": kept["solver"],
            "iterations": kept["iterations"],
            "SVs": kept["basis"],
            "L2SVC [ms]": f"{1e3 * times['L2SVC'].median:.0f}",
            "SVC [ms]": f"{1e3 * times['SVC'].median:.0f}",
            "SVC / L2SVC": f"{1 / against.median:.2f}",
            "with probabilities": f"{1 / probable.median:.2f}",
            "accuracies [%]": f"{ours:.2f}, SVC {theirs:.2f}",
        }
    )
    report.add_timings(f"{name}, defaults", times)
    report.at_least(f"accuracy less SVC's, {name}", ours - theirs, -0.5)
    if len(y) <= LOO_ROWS:
        _loo_cost(report, name, X, y, times["L2SVC"].median)
    return against.median, probable.median


def _standardised(part: Part) -> tuple[np.ndarray, ...]:
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(part.X)
    return scaler.transform(part.X), part.y, scaler.transform(part.X_test), part.y_test


def _accuracy(model: Any, part: Part) -> float:
    X, y, X_test, y_test = _standardised(part)
    return 100 * float(model.fit(X, y).score(X_test, y_test))


def _loo_cost(report: Report, name: str, X: Any, y: Any, single: float) -> None:
    from leansvm import L2SVC

    start = time.perf_counter()
    model = L2SVC(C="loo").fit(X, y)
    seconds = time.perf_counter() - start
    report.notes.append(
        f"{name}: C='loo' takes {seconds / single:.0f} fits for {len(model.cv_curve_)} values and "
        f"chooses C={model.C_:.3g}"
    )


def _threads(report: Report) -> None:
    """1,200 digits with one thread of BLAS and with all: small systems take one by themselves."""
    from sklearn.datasets import load_digits
    from threadpoolctl import threadpool_limits

    from leansvm import L2SVC

    X, y = load_digits(return_X_y=True)
    X, y = X[:1200] / 16, y[:1200]

    def alone() -> Any:
        with threadpool_limits(1):
            return L2SVC(calibrate=False).fit(X, y)

    times = time_interleaved(
        {"all": lambda: L2SVC(calibrate=False).fit(X, y), "one": alone},
        repeats=report.options.pick(7, 2),
    )
    report.add_timings("1,200 digits", times)
    against = ratio(times["all"], times["one"]).median
    report.at_most("all threads / one thread, 1,200 digits", against, 1.05)
