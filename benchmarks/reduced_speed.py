"""ReducedSVC beside SVC, intelex SVC and Nystroem + LinearSVC; its parts beside their floor.

Every model runs in a process of its own; fit and predict are timed after a small warm-up. The
parts: Hessians updated by the rows that changed sides and by Woodbury's identity beside rebuilt
ones, and the first Newton step beside the matrix products that it cannot do without.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from leansvm.datasets import make_checkerboard

from ._data import zhou2016
from ._harness import Options, Report, Summary, ratio, time_interleaved
from ._isolated import run_isolated


def _svc(**options: Any) -> Any:
    from sklearn.svm import SVC

    return SVC(**options)


def _intelex(**options: Any) -> Any:
    from sklearnex.svm import SVC

    return SVC(**options)


def _nystroem(gamma: float, n_components: int, C: float) -> Any:
    from sklearn.kernel_approximation import Nystroem
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    return make_pipeline(
        Nystroem(gamma=gamma, n_components=n_components, random_state=0), LinearSVC(C=C)
    )


def _reduced(**options: Any) -> Any:
    from leansvm import ReducedSVC

    return ReducedSVC(kernel="rbf", loss="squared_hinge", random_state=0, **options)


MAKERS: dict[str, Callable[..., Any]] = {
    "SVC": _svc,
    "intelex SVC": _intelex,
    "Nystroem + LinearSVC": _nystroem,
    "ReducedSVC": _reduced,
}
# data: label, maker, parameters; the first one is what the others are compared with
MODELS: dict[str, list[tuple[str, str, dict[str, Any]]]] = {
    "CHECKERBOARD": [
        ("SVC", "SVC", {"C": 10.0, "gamma": 0.001}),
        (
            "ReducedSVC, 1,000",
            "ReducedSVC",
            {
                "C": 10.0,
                "gamma": 0.001,
                "n_basis": 1000,
                "regularizer": "coef",
                "fit_intercept": False,
            },
        ),
    ],
    "ADULT": [
        # both are faster on sparse rows
        ("SVC", "SVC", {"C": 1.0, "gamma": 2.0**-4, "sparse": True}),
        ("intelex SVC", "intelex SVC", {"C": 1.0, "gamma": 2.0**-4, "sparse": True}),
        ("ReducedSVC, 300", "ReducedSVC", {"C": 1.0, "gamma": 2.0**-4, "n_basis": 300}),
    ],
    "IJCNN": [
        ("SVC", "SVC", {"C": 10.0, "gamma": 1.0}),
        (
            "Nystroem(400) + LinearSVC",
            "Nystroem + LinearSVC",
            {"C": 10.0, "gamma": 0.5, "n_components": 400},
        ),
        ("ReducedSVC, 1,000", "ReducedSVC", {"C": 100.0, "gamma": 0.5, "n_basis": 1000}),
        ("ReducedSVC, 600", "ReducedSVC", {"C": 100.0, "gamma": 0.5, "n_basis": 600}),
    ],
}


def run(options: Options) -> Report:
    """Time models, then parts."""
    report = Report("reduced_speed", "ReducedSVC beside other SVMs; its parts", options)
    rows = options.pick(None, 2_000)
    for name, models in MODELS.items():
        found = {}
        for label, maker, parameters in models:
            python = options.peer_python if maker == "intelex SVC" else None
            outcome = run_isolated(
                "benchmarks.reduced_speed:fit_model",
                python=python,
                data=name,
                maker=maker,
                parameters=parameters,
                rows=rows,
            )
            row: dict[str, Any] = {"data": name, "model": label}
            if outcome.ok:
                found[label] = outcome.value
                row |= {key: round(value, 4) for key, value in outcome.value.items()}
            else:
                row["outcome"] = outcome.status
            report.rows.append(row)
        _judge(report, name, found)
    _parts(report, options)
    return report


def _judge(report: Report, name: str, found: dict[str, dict[str, float]]) -> None:
    svc, ours = found["SVC"], {k: v for k, v in found.items() if k.startswith("Reduced")}
    first = next(iter(ours.values()))
    if name == "CHECKERBOARD":
        report.at_most(
            "checkerboard: test error / SVC's", first["error [%]"] / svc["error [%]"], 1.0
        )
    elif name == "ADULT":
        report.at_most("ADULT: test error / SVC's", first["error [%]"] / svc["error [%]"], 1.0)
        report.at_least("ADULT: SVC's fit / ours", svc["fit [s]"] / first["fit [s]"], 15)
        report.at_least(
            "ADULT: SVC's predict / ours", svc["predict [s]"] / first["predict [s]"], 50
        )
        if "intelex SVC" in found:
            other = found["intelex SVC"]["fit [s]"]
            report.at_least("ADULT: intelex's fit / ours", other / first["fit [s]"], 1.5)
    else:
        report.at_most("IJCNN, 1,000 points: test error [%]", first["error [%]"], 1.4)
        report.at_least("IJCNN: SVC's fit / ours", svc["fit [s]"] / first["fit [s]"], 1)
        report.at_least("IJCNN: SVC's predict / ours", svc["predict [s]"] / first["predict [s]"], 5)
        small, other = ours["ReducedSVC, 600"], found["Nystroem(400) + LinearSVC"]
        gain = other["fit [s]"] / small["fit [s]"]
        report.at_least("IJCNN, 600 points: Nystroem's fit / ours", gain, 3)
        worse = small["error [%]"] / other["error [%]"]
        report.at_most("IJCNN, 600 points: test error / Nystroem's", worse, 1.0)


def fit_model(data: str, maker: str, parameters: dict[str, Any], rows: int | None) -> dict:
    """Fit and apply one model; called in a fresh interpreter."""
    if data == "CHECKERBOARD":
        X, y = make_checkerboard()
        order = np.random.default_rng(1).permutation(len(y))
        X_test, y_test = X[order[25_000:]], y[order[25_000:]]
        X, y = X[order[:25_000]], y[order[:25_000]]
    else:
        X, y, X_test, y_test = zhou2016(data)
    if parameters.pop("sparse", False):
        X, X_test = csr_matrix(X), csr_matrix(X_test)
    if rows is not None:
        X, y, X_test, y_test = X[:rows], y[:rows], X_test[:rows], y_test[:rows]
    warm = parameters | ({"n_basis": 50} if "n_basis" in parameters else {})
    MAKERS[maker](**warm).fit(X[-1500:], y[-1500:]).predict(X_test[:300])
    model = MAKERS[maker](**parameters)
    start = time.perf_counter()
    model.fit(X, y)
    fitted = time.perf_counter()
    predicted = model.predict(X_test)
    end = time.perf_counter()
    support = getattr(model, "support_", None)
    return {
        "fit [s]": fitted - start,
        "predict [s]": end - fitted,
        "error [%]": 100 * float(np.mean(predicted != y_test)),
        "points": 400 if support is None else len(support),
    }


# ---------------------------------------------------------------------------- parts


def _parts(report: Report, options: Options) -> None:
    """Time what incremental Hessians save, and a step beside its floor."""
    m, r = options.pick((25_000, 1_000), (2_000, 100))
    X, y = make_checkerboard()
    order = np.random.default_rng(1).permutation(len(y))[:m]
    X, y = X[order], y[order].astype(np.float64)
    for loss, C in (("squared_hinge", 10.0), ("squared_hinge", 100.0), ("huber", 100.0)):
        timings = time_interleaved(
            {
                "updated": lambda loss=loss, C=C: _solve(X, y, r, loss, C, rebuild=False),
                "rebuilt": lambda loss=loss, C=C: _solve(X, y, r, loss, C, rebuild=True),
            },
            repeats=options.pick(3, 1),
            warmup=0,
            keep=lambda found: found[1],
        )
        # only Newton's steps: the kernel values are the same for both
        seconds = {name: Summary([kept[0] for kept in t.kept]) for name, t in timings.items()}
        kinds = timings["updated"].kept[0][1]
        saved = ratio(seconds["rebuilt"], seconds["updated"]).median
        report.rows.append(
            {
                "data": f"Hessians, {loss}, C = {C:g}",
                "model": ", ".join(f"{kinds.count(k)} {k}" for k in dict.fromkeys(kinds)),
                "fit [s]": f"{seconds['updated']:.3f}",
                "rebuilt / updated": round(saved, 2),
            }
        )
        report.at_least(f"{loss}, C = {C:g}: rebuilt Hessians / updated", saved, 1.0)
    step, floor = _first_step(X, y, r, options.pick(5, 1))
    report.rows.append(
        {"data": "one Newton step", "model": "beside its products", "fit [s]": f"{step:.3f}",
         "floor [s]": f"{floor:.3f}"}
    )  # fmt: skip
    report.at_most("first Newton step / its SYRK, GEMVs and Cholesky", step / floor, 1.6)


def _solver(X: np.ndarray, y: np.ndarray, r: int, rebuild: bool) -> Any:
    from leansvm.basis.features import KernelFeatures
    from leansvm.kernels import Kernel
    from leansvm.newton.passes import HessianPlan
    from leansvm.newton.solver import NewtonSolver
    from leansvm.rows import MemoryBlocks

    blocks = MemoryBlocks(X, y[:, None], columns=3 * r)
    features = KernelFeatures(Kernel("rbf", gamma=0.001), X[:r], keep=True)
    blocks.map(lambda block: features.of(block) is None)
    solver = NewtonSolver(blocks, features)
    if rebuild:  # never update Gram matrices nor use Woodbury's identity
        solver.plan = lambda o: HessianPlan(
            "rebuild" if o.counts[0] else "none", as_gram=o.counts[0] > r
        )
    return solver


def _solve(X: np.ndarray, y: np.ndarray, r: int, loss: str, C: float, rebuild: bool) -> tuple:
    from leansvm.losses import get_loss

    solver = _solver(X, y, r, rebuild)
    start = time.perf_counter()
    found = solver.solve(get_loss(loss), C)
    return found, (time.perf_counter() - start, found.details["history"][0]["hessian"])


def _first_step(X: np.ndarray, y: np.ndarray, r: int, repeats: int) -> tuple[float, float]:
    """Medians of seconds of a first step, where all rows are curved, and of its products."""
    from scipy.linalg import cho_factor

    from leansvm.basis.features import ColumnRows
    from leansvm.losses import SquaredHinge

    solver = _solver(X, y, r, rebuild=True)
    solver.max_iter = 1
    solver.solve(SquaredHinge(), 10.0)
    Phi = np.concatenate([block.kept(ColumnRows).Phi for block in solver.blocks._blocks])

    def step() -> None:
        found = solver.for_each(solver.outputs, solver.direction)
        solver._line_search(solver.outputs, np.stack(found, axis=1))

    def products() -> None:
        gram = Phi.T @ Phi
        gram.flat[:: r + 1] += 1.0
        cho_factor(gram, overwrite_a=True)
        Phi.T @ (Phi @ y[:r])

    def prepared() -> float:
        solver._loss = None
        solver.max_iter = 0
        solver._setup(SquaredHinge(), 10.0, None, 1e-6)
        start = time.perf_counter()
        step()
        return time.perf_counter() - start

    taken = time_interleaved({"step": prepared, "floor": products}, repeats=repeats, keep=float_of)
    return float(np.median(taken["step"].kept)), taken["floor"].median


def float_of(result: Any) -> float:
    """Return what a candidate measured itself, 0 where it did not."""
    return 0.0 if result is None else float(result)
