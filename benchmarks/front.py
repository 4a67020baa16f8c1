"""What the pages say of the result files: ``python -m benchmarks.front``.

Draws the differences from HistGradientBoosting, one bar per table. Fills in the text between the
marks ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->`` of PAGES: here the parts that a newcomer
looks at first, in `goals` the goals and other benchmarks. Run it after any benchmark:
tests/test_front.py fails as long as a page and the results disagree.
"""

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ._cells import MOST_ROWS, Cells, mean_of
from ._comparison import compare
from ._harness import RESULTS
from ._tabular import BOOSTING, OURS, TUNED, TUNED_LIGHTGBM
from .goals import PARTS as GOALS
from .goals import paragraph
from .many_rows import PEERS, SETS, TEST_ROWS, by_set
from .tabular_figures import table

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "docs/index.md", "docs/benchmarks.md", "docs/user_guide/l2svc.md")
PICTURE = ROOT / "docs" / "user_guide" / "images" / "tabular_differences.svg"
NAMES = {"SVC/SVR": "SVC"}  # only classes here
# the rows of the README's table; a model without cells for all tables has no mean
COMPARED = {
    OURS: "**leansvm**, defaults",
    BOOSTING: f"{BOOSTING}, defaults",
    "LightGBM": "LightGBM, defaults",
    TUNED_LIGHTGBM: "LightGBM, best of 12 configurations",
    TUNED: "SVC/SVR, grid-searched (3 × 3)",
}


def main() -> None:
    """Draw the picture and write the pages."""
    draw(differences(read("tabular-cells")), PICTURE)
    for page in (ROOT / name for name in PAGES):
        page.write_text(filled(page.read_text("utf-8")), encoding="utf-8")


def filled(text: str) -> str:
    """Return a page with the text between its marks written anew."""
    for name, write in PARTS.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        if begin in text:
            before, rest = text.split(begin)
            text = f"{before}{begin}\n\n{write()}\n{end}{rest.split(end)[1]}"
    return text


def read(name: str) -> Any:
    """Return a result file."""
    return json.loads((RESULTS / f"{name}.json").read_text("utf-8"))


# ---------------------------------------------------------------------------- everyday tables


def differences(cells: Cells) -> dict[str, float]:
    """Return our score minus that of HistGradientBoosting, by table, in points."""
    scores = mean_of(cells, "score")
    common = scores[OURS].keys() & scores[BOOSTING].keys()
    return {name: scores[OURS][name] - scores[BOOSTING][name] for name in common}


def everyday() -> str:
    """Return the sentence that sums up the everyday tables."""
    cells = read("tabular-cells")
    found = compare(mean_of(cells, "score"), OURS, BOOSTING)
    assert found is not None
    tuned = compare(mean_of(cells, "score"), OURS, TUNED)
    assert tuned is not None
    ours, theirs = _fit_time(cells, OURS), _fit_time(cells, BOOSTING)
    text = (
        f"On {found.wins} of {found.sets} everyday tables, `SparseLSSVC()` and `SparseLSSVR()` "
        f"score at least as high as scikit-learn's default {BOOSTING}. (leansvm gets raw "
        f"features; all parameters are defaults.) leansvm minus {BOOSTING} is {found.median:+.1f} "
        f"points of accuracy or R² in the median, {found.mean:+.1f} in the mean, and "
        f"{found.worst:+.1f} in the worst case ({found.worst_set}). On {tuned.wins} of "
        f"{tuned.sets} tables leansvm scores at least as high as a grid-searched `SVC` or `SVR`. "
        f"The price is fit time: with {MOST_ROWS:,} rows and two threads, a fit of leansvm takes "
        f"{ours:.0f} s (median), and one of {BOOSTING} takes {theirs:.1f} s."
    )
    return paragraph(text)


def _fit_time(cells: Cells, model: str) -> float:
    """Return the median fit time at the largest number of rows, in seconds.

    Fits that ran beside others count only where there is no other.
    """
    found = [
        cell
        for key, cell in cells.items()
        if key.split("/", 2)[2] == model and cell["rows"] == MOST_ROWS
    ]
    alone = [cell for cell in found if cell.get("jobs", 1) == 1]
    return statistics.median(cell["fit"] for cell in alone or found)


