"""Write a web page that reads hand-written digits: the model runs in the reader's browser.

    python examples/browser.py            writes digits.html; open it in any browser

The page contains the model as JavaScript (a few kilobytes of 8-bit numbers). It needs no server, no
library and no other file. Click pixels to draw; the bars are class probabilities.
"""

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from leansvm import SparseLSSVC
from leansvm.export import compress, to_js
from leansvm.plotting import html

SIDE = 8  # pixels of a digit


def fitted():
    """Return a calibrated model of digits, and rows that it has not seen."""
    X, y = load_digits(return_X_y=True)
    model = SparseLSSVC(
        C="loo", kernel="rbf", gamma="scale", n_basis=150, calibrate=True, random_state=0
    )
    return model.fit(X[:1200], y[:1200]), X[1200:], y[1200:]


def page(model, X, y):
    """Return the page: the module, some rows with Python's predictions, and a few lines of text."""
    small = compress(model, X, y)
    tenth = np.arange(0, 120, 6)
    rows = [[round(value) for value in row] for row in X[tenth]]
    size = (
        f"{model.n_support_} points of {SIDE * SIDE} pixels as {small.store}: {small.bytes:,} bytes"
    )
    return html.render(
        Path(__file__).with_name("browser.html.j2"),
        title="Digits",
        lead="A kernel machine in your browser. Click pixels to draw, or choose a digit below.",
        size=size,
        module=to_js(small),
        samples=rows,
        labels=model.predict(X[tenth]).tolist(),
        footer=[],
    )


def main():
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("digits.html"))
    output = parser.parse_args().output
    output.write_text(page(*fitted()), encoding="utf-8")
    print(f"wrote {output}: open it in a browser")


if __name__ == "__main__":
    main()
