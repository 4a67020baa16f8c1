"""The examples of the documentation run as they are."""

import runpy
import warnings
from pathlib import Path

import pytest

GALLERY = Path(__file__).parents[1] / "examples" / "gallery"
SLOW = {"plot_07_learned_scales"}  # ten seconds
EXAMPLES = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in SLOW else [])
    for path in sorted(GALLERY.rglob("plot_*.py"))
]


@pytest.mark.parametrize("path", EXAMPLES)
@pytest.mark.usefixtures("own_folder", "short_search")  # `make docs` runs them to the end
def test_an_example_runs(path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*non-interactive.*")
        names = runpy.run_path(str(path))
    figure = names["figure"]
    assert all(axis.has_data() for axis in figure.axes)
    matplotlib.pyplot.close(figure)