def compared() -> str:
    """Return the table of the README: one row for each model that was run on all tables."""
    cells = read("tabular-cells")
    scores = mean_of(cells, "score")
    rows = []
    for model, words in COMPARED.items():
        fit, everywhere = _fit_time(cells, model), len(scores[model]) == len(scores[OURS])
        mean = f"{statistics.fmean(scores[model].values()):.1f}" if everywhere else ""
        row = [words, mean, f"{fit:.0f}" if fit >= 10 else f"{fit:.1f}"]
        found = compare(scores, OURS, model)
        if model != OURS and found is not None:
            row += [f"{found.median:+.1f}", f"{found.wins} of {found.sets}"]
        else:
            row += ["", ""]
        rows.append(row)
    header = ["model", "mean accuracy or R² [%]", f"fit time, {MOST_ROWS:,} rows [s]"]
    header += ["median lead of leansvm [points]", "leansvm as good or better on"]
    return table(header, rows)


def draw(found: dict[str, float], path: Path) -> None:
    """Draw one bar for each set, the best at the top."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "leansvm"
    import matplotlib.pyplot as plt

    names = sorted(found, key=found.__getitem__)
    values = [found[name] for name in names]
    figure, axis = plt.subplots(figsize=(5, 6), layout="constrained")
    bars = axis.barh(names, values, color=["C0" if value >= 0 else "C1" for value in values])
    axis.bar_label(bars, [f"{value:+.1f}" for value in values], padding=2, fontsize=8)
    axis.axvline(0, color="black", linewidth=0.8)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(axis="y", length=0, labelsize=8)
    axis.margins(x=0.12, y=0.01)
    axis.set_xlabel("accuracy or R², in points")
    axis.set_title(f"leansvm minus {BOOSTING},\ndefaults, {len(names)} tables", fontsize=10)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


# ---------------------------------------------------------------------------- many rows


def _of_many_rows(what: str) -> dict[str, list[float]]:
    """Return one measure by model, a number for each set; a set that failed is an error."""
    found = by_set(read("many_rows-cells"))
    return {model: [found[name, model][what] for name in SETS] for model in PEERS}


def _shipped() -> dict[str, list[float]]:
    """Return the bytes to ship: our model file, and the pickled models of the others."""
    found = by_set(read("many_rows-cells"))
    return _of_many_rows("bytes") | {OURS: [found[name, OURS]["file bytes"] for name in SETS]}


def _measures() -> list[tuple[str, dict[str, list[float]], float, str]]:
    """Return what is shown of the sets: a name, numbers by model and set, a factor, a format."""
    return [
        ("accuracy [%]", _of_many_rows("score"), 1.0, ".2f"),
        ("fit time [s]", _of_many_rows("fit"), 1.0, ".1f"),
        (f"predict {TEST_ROWS:,} rows [ms]", _of_many_rows("predict"), 1e3, ",.0f"),
        ("model size [kB]", _shipped(), 1e-3, ",.0f"),
    ]


def short() -> str:
    """Return means over the sets of many rows, a line for each measure."""
    rows = [
        [what, *(f"{factor * statistics.fmean(by[model]):{form}}" for model in PEERS)]
        for what, by, factor, form in _measures()
    ]
    ours, theirs = (_of_many_rows("score")[model] for model in (OURS, BOOSTING))
    gains = zip(SETS, ours, theirs, strict=True)
    by_set = ", ".join(f"{name} {first - second:+.2f}" for name, first, second in gains)
    words = f"Accuracy of leansvm minus that of {BOOSTING}, in points: {by_set}.\n"
    return f"{table([f'mean of {len(SETS)} data sets', *_headers()], rows)}\n{words}"


def many_rows() -> str:
    """Return all sets of many rows, a line for each set and measure."""
    found, measures, rows = by_set(read("many_rows-cells")), _measures(), []
    for i, name in enumerate(SETS):
        cell = found[name, OURS]
        place = f"**{name}**, {cell['rows']:,} × {cell['features']}"
        for what, by, factor, form in measures:
            numbers = [f"{factor * by[model][i]:{form}}" for model in PEERS]
            rows.append([place, what, *numbers])
            place = ""
    return table(["data set, rows × features", "", *_headers()], rows)


def _headers() -> list[str]:
    return [NAMES.get(model, model) for model in PEERS]


# ---------------------------------------------------------------------------- single rows


def single_rows() -> str:
    """Return the time of single rows and the bytes of the model file."""
    report = read("latency")
    rows = []
    for row in report["rows"]:
        if "one row [us]" in row:
            rows.append([row["candidate"], f"{float(row['one row [us]'].split()[0]):.0f}"])
    size = next(row["bytes"] for row in report["rows"] if row["candidate"] == "model file")
    words = f"The model file has {size:,} bytes.\n"
    return f"{table(['one row', 'microseconds'], rows)}\n{words}"


PARTS: dict[str, Callable[[], str]] = {
    "compared": compared,
    "everyday": everyday,
    "short": short,
    "many rows": many_rows,
    "single rows": single_rows,
    **GOALS,
}


if __name__ == "__main__":
    main()
