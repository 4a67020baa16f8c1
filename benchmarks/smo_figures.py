"""Draw the figures of docs/user_guide/sequential.md: ``python -m benchmarks.smo_figures``.

Times come from results/smo_scaling.json; the SUMT path is computed here (joshi's Figs. 4 and 5).
"""

import json
from pathlib import Path

from ._harness import RESULTS

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "user_guide" / "images"


def main() -> None:
    """Write all figures."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "leansvm"
    matplotlib.rcParams["figure.constrained_layout.use"] = True
    rows = json.loads((RESULTS / "smo_scaling.json").read_text())["rows"]
    _scaling([row for row in rows if row["data"] == "mushroom"])
    _penalty([row for row in rows if "blocks [s]" in row])
    _sumt()


def _save(figure: object, name: str) -> None:
    figure.savefig(FOLDER / f"{name}.svg", metadata={"Date": None})


def _scaling(rows: list[dict]) -> None:
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(6, 3.5))
    sizes = [row["rows"] for row in rows]
    for name in ("cholesky", "cg", "2SMO", "SesquiSMO"):
        axis.plot(sizes, [row[f"{name} [s]"] for row in rows], "o-", ms=3, label=name)
    axis.set(xlabel="rows of mushroom", ylabel="seconds", ylim=(0, None))
    axis.legend(frameon=False)
    _save(figure, "smo_scaling")


def _penalty(rows: list[dict]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(7, 3.2), sharey=True)
    for axis, name in zip(axes, ("kr-vs-kp", "mushroom"), strict=True):
        own = [row for row in rows if row["data"].startswith(name)]
        for kind in ("single updates", "blocks"):
            done = [row for row in own if not str(row[f"{kind}: sweeps"]).startswith(">")]
            axis.loglog(
                [row["A"] for row in done], [row[f"{kind} [s]"] for row in done], "o-", label=kind
            )
        axis.set(xlabel="A", title=f"{name}, {own[0]['rows']} rows")
    axes[0].set_ylabel("seconds to 1e-3")
    axes[1].legend(frameon=False)
    _save(figure, "smo_penalty")


def _sumt() -> None:
    """|sum(lambda y)| and the distance to the classical solution over SUMT steps, rho = 0.9."""
    import matplotlib.pyplot as plt

    from leansvm.papers.joshi import sumt_path

    figure, axes = plt.subplots(1, 2, figsize=(7, 3.2))
    for name in ("ionosphere", "sick"):
        distances, imbalances = sumt_path(name.upper())
        axes[0].semilogy(imbalances, label=name)
        axes[1].semilogy(distances, label=name)
    axes[0].set(xlabel="SUMT step (A falls by 0.9)", title="|Σ λ y|")
    axes[1].set(xlabel="SUMT step (A falls by 0.9)", title="‖λ − λ of the classical LS-SVM‖")
    axes[0].legend(frameon=False)
    _save(figure, "sumt")


if __name__ == "__main__":
    main()
