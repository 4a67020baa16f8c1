"""Floors of fits: the work that a method cannot avoid, at the rates that a machine reaches.

A fit of a kernel machine is made of few kinds of work: products of matrices, symmetric products
Z'Z, triangular solves, exponentials, and reading what lies in memory. `Work` counts them from the
equations, `Rates` are measured in the same run, and the floor of a fit is the sum of count / rate.
"""

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

KINDS = {
    "gemm": ("matrix product", "GFlop/s", 1e9),
    "syrk": ("symmetric product Z'Z", "GFlop/s", 1e9),
    "trsm": ("triangular solve", "GFlop/s", 1e9),
    "exp": ("exponentials", "10⁹/s", 1e9),
    "bytes": ("reading and writing memory", "GB/s", 1e9),
}


@dataclass(frozen=True)
class Rates:
    """Flop/s, values/s and bytes/s that a machine reaches."""

    gemm: float
    syrk: float
    trsm: float
    exp: float
    bytes: float


@dataclass(frozen=True)
class Work:
    """Flops of three kinds, exponentials, and bytes that come from or go to memory."""

    gemm: float = 0.0
    syrk: float = 0.0
    trsm: float = 0.0
    exp: float = 0.0
    bytes: float = 0.0

    def __add__(self, other: "Work") -> "Work":
        return Work(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Work)))

    def seconds(self, rates: Rates) -> dict[str, float]:
        """Return the least time of every kind of work."""
        found = {f.name: getattr(self, f.name) / getattr(rates, f.name) for f in fields(Work)}
        return {name: seconds for name, seconds in found.items() if seconds > 0}


class Floor(NamedTuple):
    """A fit, what it cannot avoid, and what it took."""

    name: str
    problem: str
    work: Work
    measured: float

    def row(self, rates: Rates) -> dict[str, Any]:
        """Return the line of the table."""
        parts = self.work.seconds(rates)
        floor, most = sum(parts.values()), max(parts, key=parts.__getitem__)
        return {
            "fit": self.name,
            "problem": self.problem,
            "floor, s": f"{floor:.3f}",
            "mostly": f"{KINDS[most][0]} ({parts[most] / floor:.0%})",
            "measured, s": f"{self.measured:.3f}",
            "measured / floor": f"{self.measured / floor:.1f}",
        }


# ---------------------------------------------------------------------------- what fits consist of


def kernel_values(m: float, r: float, d: int) -> Work:
    """k(x, z) of m rows and r points, made and used in tiles that stay in the cache."""
    return Work(gemm=2 * m * r * d, exp=m * r)


def random_basis(m: int, d: int, r: int) -> Work:
    """SparseLSSVC at a given C: whitened kernel values, their sums, a Cholesky factor."""
    return kernel_values(m, r, d) + Work(trsm=m * r * r, syrk=m * r * r, gemm=2 * r**3 / 3)


def pivoted_basis(m: int, d: int, r: int) -> Work:
    """The same with pivots: P is appended by products, kept, and read once for the sums."""
    append = kernel_values(m, r, d) + Work(gemm=m * r * r, bytes=16 * m * r)
    return append + Work(syrk=m * r * r, gemm=2 * r**3 / 3)


def left_out_basis(m: int, d: int, r: int, candidates: int = 50) -> Work:
    """SparseLSSVC with C="loo": rows of Z are kept and turned once, then met by every C."""
    turned = Work(gemm=2 * m * r * r + 4 * m * r * candidates + 9 * r**3, bytes=16 * m * r)
    return random_basis(m, d, r) + turned


def newton_basis(m: int, d: int, r: int, steps: int, curved: float) -> Work:
    """ReducedSVC: whitened values once; a step reads them and adds up those of curved rows."""
    once = kernel_values(m, r, d) + Work(trsm=m * r * r, bytes=8 * m * r)
    step = Work(syrk=steps * curved * r * r, bytes=steps * 8 * m * r, gemm=steps * r**3 / 3)
    return once + step


def dense_cholesky(m: int, d: int) -> Work:
    """LSSVC: half of the kernel matrix, its factor, two triangular solves."""
    return Work(gemm=m * m * d + m**3 / 3, exp=m * m / 2, bytes=8 * m * m * 1.5)


def dense_cg(m: int, d: int, steps: int) -> Work:
    """LSSVC by conjugate gradients: the matrix is made once and read in every step."""
    return Work(gemm=m * m * d, exp=m * m / 2, bytes=8 * m * m * (1 + steps))


def support_vectors(m: int, d: int, n_support: int) -> Work:
    """L2SVC: kernel values of all rows with the support vectors once, and one factor of theirs."""
    return kernel_values(m, n_support, d) + Work(gemm=n_support**3 / 3, bytes=8 * m * n_support)


def learned_functions(m: int, d: int, functions: int, steps: int) -> Work:
    """LowRankLSSVC: a step has values and slopes of all functions, and reads the rows twice."""
    products = 12.0 * m * functions * d  # squared distances, and slopes by centres and by shapes
    return Work(gemm=steps * products, exp=steps * m * functions, bytes=steps * 16 * m * d)


def features_of(m: int, d: int, r: int) -> Work:
    """KernelBasis.transform: whitened kernel values, written."""
    return kernel_values(m, r, d) + Work(trsm=m * r * r, bytes=8 * m * r)


def prediction(m: int, d: int, r: int) -> Work:
    """A model of r points: kernel values times the coefficients."""
    return kernel_values(m, r, d) + Work(gemm=2 * m * r)


# ---------------------------------------------------------------------------- the page


def markdown(title: str, rates: Rates, rows: list[dict[str, Any]]) -> str:
    """Return the rates and the table as the page shows them."""
    shown = [
        f"{KINDS[f.name][0]} {getattr(rates, f.name) / KINDS[f.name][2]:,.3g} {KINDS[f.name][1]}"
        for f in fields(Rates)
    ]
    header = list(rows[0])
    lines = [header, ["---"] * len(header), *([row[key] for key in header] for row in rows)]
    table = "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)
    return f"{title}: {', '.join(shown)}.\n\n{table}"


def put_between(text: str, name: str, content: str) -> str:
    """Return a page with what is between the markers of that name replaced."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, rest = text.split(begin)
    return f"{before}{begin}\n{content}{end}{rest.split(end)[1]}"
