"""Sums over rows for partial dependence and Shapley values, in vector registers.

``base`` has one row for each x and one column for each point, ``own`` is the part of it that comes
from the present feature; the rest, base - own, is never below 0 (rounding is cut off).
"""

from __future__ import annotations

from math import asinh, exp, sqrt
from typing import Any

import numpy as np

from leansvm._compile import compiled
from leansvm.kernels._compiled import decay

_OPTIONS = {"error_model": "numpy", "fastmath": {"contract", "nsz"}}
_EQUAL = 1e-14  # of base: less is rounding
_TINY = 1e-300


@compiled(fastmath={"reassoc", "nsz"})
def total(values: Any, count: int) -> float:
    """Return the sum of the first values."""
    result = 0.0
    for i in range(count):
        result += values[i]
    return result


@compiled(**_OPTIONS)
def add_materns(
    base: Any, x: Any, z: Any, gamma: float, floors: Any, starts: Any, t: Any, terms: Any, out: Any
) -> None:
    """Add k(rest_ij + t_js) of every row to out_js, at the steps s of the pair's band alone.

    ``base`` has one row for each point here. rest = base - gamma (x_i - z_j)^2 decides the band:
    the first whose floor it reaches; its steps are starts[band] to starts[band + 1].
    k = (1 + a r + b r^2) e^-r with r^2 = c D; ``terms`` are a, b, c.
    """
    linear, quadratic, factor = terms
    n_bands, n_rows = floors.shape[0], base.shape[1]
    rest, chosen, values = np.empty(n_rows), np.empty(n_rows), np.empty(n_rows)
    for j in range(base.shape[0]):
        b = base[j]
        for i in range(n_rows):
            difference = x[i] - z[j]
            left = b[i] - gamma * difference * difference
            rest[i] = left if left > _EQUAL * b[i] else 0.0
        for band in range(n_bands):
            lower, upper = floors[band], floors[band - 1] if band else np.inf
            count = 0
            for i in range(n_rows):
                chosen[count] = rest[i]
                count += lower <= rest[i] < upper
            for s in range(starts[band], starts[band + 1]):
                step = t[j, s]
                for i in range(count):
                    r = sqrt(factor * (chosen[i] + step))
                    values[i] = (1.0 + r * (linear + r * quadratic)) * decay(r)
                out[j, s] += total(values, count)


@compiled(**_OPTIONS)
def add_series(coefficients: Any, places: Any, out: Any) -> None:
    """Add sum_n c_jn T_n(x_jv), T_n Chebyshev's polynomials, by Clenshaw's recurrence."""
    first, second = np.empty(places.shape[1]), np.empty(places.shape[1])
    for j in range(places.shape[0]):
        x, values = places[j], out[j]
        first[:], second[:] = 0.0, 0.0
        for n in range(coefficients.shape[1] - 1, 0, -1):
            c = coefficients[j, n]
            for v in range(x.shape[0]):
                before = first[v]
                first[v] = c + 2.0 * x[v] * before - second[v]
                second[v] = before
        for v in range(x.shape[0]):
            values[v] += coefficients[j, 0] + x[v] * first[v] - second[v]


@compiled(fastmath={"reassoc", "contract", "nsz"})
def dot(a: Any, b: Any) -> float:
    """Return a'b."""
    result = 0.0
    for j in range(a.shape[0]):
        result += a[j] * b[j]
    return result


@compiled(**_OPTIONS)
def add_moved(
    base: Any,
    x: Any,
    moved: Any,
    Zt: Any,
    gamma: Any,
    squared: bool,
    terms: Any,
    coef: Any,
    out: Any,
) -> None:
    """Add sum_j coef_oj k(D_ij) to out_io, D = base where x has become ``moved``.

    ``x``, ``moved`` and ``Zt`` (one row for each feature) hold the features that change alone;
    ``terms`` are those of `add_materns`, with c = 0 for e^-D.
    """
    linear, quadratic, factor = terms
    t = np.empty(base.shape[1])
    for i in range(base.shape[0]):
        for j in range(t.shape[0]):
            t[j] = base[i, j]
        for f in range(x.shape[1]):
            before, now, z = x[i, f], moved[i, f], Zt[f]
            if squared:
                step, middle = gamma[f] * (now - before), now + before
                for j in range(t.shape[0]):
                    t[j] += step * (middle - 2.0 * z[j])
            else:
                weight = gamma[f]
                for j in range(t.shape[0]):
                    t[j] += weight * (abs(now - z[j]) - abs(before - z[j]))
        if factor == 0.0:
            for j in range(t.shape[0]):
                t[j] = decay(t[j] if t[j] > 0.0 else 0.0)
        else:
            for j in range(t.shape[0]):
                r = sqrt(factor * (t[j] if t[j] > 0.0 else 0.0))
                t[j] = (1.0 + r * (linear + r * quadratic)) * decay(r)
        for o in range(out.shape[1]):
            out[i, o] += dot(t, coef[o])


