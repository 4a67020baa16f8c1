"""The examples of the documentation run as they are."""

import runpy
import warnings
from pathlib import Path

import pytest

GALLERY = Path(__file__).parents[1] / "examples" / "gallery"


@pytest.mark.parametrize("path", sorted(GALLERY.rglob("plot_*.py")), ids=lambda path: path.stem)
@pytest.mark.usefixtures("own_folder")
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
