"""The Triton kernel behind `leansvm.kernels._fused`; imported only where Triton is installed."""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def times_kernel(
    rows,  # (m, WIDTH)
    norms,  # (m,): half of the squared norms
    columns,  # (m, COLUMNS)
    sums,  # (parts, m, COLUMNS)
    m,
    PART: tl.constexpr,
    COLUMNS: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    ROOT: tl.constexpr,  # 0: rbf; 3, 5: Matern
):
    """Write sum_j kappa(D_ij) v_j over one part of the rows j, for TILE rows i."""
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    part = tl.program_id(1)
    f, c = tl.arange(0, WIDTH), tl.arange(0, COLUMNS)
    there = i < m
    x = tl.load(rows + i[:, None] * WIDTH + f[None, :], mask=there[:, None], other=0.0)
    half = tl.load(norms + i, mask=there, other=0.0)
    total = tl.zeros((TILE, COLUMNS), tl.float32)
    for start in range(part * PART, min((part + 1) * PART, m), TILE):
        j = start + tl.arange(0, TILE)
        inside = j < m
        z = tl.load(rows + j[:, None] * WIDTH + f[None, :], mask=inside[:, None], other=0.0)
        other = tl.load(norms + j, mask=inside, other=0.0)
        product = tl.dot(x, tl.trans(z), input_precision="tf32x3")
        D = tl.maximum(half[:, None] + other[None, :] - product, 0.0)
        if ROOT == 0:
            values = tl.exp(-D)
        else:
            r = tl.sqrt(ROOT * D)
            values = (1.0 + r) * tl.exp(-r)
            if ROOT == 5:
                values += (r * r / 3.0) * tl.exp(-r)
        v = tl.load(columns + j[:, None] * COLUMNS + c[None, :], mask=inside[:, None], other=0.0)
        total += tl.dot(values, v, input_precision="tf32x3")
    place = (part * m + i[:, None]).to(tl.int64) * COLUMNS + c[None, :]
    tl.store(sums + place, total, mask=there[:, None])
