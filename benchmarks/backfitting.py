"""Backfitting in its cheap form against a plain implementation of zhou2016, eqs. (21) to (30).

The plain one computes u_j of all candidates in a step as one matrix product K_MB' K_Mpool and
factors A_BB itself. It sees the same candidates as ``Backfitting(keep_pool=False)``.
"""

from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from ._data import ijcnn1
from ._harness import Options, Report, Summary, ratio, time_interleaved

C, GAMMA, N_CANDIDATES = 10.0, 1.0, 59
PLAIN, ANEW, KEPT = "plain", "keep_pool=False", "keep_pool=True"


def run(options: Options) -> Report:
    """Time the three and compare what they reach."""
    n_rows, n_basis = options.pick((50_000, 400), (3_000, 40))
    X, y, X_test, y_test = ijcnn1(n_rows, options.pick(91_701, 2_000))
    title = f"Backfitting, {len(X)} rows of ijcnn1, {n_basis} basis points, κ = {N_CANDIDATES}"
    report = Report("backfitting", title, options)
    data = (X, y.astype(np.float64)[:, None])
    seeds = {name: iter(range(100)) for name in (PLAIN, ANEW, KEPT)}
    candidates = {
        PLAIN: lambda: _plain(*data, n_basis, next(seeds[PLAIN])),
        ANEW: lambda: _backfitting(*data, n_basis, next(seeds[ANEW]), keep_pool=False),
        KEPT: lambda: _backfitting(*data, n_basis, next(seeds[KEPT]), keep_pool=True),
    }
    timings = time_interleaved(candidates, repeats=3, warmup=options.pick(0, 1), keep=tuple)
    report.add_timings("select", timings)
    objectives = {name: [kept[1] for kept in timings[name].kept] for name in timings}
    for name, wall in timings.items():
        accuracy = [_accuracy(*data, kept[0], X_test, y_test) for kept in wall.kept]
        report.rows.append(
            {
                "candidate": name,
                "seconds": f"{wall:.2f}",
                "plain / this": f"{ratio(timings[PLAIN], wall):.2f}",
                "objective, mean of seeds": round(float(np.mean(objectives[name])), 2),
                "test accuracy [%]": round(100 * float(np.mean(accuracy)), 3),
            }
        )
    _judge(report, timings, objectives)
    return report


def _judge(report: Report, timings: dict[str, Summary], objectives: dict[str, list[float]]) -> None:
    plain = timings[PLAIN]
    report.at_least("plain / keep_pool=False", ratio(plain, timings[ANEW]).median, 2.0)
    report.at_least("plain / keep_pool=True", ratio(plain, timings[KEPT]).median, 4.0)
    same = all(
        np.array_equal(a[0], b[0]) for a, b in zip(plain.kept, timings[ANEW].kept, strict=True)
    )
    report.equals("keep_pool=False takes the same points as plain", str(same), "True")
    means = {name: float(np.mean(values)) for name, values in objectives.items()}
    report.at_most("objective, keep_pool=False / plain", means[ANEW] / means[PLAIN], 1 + 1e-6)
    report.at_most("objective, keep_pool=True / plain", means[KEPT] / means[PLAIN], 1.01)


def _backfitting(
    X: np.ndarray, y: np.ndarray, n_basis: int, seed: int, keep_pool: bool
) -> tuple[np.ndarray, float]:
    from leansvm.basis import Fit
    from leansvm.basis.backfitting import Backfitting
    from leansvm.kernels import Kernel
    from leansvm.rows import MemoryBlocks

    selector = Backfitting(N_CANDIDATES, keep_pool=keep_pool, random_state=seed)
    blocks = MemoryBlocks(X, y, columns=selector.state_columns(n_basis))
    found = selector.select(blocks, Kernel("rbf", gamma=GAMMA), n_basis, fit=Fit(C))
    return found.indices, float(found.report["objective"][-1])


def _plain(X: np.ndarray, y: np.ndarray, n_basis: int, seed: int) -> tuple[np.ndarray, float]:
    """Algorithm 2 of zhou2016 with one matrix product a step for all candidates."""
    from leansvm.basis.candidates.pool import CandidateStream
    from leansvm.kernels import Kernel

    kernel = Kernel("rbf", gamma=GAMMA)
    lam, y_c = 1.0 / C, y[:, 0] - y.mean()
    stream = CandidateStream(np.random.RandomState(seed), np.ones(len(X), dtype=bool))
    rows = stream.draw(N_CANDIDATES)
    K_MB = np.empty((len(X), n_basis), order="F")  # 15 % faster than row by row
    sums, L = np.empty(n_basis), np.zeros((n_basis, n_basis), order="F")
    basis, alpha, h_B = np.empty(n_basis, np.intp), np.empty(0), np.empty(n_basis)
    for k in range(n_basis):
        K = kernel.block(X, X[rows])
        e = K.sum(axis=0)
        u = lam * K[basis[:k]] + K_MB[:, :k].T @ K - np.outer(sums[:k], e) / len(X)  # (21)
        mu = lam + np.einsum("ij,ij->j", K, K) - e**2 / len(X)  # (22)
        h = y_c @ K  # (25)
        slope = alpha @ u - h
        t = int(np.argmax(slope**2 / (2 * mu)))  # (27), (28)
        v = solve_triangular(L[:k, :k], u[:, t], lower=True, check_finite=False)
        nu = np.sqrt(mu[t] - v @ v)
        L[k, :k], L[k, k] = v, nu  # (29)
        step = solve_triangular(L[:k, :k], v, lower=True, trans="T", check_finite=False)
        alpha = np.append(alpha, 0.0) + slope[t] / nu**2 * np.append(step, -1.0)  # (30)
        K_MB[:, k], sums[k], h_B[k], basis[k] = K[:, t], e[t], h[t], rows[t]
        stream.retire(rows[[t]])
        stream.give_back(rows)
        rows = stream.draw(N_CANDIDATES)
    return basis, 0.5 * C * float(y_c @ y_c - alpha @ h_B)


def _accuracy(
    X: np.ndarray, y: np.ndarray, basis: np.ndarray, X_test: np.ndarray, y_test: np.ndarray
) -> float:
    """Share of test rows that the model on these basis points gets right."""
    from leansvm.kernels import Kernel

    kernel = Kernel("rbf", gamma=GAMMA)
    L = np.linalg.cholesky(kernel.block(X[basis], X[basis]) + 1e-12 * np.eye(len(basis)))
    P = solve_triangular(L, kernel.block(X, X[basis]).T, lower=True).T
    mean = P.mean(axis=0)
    P -= mean
    gram = P.T @ P
    gram.flat[:: len(gram) + 1] += 1.0 / C
    theta = np.linalg.solve(gram, P.T @ y[:, 0])
    alpha: Any = solve_triangular(L, theta, lower=True, trans="T")
    f = kernel.block(X_test, X[basis]) @ alpha + y.mean() - mean @ theta
    return float(np.mean(np.where(f > 0, 1, -1) == y_test))
