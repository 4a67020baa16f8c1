"""k(X, X) V for float32 rows on a CUDA device without ever writing kernel values to memory.

Each program of a Triton kernel holds some rows x_i, runs over a part of all rows x_j, and adds
kappa(D_ij) v_j, D_ij = |z_i|^2 / 2 + |z_j|^2 / 2 - z_i'z_j with z = sqrt(2 gamma) x, centred. The
tensor cores multiply in three parts (TF32x3), which is as good as float32; parts of some thousand
rows are added up in float64.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from leansvm._array_api import library_of
from leansvm.kernels._function import Gamma
from leansvm.kernels._radial import product_suffices, split_gamma

_MOST_FEATURES = 128  # of a row that a program keeps
_COLUMNS = 16  # of V at a time: the least that tensor cores take
_PART = 16384  # rows whose products are added up in float32


def fused_times(root: int, X: Any, gamma: Gamma, V: Any) -> Any | None:
    """Return k(X, X) V in float64; None if there is no such form for these rows.

    ``root`` is the factor of D under the root of a Matérn kernel, 0 for the Gaussian kernel.
    """
    if library_of(X) != "torch" or X.shape[1] > _MOST_FEATURES:
        return None
    import torch

    if X.device.type != "cuda" or X.dtype != torch.float32 or (kernel := _compiled()) is None:
        return None
    number, scales = split_gamma(gamma)
    rows = X - X.mean(dim=0, keepdim=True)
    rows *= (2.0 * number) ** 0.5
    if scales is not None:
        rows *= torch.asarray(scales, dtype=X.dtype, device=X.device)
    norms = 0.5 * (rows * rows).sum(dim=1)
    if not product_suffices(float(norms.max()), float(np.finfo(np.float32).eps)):
        return None
    width = max(16, 1 << (X.shape[1] - 1).bit_length())
    padded = torch.zeros((X.shape[0], width), dtype=X.dtype, device=X.device)
    padded[:, : X.shape[1]] = rows
    parts = [_times(kernel, root, padded, norms, some) for some in V.split(_COLUMNS, dim=1)]
    return torch.cat(parts, dim=1)


def _times(kernel: Any, root: int, rows: Any, norms: Any, V: Any) -> Any:
    """Multiply a few columns."""
    import torch

    (m, width), k = rows.shape, V.shape[1]
    columns = torch.zeros((m, _COLUMNS), dtype=rows.dtype, device=rows.device)
    columns[:, :k] = V
    n_parts, tile = -(-m // _PART), 128 if width <= 64 else 64
    sums = torch.empty((n_parts, m, _COLUMNS), dtype=rows.dtype, device=rows.device)
    with torch.cuda.device(rows.device):
        kernel[(-(-m // tile), n_parts)](
            rows,
            norms,
            columns,
            sums,
            m,
            PART=_PART,
            COLUMNS=_COLUMNS,
            WIDTH=width,
            TILE=tile,
            ROOT=root,
            num_warps=8 if tile == 128 else 4,
            num_stages=2,
        )
    return sums.sum(dim=0, dtype=torch.float64)[:, :k]


@cache
def _compiled() -> Any | None:
    """Return the Triton kernel; None where Triton is not installed."""
    try:
        from leansvm.kernels._fused_triton import times_kernel
    except ImportError:
        return None
    return times_kernel
