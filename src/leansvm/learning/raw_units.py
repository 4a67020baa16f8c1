"""From scales of standardised columns to the kernel of raw rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from leansvm.kernels import Mixture
from leansvm.learning.sample import ScaleSample
from leansvm.learning.search import Scales

Array = NDArray[np.float64]


class RawKernel(NamedTuple):
    """A kernel of raw rows, as `LearnedKernel` describes it."""

    kernel: str | Mixture
    gamma: Array | dict[str, Array]
    clip: tuple[Array, Array] | None
    scales: Array
    dropped: NDArray[np.intp]  # features that vary and that no part looks at
    n_curves: int  # quantile features in use


def raw_kernel(scales: Scales, sample: ScaleSample) -> RawKernel:
    """Return the mixture with these scales; one part without quantile features by its name."""
    units, n = sample.units, sample.n_plain
    beside = slice(n, n + len(sample.curves))
    kept: NDArray[np.bool_] = np.any(scales.gamma[:, beside] > 0, axis=0)
    knots = [curve for curve, keep in zip(sample.curves, kept, strict=True) if keep]
    parts = []
    for weight, kernel, gamma in zip(scales.weights, scales.kernels, scales.gamma, strict=True):
        raw = units.gamma(kernel, gamma[sample.columns(kernel)][:n])
        if kernel != "linear":
            raw = np.append(raw, gamma[beside][kept])
        parts.append((float(weight), kernel, raw))
    d = len(units.spread)
    looked_at = np.any([gamma[:d] > 0 for _, _, gamma in parts], axis=0)
    looked_at[[curve.feature for curve in knots]] = True
    dropped = np.flatnonzero(units.varies & ~looked_at)
    of_distances = [gamma[:d] > 0 for _, kernel, gamma in parts if kernel != "linear"]
    clip = units.clip(np.any(of_distances, axis=0)) if of_distances else None
    shown = _resolution(scales, sample)
    (_, first, gamma), *more = parts
    if not more and not knots and first != "linear":
        return RawKernel(first, gamma, clip, shown, dropped, 0)
    linear: dict[str, Any] = {}
    if "linear" in scales.kernels:
        linear = {"linear_clip": units.reach, "origin": None if sample.is_sparse else units.centre}
    mixture = Mixture(parts, clip=clip, knots=knots, **linear)
    return RawKernel(mixture, mixture.gamma_by_part, None, shown, dropped, len(knots))


def _resolution(scales: Scales, sample: ScaleSample) -> Array:
    """Return the largest weighted scale of every feature over distances, largest 1."""
    found = np.zeros(len(sample.units.spread))
    features = [*np.flatnonzero(sample.units.varies), *(c.feature for c in sample.curves)]
    for p, kernel in enumerate(scales.kernels):
        if kernel != "linear":  # which resolves nothing
            part = scales.weights[p] * scales.relative[p, : len(features)]
            np.maximum.at(found, np.array(features, np.intp), part)
    return found / max(found.max(initial=0.0), np.finfo(np.float64).tiny)
