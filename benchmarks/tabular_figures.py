"""Put the results of ``tabular`` into docs/benchmarks.md: ``python -m benchmarks.tabular_figures``.

The text between the two marks of that page is written anew from results/tabular-cells.json, and so
is the picture of average ranks.
"""

import json
from pathlib import Path
from typing import Any

from ._cells import Cells, mean_of
from ._comparison import average_ranks, compare, critical_difference, groups
from ._harness import RESULTS
from ._tabular import MODELS, OURS

DOCS = Path(__file__).resolve().parent.parent / "docs"
PICTURE = "user_guide/images/tabular_ranks.svg"
BEGIN, END = "<!-- tabular: begin -->", "<!-- tabular: end -->"


def main() -> None:
    """Write the tables and the picture."""
    cells = json.loads((RESULTS / "tabular-cells.json").read_text("utf-8"))
    page = DOCS / "benchmarks.md"
    before, rest = page.read_text("utf-8").split(BEGIN)
    after = rest.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n\n{markdown(cells)}\n{END}{after}", encoding="utf-8")
    ranks, n_sets = average_ranks(mean_of(cells, "score"))
    draw(ranks, critical_difference(len(ranks), n_sets), n_sets, DOCS / PICTURE)


def markdown(cells: Cells) -> str:
    """Return the comparisons, the picture's place and the table of all sets."""
    scores = mean_of(cells, "score")
    peers = [compare(scores, OURS, model) for model in MODELS if model != OURS]
    rows: list[list[Any]] = [
        [p.peer, f"{p.wins} of {p.sets}", f"{p.median:+.2f}", f"{p.mean:+.2f}",
         f"{p.worst:+.2f} ({p.worst_set})"]
        for p in peers if p is not None
    ]  # fmt: skip
    header = ["against", "at least as good", "median difference", "mean", "worst table"]
    return (
        f"{table(header, rows)}\n"
        f"![average ranks of the models, with the critical difference]({PICTURE})\n\n"
        f"{_sets(cells)}"
    )


def _sets(cells: Cells) -> str:
    """Return the table of all sets: scores, the best in bold, then size and time of ours."""
    scores = mean_of(cells, "score")
    models = [model for model, found in scores.items() if found]
    fit, predict = mean_of(cells, "fit")[OURS], mean_of(cells, "predict")[OURS]
    points, size = mean_of(cells, "points")[OURS], mean_of(cells, "bytes")[OURS]
    rows = []
    for name in sorted(scores[OURS]):
        found = [scores[model].get(name) for model in models]
        best = max(round(value, 1) for value in found if value is not None)
        shown = ["–" if value is None else _score(value, best) for value in found]
        ours = [f"{points[name]:,.0f}", f"{fit[name]:.1f}", f"{1000 * predict[name]:.0f}"]
        rows.append([name, *shown, *ours, f"{size[name] / 1000:,.0f}"])
    header = ["table", *models, "points", "fit [s]", "predict [ms]", "pickled [kB]"]
    return table(header, rows)


def _score(value: float, best: float) -> str:
    return f"**{value:.1f}**" if round(value, 1) == best else f"{value:.1f}"


def table(header: list[str], rows: list[list[Any]]) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def draw(ranks: dict[str, float], difference: float, n_sets: int, path: Path) -> None:
    """Draw average ranks on a line, best at the left; bars join what cannot be told apart."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "leansvm"
    import matplotlib.pyplot as plt

    ordered = sorted(ranks, key=ranks.__getitem__)
    height = 1.4 + 0.28 * len(ordered)
    figure, axis = plt.subplots(figsize=(7, height), layout="constrained")
    axis.plot([1, len(ordered)], [0, 0], color="black", linewidth=1)
    for rank in range(1, len(ordered) + 1):
        axis.plot([rank, rank], [0, 0.15], color="black", linewidth=1)
        axis.text(rank, 0.25, str(rank), ha="center", va="bottom")
    axis.plot([1, 1 + difference], [1.1, 1.1], color="C1", linewidth=3)
    axis.text(1, 1.25, f"critical difference {difference:.2f} (Nemenyi, 5 %)", va="bottom")
    runs = groups(ranks, difference)
    for i, (first, last) in enumerate(runs):
        axis.plot([first - 0.03, last + 0.03], [-0.3 - 0.25 * i] * 2, color="C1", linewidth=3)
    lowest = -0.5 - 0.25 * len(runs)
    for i, model in enumerate(ordered):
        place, level = ranks[model], lowest - 0.5 * i
        colour = "C0" if model == OURS else "black"
        axis.plot([place, place, 1], [0, level, level], color=colour, linewidth=1)
        axis.text(0.95, level, f"{model}  {place:.2f}", ha="right", va="center", color=colour)
    axis.set(xlim=(-1.2, len(ordered) + 0.2), ylim=(level - 0.4, 1.9))
    axis.set_title(f"average rank over {n_sets} sets (1 is best)", fontsize=10)
    axis.set_axis_off()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