@compiled(error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def add_shapley(
    Dx: Any,
    Db: Any,
    X: Any,
    B: Any,
    count: int,
    terms: Any,
    tolerance: float,
    nodes: Any,
    weights: Any,
    rows: Any,
    before: Any,
    backwards: Any,
    out: Any,
) -> None:
    """Add Shapley values of sum_p weight_p prod_g e^-(scale_p D_g) to out_jg, mean over rows b.

    ``Dx`` has a row for each point j and a column for each factor g, an even number; ``Db`` is
    points x factors x rows, and the first ``count`` rows are meant. ``X`` and ``B`` are
    e^-(scale D) of them, with one more axis, the first, for the terms; ``terms`` are their weights
    and scales. A term adds sum_q w_q (X_jg - B_jgb) prod_(h != g) (t_q X_jh + (1 - t_q) B_jhb),
    with the nodes that row n of ``nodes`` has for n + 1 of them. Products are taken in the
    precision of the tables.
    ``rows`` and ``before`` are room for three rows and for a row of each pair of factors.
    """
    n_factors, n_rows, number = Db.shape[1], Db.shape[2], Db.dtype.type
    least, apart, product = rows[0], rows[1], rows[2]
    for j in range(Dx.shape[0]):
        least[:], apart[:] = 0.0, 0.0
        for g in range(n_factors):
            x, b = Dx[j, g], Db[j, g]
            for i in range(n_rows):
                least[i] += min(x, b[i])
                apart[i] += abs(x - b[i])
        nearest, step = least[:count].min(), apart[:count].max() / n_factors
        for p in range(terms.shape[0]):
            weight, scale = terms[p]
            # sum_g (1 - e^-(scale |x - b|)) / 2 is largest where all |x - b| are equal
            spread = 0.5 * n_factors * (1.0 - exp(-scale * step))
            small = tolerance / (abs(weight) + _TINY)
            n_nodes = nodes_for(exp(-scale * nearest), spread, small, nodes.shape[0])
            for q in range(n_nodes):
                t, w = nodes[n_nodes - 1, q], weight * weights[n_nodes - 1, q] / count
                product[:count] = number(w)
                product[count:] = number(0.0)
                add_node(X[p, j], B[p, j], number(t), before, product, backwards, out[j])


@compiled(error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def add_node(X: Any, B: Any, t: float, before: Any, product: Any, backwards: Any, out: Any) -> None:
    """Add sum_b w_b (X_g - B_gb) prod_(h != g) (t X_h + (1 - t) B_hb) to out_g.

    ``product`` holds w. Nothing is divided: products of the factors before a pair are kept in a
    pass forwards (``before``), those after it grow in a pass backwards (``product``).
    ``backwards`` lists the pairs from the last to the first: with a counter that runs down, LLVM
    does not use vector registers.
    """
    n_pairs, n_rows = B.shape[0] // 2, B.shape[1]
    one = B.dtype.type(1.0)  # of the type of the tables, like all that follows
    u = one - t
    for pair in range(n_pairs):
        g = 2 * pair
        tx, ty, b, c, kept = t * X[g], t * X[g + 1], B[g], B[g + 1], before[pair]
        for i in range(n_rows):
            kept[i] = product[i]
            product[i] *= (tx + u * b[i]) * (ty + u * c[i])
    product[:] = one
    for k in range(n_pairs):
        pair = backwards[k]
        g = 2 * pair
        x, y, b, c, kept = X[g], X[g + 1], B[g], B[g + 1], before[pair]
        tx, ty, first, second = t * x, t * y, t - t, t - t
        for i in range(n_rows):
            at_x, at_y, rest = tx + u * b[i], ty + u * c[i], kept[i] * product[i]
            first += rest * at_y * (x - b[i])
            second += rest * at_x * (y - c[i])
            product[i] *= at_x * at_y
        out[g] += first
        out[g + 1] += second


@compiled(error_model="numpy")
def nodes_for(largest: float, spread: float, tolerance: float, most: int) -> int:
    """Return how many nodes give the integral of a product to a tolerance; 0: it is smaller.

    With t = (1 + cos s) / 2 a factor is (X + B) / 2 + (X - B) / 2 cos s. Over max(X, B) it is a
    distribution on -1, 0, 1, and the product one of their sum, whose variance is ``spread``. What
    it has beyond 2n, by Chernoff's bound, is what n nodes cannot see.
    """
    if largest < tolerance:
        return 0
    for n in range(1, most):
        ratio = 2.0 * n / (spread + _TINY)
        exponent = spread * (sqrt(1.0 + ratio * ratio) - 1.0) - 2.0 * n * asinh(ratio)
        if 4.0 * largest * exp(exponent) < tolerance:
            return n
    return most
